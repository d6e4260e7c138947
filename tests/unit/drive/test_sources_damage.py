"""Files and rows that are broken, cut off, or far too large: told row by row, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.drive.job import Source
from headrace.drive.sources import NoSpool, ScannedRow, json_items, lines, peek, read_row, scan
from headrace.drive.sources.file_rows import ROW_BYTES_LIMIT
from headrace.drive.sources.json_lines import json_line_rows
from headrace.errors import InputError, UsageError

GOOD = b'{"prompt": "good"}'


def scanned(folder: Path, name: str, data: bytes) -> list[ScannedRow]:
    path = folder / name
    path.write_bytes(data)
    return list(scan(Source("s", (path,)), {path: 1}, NoSpool()))


def outcomes(rows: list[ScannedRow]) -> list[str]:
    """The prompts' texts, "!" for a row with an error."""
    return [row.prompt.text or "" if row.prompt else "!" for row in rows]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{}", "no column 'prompt'; the row has none"),
        (b"{", "not JSON"),
        (b'{"prompt": "a" "b"}', "not JSON"),
        (b'{"prompt": "a\x00b"}', "not JSON"),
        (b"\x00\x00\x00", "not JSON"),
        (b'{"prompt": "\xff\xfe"}', "UTF-8"),
        (b'{"prompt": NaN}', "not JSON"),
        (b'{"prompt": "a", "x": 1e999}', "out of range"),
        (b'["prompt"]', "a list, not an object"),
        (b"null", "null, not an object"),
        (b"[" * 100_000, "nested more than 100 deep"),
        (b'{"prompt": "a", "x": ' + b"[" * 150 + b"]" * 150 + b"}", "nested more than 100 deep"),
        (rb'{"prompt": "a\udc00b"}', "surrogate"),
        (rb'{"prompt": "a", "x": ["\udfff"]}', "surrogate"),
    ],
)
def test_a_broken_line_spoils_only_itself(tmp_path: Path, line: bytes, words: str) -> None:
    rows = scanned(tmp_path, "rows.jsonl", GOOD + b"\n" + line + b"\n" + GOOD + b"\n")
    assert outcomes(rows) == ["good", "!", "good"]
    assert words in (rows[1].error or "")
    assert "row 2 (rows.jsonl, line 2)" in (rows[1].error or "")
    source = Source("s", (tmp_path / "rows.jsonl",))
    with pytest.raises(InputError, match="row 2"):
        read_row(source, line, 2)


def test_what_is_odd_but_allowed(tmp_path: Path) -> None:
    many = b'{"prompt": "wide", "x": [' + b"[]," * 500 + b"[]]}"
    pair = rb'{"prompt": "\ud83d\ude00"}'
    nul = rb'{"prompt": "a\u0000b"}'
    twice = b'{"prompt": "first", "prompt": "last"}'
    rows = scanned(tmp_path, "rows.jsonl", b"\n".join((many, pair, nul, twice)))
    assert outcomes(rows) == ["wide", "😀", "a\0b", "last"]


def test_a_row_of_ten_megabytes(tmp_path: Path) -> None:
    big = json.dumps({"prompt": "x" * 10_000_000}).encode()
    rows = scanned(tmp_path, "rows.jsonl", GOOD + b"\n" + big + b"\n" + GOOD)
    assert [len(row.prompt.text or "") for row in rows if row.prompt] == [4, 10_000_000, 4]


def over_limit(parts: list[bytes]) -> Iterator[bytes]:
    yield from parts


def test_a_line_over_the_limit_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "ROW_BYTES_LIMIT", 30)
    parts = [b"x" * 10] * 5 + [b"\n" + GOOD + b"\n" + b"y" * 31, b"\n", GOOD]
    rows = list(json_line_rows(Path("rows.jsonl"), over_limit(parts)))
    assert [row.raw for row in rows] == [b"", GOOD, b"", GOOD]
    assert [row.offset for row in rows] == [0, 51, 51 + 19, 51 + 19 + 32]
    assert "at most" in (rows[0].error or "")
    assert "over 50 bytes" in (rows[0].error or "")


def test_a_json_item_over_the_limit_ends_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_items, "ROW_BYTES_LIMIT", 40)
    parts = [b"[" + GOOD + b', {"prompt": "', *[b"x" * 30] * 9, b'"}]']
    rows = list(json_items.json_document_rows(Path("rows.json"), over_limit(parts)))
    assert [row.error is None for row in rows] == [True, False]
    assert "rest of the file is not read" in (rows[1].error or "")


