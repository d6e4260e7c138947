"""Shards and the reader: plain pyarrow reads what `Row` holds, and each row is read once while a job runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.drive.store.export import export
from headrace.drive.store.reader import read_columns, read_rows
from headrace.drive.store.rows import Row
from headrace.drive.store.segments import encode_rows, read_tail
from headrace.drive.store.shards import COLUMN_NAMES, SUFFIXES, read_shard, seal, shard_schema
from headrace.errors import InputError, StorageError, UsageError
from headrace.words import OutputFormat
from tests.unit.drive.store_jobs import FastDisk

FULL: dict[str, Any] = {
    "id": "q1", "source": "s", "row": 5_000_000_000, "sample": 2,
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "ä 😀 \n\x00"}],
    "prompt": None, "answer": "A" * 3000, "reasoning": "why", "finish_reason": "length",
    "flags": ["truncated", "repetition"], "prompt_tokens": 12, "completion_tokens": 3_000_000_000,
    "server": "http://h:1", "model": "m", "latency_seconds": 1.25, "tries": 2, "finished_at": 1767225600.5,
    "tool_calls": '[{"id":"c"}]', "token_ids": [1, 151_000, 0], "extra": '{"level":3}',
}  # fmt: skip
BARE: dict[str, Any] = FULL | {
    "id": "q2", "messages": None, "prompt": "plain", "answer": "", "reasoning": None, "finish_reason": None,
    "flags": [], "prompt_tokens": None, "completion_tokens": None, "model": None, "tool_calls": None,
    "token_ids": None, "extra": None,
}  # fmt: skip


@pytest.fixture(params=list(OutputFormat))
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A job folder with both rows in a shard, and a third in an open file whose last line is torn."""
    for name in ("completions", "open"):
        (tmp_path / name).mkdir()
    segment = tmp_path / "open" / "rows-000000.jsonl"
    segment.write_bytes(encode_rows([Row(**FULL), Row(**BARE)]))
    target = tmp_path / "completions" / f"part-000000.{SUFFIXES[request.param]}"
    assert seal(FastDisk(), segment, segment.stat().st_size, target, request.param) == 2
    third = encode_rows([Row(**BARE | {"id": "q3"})])
    (tmp_path / "open" / "rows-000001.jsonl").write_bytes(third + third[:50])
    return tmp_path


def test_rows_come_back_as_they_were_and_once(out: Path) -> None:
    # the sealed segment's open file is still there, as after a crash: its shard wins
    assert (out / "open" / "rows-000000.jsonl").exists()
    rows = list(read_rows(out))
    assert rows == [Row(**FULL), Row(**BARE), Row(**BARE | {"id": "q3"})]


def test_single_columns_can_be_read(out: Path) -> None:
    found = list(read_columns(out, ("id", "flags")))
    assert [name for columns in found for name in columns["id"]] == ["q1", "q2", "q3"]
    assert all(set(columns) == {"id", "flags"} for columns in found)


def test_plain_pyarrow_reads_a_shard(tmp_path: Path) -> None:
    segment = tmp_path / "rows-000000.jsonl"
    segment.write_bytes(encode_rows([Row(**FULL), Row(**BARE)]))
    target = tmp_path / "part-000000.parquet"
    seal(FastDisk(), segment, segment.stat().st_size, target, OutputFormat.PARQUET)
    assert pq.read_table(target).to_pylist() == [FULL, BARE]
    schema = pq.read_schema(target)
    assert all(field.metadata[b"description"] for field in schema)
    assert schema.field("messages").type == pa.list_(
        pa.struct([("role", pa.string()), ("content", pa.string())])
    )


def test_the_schema_has_the_columns_of_a_row_in_order() -> None:
    assert tuple(field.name for field in msgspec.structs.fields(Row)) == COLUMN_NAMES
    assert tuple(shard_schema().names) == COLUMN_NAMES


