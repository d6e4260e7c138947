"""Every format, with every compression, gives the same rows."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.drive.job import Source
from headrace.drive.sources import NoSpool, ScannedRow, is_in_place, read_row, scan
from headrace.errors import UsageError

ROWS = [
    {"question": "What is 2 + 2?", "answer": "4"},
    {"question": 'Two lines,\nand a "quote" — naïve ☃', "answer": ""},
    {"question": "Third", "answer": "x, y"},
]
COMPRESSIONS = ("", ".gz", ".zst")


class MemorySpool:
    """Keeps rows as the real spool does: one per line."""

    def __init__(self) -> None:
        self.bytes = b""

    def append(self, raw: bytes) -> int:
        assert b"\n" not in raw
        offset = len(self.bytes)
        self.bytes += raw + b"\n"
        return offset


def compressed(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    return pa.compress(data, codec="zstd", asbytes=True) if suffix == ".zst" else data


def write(folder: Path, name: str, data: bytes) -> Source:
    """A source of one file; compressed as its suffix says."""
    path = folder / name
    path.write_bytes(compressed(data, path.suffix))
    return Source("s", (path,))


def scanned(source: Source) -> list[ScannedRow]:
    numbers = {path: number for number, path in enumerate(source.paths, 1)}
    return list(scan(source, numbers, NoSpool()))


def said(kind: str) -> bytes:
    """ROWS in a format."""
    if kind == ".jsonl" or kind == ".ndjson":
        return b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    if kind == ".json":
        return json.dumps(ROWS, indent=2).encode()
    text = io.StringIO()
    writer = csv.DictWriter(text, ["question", "answer"], delimiter="\t" if kind == ".tsv" else ",")
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("kind", [".jsonl", ".ndjson", ".json", ".csv", ".tsv"])
def test_rows_are_the_same_in_every_format_and_compression(
    tmp_path: Path, kind: str, compression: str
) -> None:
    found = scanned(write(tmp_path, f"rows{kind}{compression}", said(kind)))
    assert [row.error for row in found] == [None, None, None]
    assert [row.row for row in found] == [1, 2, 3]
    prompts = [row.prompt for row in found if row.prompt]
    assert [prompt.text for prompt in prompts] == [row["question"] for row in ROWS]
    assert [prompt.extra for prompt in prompts] == [{"answer": row["answer"]} for row in ROWS]


def test_parquet_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2)
    found = scanned(Source("s", (path,)))
    assert [row.prompt.text for row in found if row.prompt] == [row["question"] for row in ROWS]


def test_parquet_types_that_json_lacks_are_said_in_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table(
        {
            "prompt": ["hi"],
            "when": pa.array([1_700_000_000], pa.timestamp("s")),
            "raw": [b"abc"],
            "nan": [float("nan")],
            "chat": [[{"role": "user", "content": "x"}]],
        }
    )
    pq.write_table(table, path)
    (row,) = scanned(Source("s", (path,)))
    assert row.prompt is not None
    assert row.prompt.extra == {
        "when": "2023-11-14T22:13:20",
        "raw": "YWJj",
        "nan": None,
        "chat": [{"role": "user", "content": "x"}],
    }


_FAR = 2**62


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([1_700_000_000_000_000_001], pa.timestamp("ns")), "2023-11-14 22:13:20.000000001"),
        (pa.array([_FAR], pa.timestamp("ms")), _FAR),
        (pa.array([_FAR], pa.timestamp("us", "UTC")), "17036-07-06 14:00:27.387904Z"),
        (pa.array([5], pa.timestamp("us", "Nowhere/Land")), 5),
        (pa.array([2**31 - 1], pa.date32()), 2**31 - 1),
        (pa.array([1], pa.time64("ns")), "00:00:00.000000001"),
        (pa.array([_FAR], pa.duration("s")), str(_FAR)),
        (pa.array([[_FAR]], pa.list_(pa.timestamp("ms"))), [_FAR]),
        (pa.array([{"a": _FAR, "b": 1}], pa.struct([("a", pa.timestamp("ms")), ("b", pa.int8())])),
         {"a": _FAR, "b": 1}),
    ],
)  # fmt: skip
def test_parquet_times_that_python_cannot_hold_are_said_all_the_same(
    tmp_path: Path, column: pa.Array, said: object
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"prompt": ["hi"], "when": column}), path)
    (row,) = scanned(Source("s", (path,)))
    assert row.prompt is not None
    assert row.prompt.extra == {"when": said}


def test_null_fields_that_parquet_adds_to_turns_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    messages = [
        {"role": "user", "content": "x", "name": "ann"},
        {"role": "user", "content": "y", "name": None},
    ]
    pq.write_table(pa.table({"messages": [messages]}), path)
    (row,) = scanned(Source("s", (path,)))
    assert row.prompt is not None
    assert row.prompt.messages == (
        {"role": "user", "content": "x", "name": "ann"},
        {"role": "user", "content": "y"},
    )


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_text_file_is_a_prompt_per_line(tmp_path: Path, compression: str) -> None:
    found = scanned(write(tmp_path, f"rows.txt{compression}", b"one\r\n\n  two\nthree"))
    assert [row.prompt.text for row in found if row.prompt] == ["one", "  two", "three"]


@pytest.mark.parametrize("word", ["data", "rows"])
def test_json_object_with_a_list_of_rows(tmp_path: Path, word: str) -> None:
    document = {"version": 1, "about": {"data": [1]}, word: ROWS, "end": True}
    found = scanned(write(tmp_path, "rows.json", json.dumps(document, indent=1).encode()))
    assert [row.prompt.text for row in found if row.prompt] == [row["question"] for row in ROWS]


def test_json_lines_called_json(tmp_path: Path) -> None:
    lines = b'{"question": "a", "data": [1, 2]}\n{"question": "b", "data": []}\n'
    found = scanned(write(tmp_path, "rows.json", lines))
    assert [row.prompt.text for row in found if row.prompt] == ["a", "b"]


def test_a_single_json_object_is_a_row(tmp_path: Path) -> None:
    found = scanned(write(tmp_path, "row.json", b'\xef\xbb\xbf {"question": "a"} \n'))
    assert [row.prompt.text for row in found if row.prompt] == ["a"]


def test_a_json_row_that_does_not_parse_spoils_only_itself(tmp_path: Path) -> None:
    found = scanned(
        write(tmp_path, "rows.json", b'[{"question": "a"}, {"question": b}, 7, {"question": "c"}]')
    )
    assert [row.prompt.text if row.prompt else None for row in found] == ["a", None, None, "c"]
    assert "not JSON" in (found[1].error or "")
    assert "the number 7" in (found[2].error or "")


def test_a_json_array_longer_than_a_block(tmp_path: Path) -> None:
    rows = [{"question": f"{number} " + 'x"\\]}' * 4000} for number in range(60)]  # about 1.4 MB
    found = scanned(write(tmp_path, "rows.json", json.dumps(rows).encode()))
    assert [row.prompt.text for row in found if row.prompt] == [row["question"] for row in rows]


def test_json_lines_longer_than_a_block(tmp_path: Path) -> None:
    rows = [{"question": f"{number} " + "x" * 700_000} for number in range(4)]
    source = write(tmp_path, "rows.jsonl", b"\n".join(json.dumps(row).encode() for row in rows))
    found = scanned(source)
    assert [row.prompt.text for row in found if row.prompt] == [row["question"] for row in rows]
    data = source.paths[0].read_bytes()
    for row in found:
        at = row.locator
        assert read_row(source, data[at.offset : at.offset + at.length], row.row) == row.prompt


def test_plain_json_lines_are_located_in_place(tmp_path: Path) -> None:
    """Byte order mark, CRLF, blank lines, indentation and a last line without a newline."""
    data = b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n \t\n  {"prompt": "\xc3\xa9"} \n{"prompt": "c"}'
    source = write(tmp_path, "rows.jsonl", data)
    found = list(scan(source, {source.paths[0]: 7}, NoSpool()))
    assert [row.prompt.text for row in found if row.prompt] == ["a", "é", "c"]
    assert {row.locator.file for row in found} == {7}
    pieces = [data[row.locator.offset :][: row.locator.length] for row in found]
    assert pieces == [b'{"prompt": "a"}', b'{"prompt": "\xc3\xa9"}', b'{"prompt": "c"}']


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.json", "rows.csv", "rows.tsv.zst"])
def test_other_rows_are_spooled(tmp_path: Path, name: str) -> None:
    source = write(tmp_path, name, said("." + name.split(".")[1]))
    spool = MemorySpool()
    for row in scan(source, {}, spool):
        at = row.locator
        assert at.file == 0
        assert read_row(source, spool.bytes[at.offset : at.offset + at.length], row.row) == row.prompt
    assert not is_in_place(source.paths[0])


def test_limit_counts_over_files(tmp_path: Path) -> None:
    first = write(tmp_path, "a.jsonl", said(".jsonl")).paths[0]
    second = write(tmp_path, "b.csv", said(".csv")).paths[0]
    found = scanned(Source("s", (first, second), limit=4))
    assert [row.row for row in found] == [1, 2, 3, 4]
    assert [row.locator.file for row in found] == [1, 1, 1, 0]
    assert scanned(Source("s", (first,), limit=0)) == []


def test_several_zstd_frames_and_gzip_members_are_one_file(tmp_path: Path) -> None:
    line = b'{"prompt": "a"}\n'
    for suffix in (".gz", ".zst"):
        path = tmp_path / f"rows.jsonl{suffix}"
        path.write_bytes(compressed(line, suffix) + compressed(line, suffix))
        assert len(scanned(Source("s", (path,)))) == 2


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl.zst"])
def test_without_pyarrow_the_message_says_what_to_install(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path, name, b"x")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'headrace\[run\]'"):
        scanned(source)
