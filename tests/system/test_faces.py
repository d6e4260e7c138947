"""The commands as processes: the demo from end to end, and a run that outlives its terminal."""

from __future__ import annotations

import json
import os
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
