"""The commands as processes: the demo from end to end, and a run that outlives its terminal."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver_process import HEADRACE, environment, headrace, sealed_rows, wait_until


def children_of(words: str) -> list[str]:
    """Running processes whose command line holds `words`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words in line:
            found.append(line)
    return found


def test_the_demo_loses_nothing_leaves_no_process_and_asks_nothing_twice(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    # a mark that only this demo's servers carry in their command line
    words = ("demo", "--rows", "90", "--out", out, "--speed", "41.25", "--replicas", "3")
    done = headrace(*words)
    assert done.returncode == 0, done.stderr
    assert "Finished: 90 of 90 rows" in done.stdout
    assert f"{out}/data/completions" in done.stdout
    assert done.stdout.count("answered  ") == 3
    rows = sealed_rows(out / "data", ["id", "source"])
    assert len({row["id"] for row in rows}) == len(rows) == 90
    assert {row["source"] for row in rows} == {"shop", "trips", "teacher"}
    assert children_of("--speed 41.25") == []
    again = headrace(*words)
    assert again.returncode == 0, again.stderr
    assert "Finished: 90 of 90 rows" in again.stdout
    assert "this run" not in again.stdout


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of one emulated server."""
    words = [*HEADRACE, "emulate", "--replicas", "1", "--base-port", "0", "--speed", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.wait(10)


def test_a_detached_run_goes_on_alone_answers_and_drains(tmp_path: Path, server: str) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": f"Count to {number}."}) + "\n" for number in range(3000))
    )
    out = tmp_path / "out"
    words = ("run", "--prompts", prompts, "--server", server, "--out", out, "--max-tokens", "300")
    started = headrace(*words, "--detach")
    assert started.returncode == 0, started.stderr
    document = json.loads(headrace("status", out, "--json").stdout)
    assert document["live"]
    assert document["age_seconds"] < 60
    pid = document["pid"]
    try:
        assert f"process {pid}" in started.stdout
        os.kill(pid, signal.SIGHUP)  # the terminal has gone
        second = headrace(*words, "--detach")
        assert second.returncode == 4
        assert str(pid) in second.stderr
        told = headrace("fleet", "drain", server, "--job", out)
        assert told.returncode == 0, told.stderr
        refused = headrace("fleet", "drain", "http://127.0.0.1:9", "--job", out)
        assert refused.returncode == 3
    finally:
        os.kill(pid, signal.SIGINT)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), 60, "the detached run has ended")
    ended = headrace("status", out)
    assert ended.stdout.startswith("stopped ")
    assert "The job ended" in ended.stdout
    assert headrace("fleet", "add", server, "--job", out).returncode == 5


PROMPTS = "".join(json.dumps({"prompt": f"Count to {number}."}) + "\n" for number in range(40))


@pytest.fixture
def job(tmp_path: Path, server: str) -> list[str]:
    """The words of a short run into tmp_path/out."""
    (tmp_path / "p.jsonl").write_text(PROMPTS)
    words = ["run", "--prompts", str(tmp_path / "p.jsonl"), "--server", server, "--max-tokens", "20"]
    return [*HEADRACE, *words, "--out", str(tmp_path / "out")]


def in_shell(line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The line run by bash; its exit code is that of the first command of a pipe."""
    words = ["bash", "-c", line + "; exit ${PIPESTATUS[0]}"]
    kept = environment(**more)
    kept.pop("PYTHONUNBUFFERED")
    return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=120, env=kept)


@pytest.mark.parametrize(
    ("into", "why"),
    [
        ("| head -1", "Broken pipe"),
        (">&-", "it is closed"),
        (">/dev/full", "No space left on device"),
        (">&- 2>&- <&-", None),
    ],
)
def test_a_job_goes_on_without_its_standard_output(
    tmp_path: Path, job: list[str], into: str, why: str | None
) -> None:
    done = in_shell(f"{shlex.join(job)} {into}")
    assert done.returncode == 0, done.stderr
    assert len(sealed_rows(tmp_path / "out", ["id"])) == 40
    told = [] if why is None else [f"headrace: standard output takes nothing more ({why}); the job goes on."]
    assert [line.split(" See it")[0] for line in done.stderr.splitlines()] == told


def test_commands_that_nobody_reads_end_quietly(tmp_path: Path, job: list[str]) -> None:
    assert in_shell(shlex.join(job)).returncode == 0
    out = shlex.quote(str(tmp_path / "out"))
    for words in (f"status {out}", f"status {out} --watch", f"export {out} --to jsonl --file -", "--help"):
        ended = in_shell(f"{shlex.join(HEADRACE)} {words} | true")
        assert (ended.returncode, ended.stderr.replace("Wrote 40 rows.\n", "")) == (0, "")


def test_terminals_without_our_letters(tmp_path: Path, job: list[str]) -> None:
    encoding = "ascii"
    done = in_shell(f"{shlex.join(job)} --progress table", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("--help", f"status {tmp_path / 'out'}"):
        ended = in_shell(f"{shlex.join(HEADRACE)} {words}", PYTHONIOENCODING=encoding)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_reader_that_reads_nothing_does_not_stop_the_job(tmp_path: Path, job: list[str]) -> None:
    with subprocess.Popen(
        [*job, "--progress", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)  # one document and a bit
        wait_until(lambda: len(sealed_rows(tmp_path / "out", ["id"])) == 40, 60, "all rows are sealed")
        process.communicate()


def test_rows_are_exported_to_standard_output(tmp_path: Path, job: list[str]) -> None:
    assert in_shell(shlex.join(job)).returncode == 0
    words = ("export", tmp_path / "out", "--file", "-", "--to")
    done = headrace(*words, "conversations")
    assert (done.returncode, done.stderr) == (0, "Wrote 40 rows.\n")
    assert len({json.loads(line)["id"] for line in done.stdout.splitlines()}) == 40
    refused = headrace(*words, "parquet")
    assert (refused.returncode, refused.stdout) == (2, "")
    full = in_shell(f"{shlex.join([*HEADRACE, *map(str, words)])} jsonl >/dev/full")
    assert full.returncode == 6
    assert "No space left on device" in full.stderr