def test_the_limit_is_64_mib() -> None:
    assert ROW_BYTES_LIMIT == 64 * 1024 * 1024


def test_a_cut_off_gzip_file_keeps_what_was_read(tmp_path: Path) -> None:
    draw = random.Random(1)  # random text, so that half of the bytes are about half of the rows
    whole = gzip.compress(b"".join(b'{"prompt": "%.16f"}\n' % draw.random() for _ in range(5000)))
    rows = scanned(tmp_path, "rows.jsonl.gz", whole[: len(whole) // 2])
    assert 2000 < sum(row.prompt is not None for row in rows) < 3000
    assert rows[-1].error is not None
    assert "break off" in rows[-1].error
    assert "rows.jsonl.gz" in rows[-1].error
    assert rows[-1].locator.length == 0


def test_a_cut_off_file_does_not_keep_the_next_from_being_read(tmp_path: Path) -> None:
    bad, good = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    bad.write_bytes(gzip.compress(GOOD)[:-9])
    good.write_bytes(GOOD)
    rows = list(scan(Source("s", (bad, good)), {good: 1}, NoSpool()))
    assert rows[-1].prompt is not None
    assert [row.row for row in rows] == list(range(1, len(rows) + 1))
    assert any("break off" in (row.error or "") for row in rows)


def test_a_small_file_that_unpacks_far_stays_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are of bounded size however far they unpack."""
    from headrace.drive.sources import blocks

    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1000)
    packed = gzip.compress(b"x" * 1_000_000)
    assert len(packed) < 2000
    sizes = [len(block) for block in blocks._gunzipped(io.BytesIO(packed))]
    assert sizes == [1000] * 1000


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_what_is_not_compressed_data(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match="break off after 0 unpacked bytes"):
        scanned(tmp_path, f"rows.jsonl{suffix}", GOOD * 10)


def test_damage_within_gzip_data(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(GOOD + b"\n" + bytes(range(32, 127)) * 50))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises((zlib.error, gzip.BadGzipFile, EOFError)):
        gzip.decompress(bytes(packed))
    with pytest.raises(InputError, match="break off"):
        scanned(tmp_path, "rows.jsonl.gz", bytes(packed))


def test_a_cut_off_zstd_file(tmp_path: Path) -> None:
    packed = pa.compress(GOOD + b"\n", codec="zstd", asbytes=True)
    with pytest.raises(InputError, match="break off"):
        scanned(tmp_path, "rows.jsonl.zst", packed[:-3])


# What is left of a cut-off document: one good row, then the word about the rest.
@pytest.mark.parametrize(
    "document",
    [
        b'[{"prompt": "good"}, {"prompt": "cut',
        b'[{"prompt": "good"}, {"prompt": "cut"',
        b'[{"prompt": "good"},',
        b'[{"prompt": "good"}',
        b'{"data": [{"prompt": "good"}, ',
        b'{"prompt": "good"} {"prompt":',
    ],
)
def test_a_cut_off_json_document_says_so(tmp_path: Path, document: bytes) -> None:
    rows = scanned(tmp_path, "rows.json", document)
    assert outcomes(rows)[-1] == "!"
    assert "cut off" in (rows[-1].error or "")
    assert outcomes(rows)[:-1] == ["good"]


def test_deep_nesting_in_a_json_document(tmp_path: Path) -> None:
    document = b'[{"prompt": "good"}, {"prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b'}, {"prompt": "good"}]'
    assert outcomes(scanned(tmp_path, "rows.json", document)) == ["good", "!", "good"]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.txt"])
def test_a_file_without_rows(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(InputError, match="has no rows"):
        scanned(tmp_path, name, data)


@pytest.mark.parametrize(("name", "data"), [("rows.json", b"[]"), ("rows.csv", b"prompt,answer\n")])
def test_a_head_without_rows(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(InputError, match="has no rows"):
        scanned(tmp_path, name, data)


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a JSON array nor an object"):
        scanned(tmp_path, "rows.json", b"prompt,answer\n1,2\n")
    with pytest.raises(InputError, match=r"none of its first 2 rows can be read.*suffix"):
        scanned(tmp_path, "rows.jsonl", b"prompt,answer\n1,2\n")
    with pytest.raises(InputError, match="Parquet"):
        scanned(tmp_path, "rows.parquet", GOOD)
    with pytest.raises(InputError, match="iconv"):
        scanned(tmp_path, "rows.csv", "prompt\nhi\n".encode("utf-16"))


def test_a_parquet_page_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    texts = [f"{number} " + "x" * 50 for number in range(4000)]
    pq.write_table(
        pa.table({"prompt": texts}), path, row_group_size=2000, compression="zstd", use_dictionary=False
    )
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    for at in range(start + 60, start + 400):
        data[at] ^= 0xFF
    rows = scanned(tmp_path, "rows.parquet", bytes(data))
    assert rows[-1].error is not None
    assert "breaks off after row" in rows[-1].error
    assert all(row.prompt for row in rows[:-1])


def test_csv_with_fields_that_do_not_fit(tmp_path: Path) -> None:
    data = b'id,prompt,note\n1,"a\r\nb",x\n2\n\n3,c,d,e\n4,\xff,x\n5,"say ""hi""",\n'
    rows = scanned(tmp_path, "rows.csv", data)
    assert outcomes(rows) == ["a\r\nb", "!", "!", "!", 'say "hi"']
    assert "no column 'prompt'; the row has 'id'" in (rows[1].error or "")
    assert "4 fields" in (rows[2].error or "")
    assert "UTF-8" in (rows[3].error or "")
    assert "line 7" in (rows[3].error or "")


def test_csv_with_a_quote_that_is_never_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.drive.sources import csv_rows

    monkeypatch.setattr(csv_rows, "ROW_BYTES_LIMIT", 1000)
    rows = scanned(tmp_path, "rows.csv", b'prompt\ngood\n"bad\n' + b"next\n" * 1000)
    assert outcomes(rows) == ["good", "!"]
    assert "not closed" in (rows[1].error or "")


def test_csv_lines_that_an_open_quote_swallows_are_told(tmp_path: Path) -> None:
    rows = scanned(tmp_path, "rows.csv", b'prompt,x\ngood,1\n"bad,2\nlost,3\n')
    assert outcomes(rows) == ["good", "!"]
    assert "at line 3 " in (rows[1].error or "")
    assert "the lines after it are not read" in (rows[1].error or "")


def test_csv_that_is_misquoted_in_one_place_is_read_on(tmp_path: Path) -> None:
    data = b'prompt,x\n"say "hi" to me",1\ngood,2\n"open,3\nlost,4\n"end" or so,5\nlast,6\n'
    rows = scanned(tmp_path, "rows.csv", data)
    assert outcomes(rows) == ["!", "good", "!", "last"]
    assert "line 2 cannot be parted into fields" in (rows[0].error or "")
    assert "lines 4 to 6, taken as one row," in (rows[2].error or "")


@pytest.mark.parametrize("more", [b"]", b' {"prompt": "b"}', b"\n\n[1]", b"\x00"])
def test_what_follows_a_json_array_is_told(tmp_path: Path, more: bytes) -> None:
    rows = scanned(tmp_path, "rows.json", b'[{"prompt": "a"}] ' + more)
    assert outcomes(rows) == ["a", "!"]
    assert "goes on after its closing bracket" in (rows[1].error or "")
    assert outcomes(scanned(tmp_path, "good.json", b'\xef\xbb\xbf [{"prompt": "a"}]\n \n')) == ["a"]


def test_csv_field_longer_than_the_csv_modules_own_limit(tmp_path: Path) -> None:
    rows = scanned(tmp_path, "rows.csv", b"prompt\n" + b"x" * 300_000 + b"\n")
    assert [len(row.prompt.text or "") for row in rows if row.prompt] == [300_000]


def test_csv_with_a_column_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="more than one column named 'prompt'"):
        scanned(tmp_path, "rows.csv", b"prompt,prompt\na,b\n")


def test_csv_without_the_prompt_column(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no prompt found in the columns 'a', 'b'"):
        scanned(tmp_path, "rows.csv", b"a,b\n1,2\n")


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    rows = scanned(tmp_path, "rows.txt", b"good\nb\xe9\ngood\n")
    assert outcomes(rows) == ["good", "!", "good"]
    assert "byte 2 is 0xe9" in (rows[1].error or "")


def test_peek_reads_no_more_than_it_needs(tmp_path: Path) -> None:
    """The 101st row is broken; nobody looks at it."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes((GOOD + b"\n") * 100 + b'{"text": ')
    assert peek(Source("s", (path,))).column == "prompt"


def test_first_rows_that_are_broken_do_not_hide_the_shape(tmp_path: Path) -> None:
    assert outcomes(scanned(tmp_path, "rows.jsonl", b"oops\n" + GOOD)) == ["!", "good"]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be opened: No such file"):
        peek(Source("s", (tmp_path / "gone.jsonl",)))