def test_the_whole_rows_of_a_torn_segment_are_found(tmp_path: Path) -> None:
    one = encode_rows([Row(**FULL)])
    path = tmp_path / "rows-000000.jsonl"
    for torn in (b"", b'{"id":', b"\x00" * 4096, b"null\n", one[:-1], b"\x00" * 10 + b"\n" + one):
        path.write_bytes(one + one + torn)
        found = read_tail(path, len(one))
        assert (found.rows, found.good_length) == ([Row(**FULL)], 2 * len(one)), torn[:10]


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "completions").mkdir()
    (tmp_path / "completions" / "part-000003.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(StorageError, match=r"part-000003.parquet \(21 bytes\) cannot be read"):
        list(read_rows(tmp_path))
    with pytest.raises(InputError, match="is not a job folder"):
        list(read_rows(tmp_path / "completions"))


def test_exports(out: Path, tmp_path: Path) -> None:
    lines = tmp_path / "e.jsonl"
    assert export(out, "jsonl", lines) == 3
    assert [msgspec.json.decode(line, type=Row).id for line in lines.read_bytes().splitlines()] == [
        "q1",
        "q2",
        "q3",
    ]
    table = tmp_path / "e.parquet"
    assert export(out, "parquet", table, without=["truncated"]) == 2
    assert pq.read_table(table)["id"].to_pylist() == ["q2", "q3"]
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("reasoning", "last"),
    [
        ("inline", {"content": "<think>\nwhy\n</think>\n\n" + "A" * 3000}),
        ("field", {"content": "A" * 3000, "reasoning_content": "why"}),
        ("drop", {"content": "A" * 3000}),
    ],
)
def test_conversations_keep_or_drop_the_reasoning(
    out: Path, tmp_path: Path, reasoning: str, last: dict[str, str]
) -> None:
    path = tmp_path / "c.jsonl"
    export(out, "conversations", path, reasoning=reasoning)
    first, second, _ = (msgspec.json.decode(line) for line in path.read_bytes().splitlines())
    assert first["id"] == "q1"
    assert first["conversations"] == [
        *FULL["messages"],
        {"role": "assistant", "tool_calls": [{"id": "c"}], **last},
    ]
    assert second["conversations"] == [
        {"role": "user", "content": "plain"},
        {"role": "assistant", "content": ""},
    ]


def test_an_export_says_all_that_is_wrong_at_once(out: Path, tmp_path: Path) -> None:
    path = tmp_path / "there.jsonl"
    path.write_text("precious")
    with pytest.raises(UsageError) as refused:
        export(out, "jsnol", path, reasoning="inlin", without=["truncatd"])
    assert len(refused.value.problems) == 4
    assert "Did you mean 'truncated'?" in refused.value.problems[2]
    assert path.read_text() == "precious"
    assert export(out, "jsonl", path, force=True) == 3


@pytest.mark.parametrize("form", list(OutputFormat))
def test_a_count_that_no_column_holds_spoils_nothing(tmp_path: Path, form: OutputFormat) -> None:
    """Counts over int64, ids over int32, halves of tokens and endless latencies: the row stays, they go."""
    odd: list[dict[str, Any]] = [
        {"prompt_tokens": 2**63, "completion_tokens": -(2**70)},
        {"token_ids": [1, 2**31]},
        {"prompt_tokens": 3.5, "token_ids": ["x"]},
        {"latency_seconds": float("nan"), "finished_at": float("inf")},
        {"prompt_tokens": 7, "token_ids": [5]},
    ]
    rows = [
        Row(**BARE | {"id": f"q{number}", "completion_tokens": 5, "prompt_tokens": 3} | fields)
        for number, fields in enumerate(odd)
    ]
    segment = tmp_path / "rows-000000.jsonl"
    segment.write_bytes(encode_rows(rows))
    shard = tmp_path / f"part-000000.{SUFFIXES[form]}"
    assert seal(FastDisk(), segment, segment.stat().st_size, shard, form) == 5
    (columns,) = read_shard(shard)
    assert columns["answer"] == [row.answer for row in rows]
    if form is OutputFormat.PARQUET:
        assert columns["prompt_tokens"] == [None, 3, None, 3, 7]
        assert columns["completion_tokens"] == [None, 5, 5, 5, 5]
        assert columns["token_ids"] == [None, None, None, None, [5]]
    assert columns["latency_seconds"][3] is None
    assert columns["finished_at"][3] is None


@pytest.mark.parametrize("form", list(OutputFormat))
def test_a_damaged_shard_is_told_as_such(tmp_path: Path, form: OutputFormat) -> None:
    segment = tmp_path / "rows-000000.jsonl"
    segment.write_bytes(encode_rows([Row(**FULL | {"id": f"q{number}"}) for number in range(400)]))
    shard = tmp_path / f"part-000000.{SUFFIXES[form]}"
    seal(FastDisk(), segment, segment.stat().st_size, shard, form)
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 3 : len(raw) // 3 + 64] = bytes(64)
    shard.write_bytes(raw)
    with pytest.raises(StorageError, match="part-000000"):
        list(read_shard(shard))
