"""`headrace` as a process of its own: started, watched, killed, and its output read by plain pyarrow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HEADRACE = (sys.executable, "-m", "headrace")


def environment(**more: str) -> dict[str, str]:
    """This process's environment, without what would colour or redirect the output."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("COV_", "PYTEST_"))}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1", **more}


def headrace(*arguments: object, timeout_seconds: float = 240.0) -> subprocess.CompletedProcess[str]:
    """Runs `headrace ARGUMENTS` to its end; stdout and stderr are text."""
    return subprocess.run(
        [*HEADRACE, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )


def start(*arguments: object, log: Path) -> subprocess.Popen[str]:
    """Starts `headrace ARGUMENTS` as the leader of a process group; what it says goes to `log`."""
    with log.open("a") as sink:
        return subprocess.Popen(
            [*HEADRACE, *map(str, arguments)],
            stdout=sink,
            stderr=sink,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment(),
            start_new_session=True,
        )


def kill_group(process: subprocess.Popen[str]) -> None:
    """kill -9 of the whole process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_until(
    holds: Callable[[], bool], timeout_seconds: float, what: str, step_seconds: float = 0.02
) -> None:
    """Returns when `holds()`; raises AssertionError with `what` when it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    while not holds():
        assert time.monotonic() < deadline, f"after {timeout_seconds:.0f} s still not: {what}"
        time.sleep(step_seconds)


def durable_lines(out: Path) -> int:
    """Rows that lie in the output folder now, sealed or not, counted without headrace's own reader."""
    return len(sealed_rows(out, ["id"])) + len(open_rows(out))


def sealed_rows(out: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows of the finished shards, read by plain pyarrow."""
    import pyarrow.parquet

    rows: list[dict[str, Any]] = []
    for shard in sorted((out / "completions").glob("*.parquet")):
        table = pyarrow.parquet.read_table(shard, columns=list(columns) if columns else None)
        rows += table.to_pylist()
    return rows


def open_rows(out: Path) -> list[dict[str, Any]]:
    """The rows of the open segments that have no shard yet; a torn last line is left out."""
    rows: list[dict[str, Any]] = []
    for segment in sorted((out / "open").glob("rows-*.jsonl")):
        number = segment.stem.removeprefix("rows-")
        if (out / "completions" / f"part-{number}.parquet").exists():
            continue
        whole_lines = segment.read_bytes().split(b"\n")[:-1]
        rows += [json.loads(line) for line in whole_lines if line]
    return rows


def finished_rows(out: Path) -> list[dict[str, Any]]:
    """All rows of a job that has ended: they lie in shards, and nothing lies open."""
    assert open_rows(out) == [], f"{out}/open holds rows after the end of the job"
    return sealed_rows(out)


def failed_rows(out: Path) -> list[dict[str, Any]]:
    """The lines of failed/failed.jsonl."""
    file = out / "failed" / "failed.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
