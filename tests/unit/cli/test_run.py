"""`headrace run`: from flags to a job, dry runs, summaries, detached runs. Nothing is sent here."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import api
from headrace.cli import detach, dry_run, main, running, show
from headrace.cli.run import run as run_command
from headrace.cli.show import LineView, choose, plain_gap_seconds, snapshot_note
from headrace.clock import VirtualClock
from headrace.drive.fleet_view import FirstLook
from headrace.drive.job import Job
from headrace.drive.job.options import KEYS
from headrace.drive.status import JobStatus
from headrace.drive.store.rows import FailedRow
from headrace.errors import JobStopped
from headrace.words import Api, Flag, FlagPolicy
from tests.unit.report.statuses import status

ROWS = '{"question": "What is 2 + 2?", "id": "a"}\nnot json\n{"question": "And 3 + 3?", "id": "b"}\n'
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `headrace` in this process, in a folder with prompts."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text(ROWS)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Job, dict[str, Any]]]:
    """What would have been run: the driver is replaced by one that finishes at once."""
    seen: list[tuple[Job, dict[str, Any]]] = []

    def finish(job: Job, **options: Any) -> JobStatus:
        seen.append((job, options))
        last = status(phase="finished", out=str(job.out), failed=0, failures={}, pending=0)
        options["on_status"](last)
        return last

    monkeypatch.setattr(api, "run_resolved", finish)
    return seen


FLAGS = ("run", "--prompts", "p.jsonl", "--server", "http://127.0.0.1:30000-30001", "--out", "out")


def test_the_same_words_in_command_python_and_table() -> None:
    beyond = {"job_file", "metrics_port", "metrics_host", "record_every"}
    command = set(inspect.signature(run_command).parameters) - {"context", "detach", "dry_run", "progress"}
    python = set(inspect.signature(api.run).parameters) - {"on_status", "status_every_seconds"}
    assert command == python == set(KEYS) | beyond


def test_flags_become_a_job(run: Run, jobs: list[tuple[Job, dict[str, Any]]], tmp_path: Path) -> None:
    code, _, _ = run(
        *FLAGS,
        *("--model", "m", "--api", "completions", "--in-flight", "12", "--count", "2", "--samples", "3"),
        *(
            "--max-tokens",
            "30",
            "--temperature",
            "0.5",
            "--stop",
            "a",
            "--stop",
            "b",
            "--columns",
            "prompt=question",
        ),
        *(
            "--flags-policy",
            "truncated=retry_once",
            "--request-timeout",
            "2h",
            "--no-hedge",
            "--no-row-checks",
        ),
        *("--extra-body", '{"priority": 1}', "--metrics-port", "9100", "--progress", "none"),
    )
    assert code == 0
    ((job, options),) = jobs
    assert job.servers == ("http://127.0.0.1:30000", "http://127.0.0.1:30001")
    assert (job.out, job.model, job.api, job.in_flight) == (tmp_path / "out", "m", Api.COMPLETIONS, 12)
    (source,) = job.sources
    assert (source.limit, source.samples, source.columns) == (2, 3, {"prompt": "question"})
    assert source.sampling == {"max_tokens": 30, "temperature": 0.5, "stop": ["a", "b"]}
    assert source.extra_body == {"priority": 1}
    assert job.flag_policies[Flag.TRUNCATED] is FlagPolicy.RETRY_ONCE
    assert (job.request_timeout_seconds, job.hedge_tail, job.row_checks) == (7200.0, False, False)
    assert options["metrics_port"] == 9100


def test_all_mistakes_of_flags_come_at_once(run: Run, jobs: list[Any]) -> None:
    code, out, err = run("run", "--prompts", "q.jsonl", "--server", "h:1", "--in-flight", "0", "--top-p", "7")
    assert (code, out, jobs) == (2, "", [])
    lines = [line.split(": ")[1] for line in err.splitlines()]
    assert sorted(lines[:-1]) == ["'out' is missing", "--in-flight", "--prompts", "--server", "--top-p"]
    assert lines[-1] == "5 problems; nothing was started."


def test_the_summary_names_the_command_that_takes_up_failed_rows(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = FailedRow("a", "p", 2, 0, "refused", "too long", 400, None, 1, 1.0)
    (tmp_path / "out" / "failed").mkdir(parents=True)
    (tmp_path / "out" / "failed" / "failed.jsonl").write_text(
        "torn\n" + msgspec.json.encode(row).decode() + "\n"
    )
    last = status(phase="finished", out=str(tmp_path / "out"))
    monkeypatch.setattr(api, "run_resolved", lambda job, **options: last)
    code, out, _ = run(*FLAGS, "--retry-failed", "--progress", "plain")
    assert code == 0
    assert "“too long” (row 2 of p)" in out
    (again,) = [part.strip() for part in out.split("failed rows")[1:]]
    assert (
        " ".join(again.split("export")[0].split())
        == f"headrace {' '.join(FLAGS)} --progress plain --retry-failed"
    )


def test_a_stopped_job_is_summed_up_and_ends_with_7(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(job: Job, **options: Any) -> JobStatus:
        options["on_status"](status(phase="stopped"))
        raise JobStopped("Drained on request.")

    monkeypatch.setattr(api, "run_resolved", stop)
    code, out, err = run(*FLAGS, "--progress", "plain")
    assert code == 7
    assert "Stopped after 1 h 07 min" in out
    assert err == "headrace: Drained on request.\n"


@pytest.mark.parametrize(("done", "expected"), [(0, 7), (1, 0)])
def test_a_job_of_which_not_one_row_was_answered_ends_with_7(
    run: Run, monkeypatch: pytest.MonkeyPatch, done: int, expected: int
) -> None:
    last = status(phase="finished", done=done, failed=44, failures={"refused": 44}, pending=0)
    monkeypatch.setattr(api, "run_resolved", lambda job, **options: last)
    code, out, err = run(*FLAGS, "--progress", "plain")
    assert code == expected
    assert "44 of them failed" in out
    assert ("Not one row was answered: all 44 failed." in err) == (expected == 7)


def test_what_a_job_noted_is_told_once_between_the_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = status(phase="finished", notes=["the disk had lost 3 rows"], failed=0, failures={})

    def finish(job: Job, **options: Any) -> JobStatus:
        for phase in ("running", "draining"):
            options["on_status"](msgspec.structs.replace(noted, phase=phase))
        return noted

    monkeypatch.setattr(api, "run_resolved", finish)
    _, out, _ = run(*FLAGS, "--progress", "plain")
    lines = out.splitlines()
    assert lines[1] == '[01:06:40] note="the disk had lost 3 rows"'
    assert out.count("note=") == 1
    assert "  notes         the disk had lost 3 rows" in lines
    _, out, _ = run(*FLAGS, "--progress", "json")
    assert json.loads(out.splitlines()[0])["notes"] == ["the disk had lost 3 rows"]


def test_progress_json_is_nothing_but_documents(run: Run, jobs: list[Any]) -> None:
    _, out, err = run(*FLAGS, "--progress", "json")
    assert err == ""
    assert [json.loads(line)["phase"] for line in out.splitlines()] == ["finished"]


def test_a_dry_run_says_what_would_be_sent(
    run: Run, jobs: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def look(job: Job, api_key: str | None) -> list[FirstLook]:
        return [
            FirstLook(job.servers[0], ("m",), None),
            FirstLook(job.servers[1], None, "connection refused"),
        ]

    monkeypatch.setattr(dry_run, "_look", look)
    (tmp_path / "job.yaml").write_text(
        "out: out\nservers: http://127.0.0.1:30000-30001\nprompts: p.jsonl\nsampling: {max_tokens: 9}\n"
    )
    code, out, _ = run("run", "job.yaml", "--max-tokens", "5", "--dry-run")
    assert (code, jobs) == (0, [])
    assert not (tmp_path / "out").exists()
    said = out.splitlines()
    assert said[0] == "Override: --max-tokens 5 instead of 9 (job.yaml:4:24)"
    assert "  rows looked at: 3 (all of it), readable 2, unreadable 1" in said
    assert "  shape: prompt from 'question', own id from 'id' if unique" in said
    assert "Identity: your own ids" in said
    at = said.index("Rows: 3 in total, samples counted")
    assert [line.split()[:3] for line in said[at + 1 : at + 6]] == [
        ["done", "already", "0"],
        ["excluded", "0", "answered"],
        ["duplicates", "0", "share"],
        ["unreadable", "1", "go"],
        ["to", "send", "2"],
    ]
    assert "  first request: POST /v1/chat/completions" in said
    assert '    "max_tokens": 5' in out
    assert "Server http://127.0.0.1:30000: serves m" in said
    assert "Server http://127.0.0.1:30001: does not answer: connection refused" in said
    assert "Model: m" in said
    assert said[-1] == "No problems; nothing was sent."


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ("", "hash of what is sent (source q has rows without an id)"),
        (', "id": "a"', "hash of what is sent (ids stand twice: 1)"),
        (', "id": "c"', "your own ids"),
    ],
)
def test_own_ids_hold_for_all_sources_or_none(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: str, verdict: str
) -> None:
    async def look(job: Job, api_key: str | None) -> list[FirstLook]:
        return [FirstLook(url, ("m",), None) for url in job.servers]

    monkeypatch.setattr(dry_run, "_look", look)
    (tmp_path / "q.jsonl").write_text('{"question": "Why?"' + rows + "}\n")
    _, out, _ = run(*FLAGS, "--prompts", "q.jsonl", "--dry-run")
    assert f"Identity: {verdict}" in out.splitlines()


def test_a_dry_run_says_whether_a_job_goes_on_and_shows_no_escapes(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def look(job: Job, api_key: str | None) -> list[FirstLook]:
        return [FirstLook(job.servers[0], ("m\x1b[2J",), None)]

    monkeypatch.setattr(dry_run, "_look", look)
    _, out, _ = run(*FLAGS, "--dry-run")
    assert f"Output: {tmp_path / 'out'} (new), parquet shards" in out.splitlines()
    assert "Server http://127.0.0.1:30000: serves m [2J" in out.splitlines()
    for name in ("job.json", "ledger.db", "ledger-at"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / name).write_text("")
        _, out, _ = run(*FLAGS, "--dry-run")
        assert f"Output: {tmp_path / 'out'} (goes on with what is there), parquet shards" in out.splitlines()
        (tmp_path / "out" / name).unlink()
        (tmp_path / "out").rmdir()


def test_what_auto_progress_is() -> None:
    assert choose("auto", terminal=True, columns=80) == "table"
    assert choose("auto", terminal=True, columns=40) == "plain"
    assert choose("auto", terminal=False, columns=200) == "plain"
    assert choose("json", terminal=True, columns=80) == "json"


def test_plain_lines_come_rarely_but_at_once_with_news(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = VirtualClock()
    view = LineView(lambda job: f"{job.phase} {job.message}".strip(), plain_gap_seconds, clock)
    for second, phase, message in [
        (0, "running", ""),
        (1, "running", ""),
        (9, "running", ""),
        (10, "running", ""),
        (12, "running", "disk full"),
        (13, "running", "disk full"),
        (14, "finished", ""),
    ]:
        clock.advance(second - clock.monotonic())
        view.show(status(phase=phase, message=message, elapsed_seconds=float(second)))
    assert capsys.readouterr().out.splitlines() == ["running", "running", "running disk full", "finished"]
    assert (plain_gap_seconds(299.0), plain_gap_seconds(301.0)) == (10.0, 60.0)


def test_a_snapshot_says_how_old_it_is_and_whose() -> None:
    assert (
        snapshot_note(status(phase="finished"), 1_800_000_125.0) == "The job ended 2 min 05 s ago on gpu-7."
    )
    stopped_note = snapshot_note(status(phase="stopped"), 1_800_000_125.0)
    assert stopped_note.endswith("on gpu-7. The same `headrace run` goes on with it.")
    running_note = snapshot_note(status(), 1_800_000_030.0)
    assert running_note.startswith("A snapshot of 30 s ago, by process 4711 on gpu-7; nothing answers here.")


def test_status_of_a_snapshot_and_of_no_job(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    code, _, err = run("status", "out")
    assert code == 3
    assert "is no job folder" in err
    (tmp_path / "out" / "status.json").write_bytes(
        msgspec.json.encode(status(phase="finished", notes=["a network disk"]))
    )
    code, out, _ = run("status", "out")
    assert code == 0
    assert out.startswith("finished  ")
    assert "The job ended" in out
    assert "note          a network disk" in out
    monkeypatch.setattr(show.SystemClock, "wall", lambda self: 1_800_000_012.5)
    for words in (("--json",), ("--json", "--watch")):
        code, out, _ = run("status", "out", *words)
        found = json.loads(out)
        assert (found["rows"], found["live"], found["age_seconds"]) == (300_000, False, 12.5)


def test_a_detached_run_is_waited_for_until_it_speaks_or_ends() -> None:
    polls = iter([None, None, None])
    speaks = iter([False, False, True])
    slept: list[float] = []
    assert detach.wait_until_known(lambda: next(polls), lambda: next(speaks), slept.append) is None
    assert len(slept) == 2
    assert detach.wait_until_known(lambda: 4, lambda: True, slept.append) == 4
    assert detach.child_environment({"A": "b"})["HEADRACE_DETACHED"] == "1"


def test_a_detached_run_that_ends_at_once_is_told_in_its_own_words(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("old\n")
    with log.open("a") as lines:
        lines.write("[00:00:01] running done=1\nheadrace: out is in use.\n")
    assert detach._said_since(log, len("old\n")) == "headrace: out is in use.\n"


def test_the_command_can_be_typed_again() -> None:
    assert (
        running.command_line(["run", "--prompts", "data/*.jsonl"]) == "headrace run --prompts 'data/*.jsonl'"
    )
