"""Where an export may lie, and exports to a stream."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.drive.store.export import export, export_to_stream
from headrace.drive.store.rows import Row
from headrace.drive.store.segments import encode_rows
from headrace.errors import UsageError

# a Row without anything that may be missing
ROW = Row(
    id="a",
    source="p",
    row=1,
    sample=0,
    messages=None,
    prompt="Why?",
    answer="Because.",
    reasoning=None,
    finish_reason="stop",
    flags=[],
    prompt_tokens=2,
    completion_tokens=3,
    server="http://h:1",
    model="m",
    latency_seconds=1.0,
    tries=1,
    finished_at=1.0,
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A job folder with one open row."""
    out = tmp_path / "out"
    for name in ("completions", "open", "failed", "prompts"):
        (out / name).mkdir(parents=True)
    (out / "open" / "rows-000000.jsonl").write_bytes(encode_rows([ROW]))
    for name in ("ledger.db", "ledger.db-wal", "lock", "status.json", "job.json", "run.log"):
        (out / name).write_bytes(b"own")
    (out / "ledger-at").write_text(
        json.dumps({"path": str(tmp_path / "elsewhere.db"), "host": "h", "ledger_id": "i"})
    )
    return out


@pytest.mark.parametrize(
    "name",
    [
        "completions/part-000000.parquet",
        "completions/deep/er/x.jsonl",
        "completions",
        "open/rows-000000.jsonl",
        "failed/failed.jsonl",
        "prompts/spool.jsonl",
        "ledger.db",
        "ledger.db-wal",
        "ledger-at",
        "lock",
        "status.json",
        "job.json",
        "run.log",
        "../elsewhere.db",
        "../elsewhere.db-wal",
        "completions/../open/../lock",
    ],
)
def test_an_export_takes_the_place_of_nothing_that_is_the_jobs(out: Path, name: str) -> None:
    with pytest.raises(UsageError, match="the job's own"):
        export(out, "jsonl", out / name, force=True)
    assert (out / "lock").read_bytes() == b"own"


def test_a_link_into_the_job_is_the_jobs_too(out: Path, tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(out / "open" / "rows-000000.jsonl")
    (tmp_path / "folder").symlink_to(out / "completions")
    for path in (tmp_path / "link.jsonl", tmp_path / "folder" / "x.jsonl"):
        with pytest.raises(UsageError, match="the job's own"):
            export(out, "jsonl", path, force=True)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "is a folder"),
        (_fifo, "is a device, pipe or socket"),
        (_to("/dev/null"), "is a device, pipe or socket"),
        (_to("/"), "is a folder"),
        (_to("nothing-there"), "is a link that leads nowhere"),
    ],
)
def test_what_is_no_regular_file_is_not_replaced(
    out: Path, tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "target"
    make(path)
    with pytest.raises(UsageError, match=said):
        export(out, "jsonl", path, force=True)
    assert not path.is_file()


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_names_that_no_file_can_have(out: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is no place for a file"):
        export(out, "jsonl", tmp_path / name, force=True)


def test_beside_the_jobs_own_there_is_room(out: Path) -> None:
    assert export(out, "jsonl", out / "export.jsonl") == 1
    assert export(out, "jsonl", out / "export.jsonl", force=True) == 1


def test_rows_go_to_a_stream_but_for_parquet(out: Path) -> None:
    stream = io.BytesIO()
    assert export_to_stream(out, "conversations", stream) == 1
    assert json.loads(stream.getvalue()) == {
        "id": "a",
        "conversations": [
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "Because."},
        ],
    }
    stream = io.BytesIO()
    assert export_to_stream(out, "jsonl", stream, without=["empty"]) == 1
    assert json.loads(stream.getvalue())["answer"] == "Because."
    with pytest.raises(UsageError, match="Parquet is written to a file"):
        export_to_stream(out, "parquet", stream)
