"""For any rows, in any format: reading a row again by its locator gives what the scan gave."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.drive.job import Source
from headrace.drive.sources import peek, read_row, scan
from headrace.drive.sources.lines import split_lines
from headrace.errors import InputError, UsageError

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "elf"]), "content": SCALAR}
)
ROW = st.fixed_dictionaries(
    {},
    optional={
        "prompt": VALUE,
        "messages": st.lists(TURN, max_size=4),
        "id": SCALAR,
        "system": SCALAR,
        "instruction": TEXT,
        "input": SCALAR,
        "other": VALUE,
        "body": st.fixed_dictionaries(
            {}, optional={"prompt": SCALAR, "messages": st.lists(TURN, max_size=2)}
        ),
        "custom_id": TEXT,
    },
)


class MemorySpool:
    def __init__(self) -> None:
        self.bytes = b""

    def append(self, raw: bytes) -> int:
        offset = len(self.bytes)
        self.bytes += raw + b"\n"
        return offset


def check_round_trip(name: str, data: bytes, rows: int | None) -> None:
    """Scans the data as a file of that name and reads every row again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        source = Source("s", (path,))
        try:
            peek(source)
        except (InputError, UsageError):
            return
        spool = MemorySpool()
        found = list(scan(source, {path: 1}, spool))
    assert rows is None or len(found) == rows
    for number, row in enumerate(found, 1):
        assert row.row == number
        assert (row.prompt is None) != (row.error is None)
        held = spool.bytes if row.locator.file == 0 else data
        raw = held[row.locator.offset : row.locator.offset + row.locator.length]
        if row.prompt is not None:
            assert read_row(source, raw, number) == row.prompt
            assert json.loads(raw) is not None
        else:
            try:
                read_row(source, raw, number)
            except InputError:
                continue
            raise AssertionError(f"{raw!r} was an error and now is a row")


@given(
    st.lists(ROW, max_size=6), st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]), st.booleans(), st.booleans()
)
@settings(max_examples=40, deadline=None)
def test_json_lines(rows: list[Any], newline: str, ascii_only: bool, bom: bool) -> None:
    text = newline.join(json.dumps(row, ensure_ascii=ascii_only) for row in rows)
    check_round_trip("rows.jsonl", (b"\xef\xbb\xbf" if bom else b"") + text.encode(), len(rows))


@given(st.lists(ROW, max_size=6), st.sampled_from([None, 0, 2]))
@settings(max_examples=40, deadline=None)
def test_json_documents(rows: list[Any], indent: int | None) -> None:
    check_round_trip("rows.json", json.dumps(rows, indent=indent).encode(), len(rows))


@given(st.lists(st.fixed_dictionaries({"id": TEXT, "prompt": TEXT, "answer": TEXT}), max_size=6))
@settings(max_examples=40, deadline=None)
def test_csv(rows: list[dict[str, str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["id", "prompt", "answer"], quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    check_round_trip("rows.csv", text.getvalue().encode(), len(rows))


@given(
    st.binary(max_size=200),
    st.sampled_from(["rows.jsonl", "rows.json", "rows.csv", "rows.txt", "rows.jsonl.gz"]),
)
@settings(max_examples=40, deadline=None)
def test_any_bytes(data: bytes, name: str) -> None:
    check_round_trip(name, data, None)


@given(st.lists(st.binary(max_size=8), max_size=8), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_lines_do_not_depend_on_where_blocks_end(parts: list[bytes], size: int) -> None:
    data = b"\n".join(parts)
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    if data.startswith(b"\xef\xbb\xbf"):
        return
    found = list(split_lines(iter(blocks)))
    assert [line for _, line, _ in found] == (data.removesuffix(b"\n").split(b"\n") if data else [])
    assert all(data[offset : offset + length] == line for offset, line, length in found)
