"""CSV and TSV: the first line names the columns, every value is text; a field may hold newlines."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from headrace.drive.sources.file_rows import ROW_BYTES_LIMIT, DamagedFile, FileRow, too_long
from headrace.drive.sources.lines import split_lines
from headrace.errors import InputError

# what Python's csv module says of a quoted field that goes on to the end of the file, or over the limit
_TO_THE_END = ("unexpected end of data", "field larger than field limit")


def separated_rows(delimiter: str) -> Callable[[Path, Iterator[bytes]], Iterator[FileRow]]:
    """The reader of files whose fields are parted by `delimiter`; `place` is the line where a row ends."""

    def rows(path: Path, blocks: Iterator[bytes]) -> Iterator[FileRow]:
        # The csv module's limit is one for the process; 128 KB, its default, is less than a long prompt.
        csv.field_size_limit(ROW_BYTES_LIMIT)
        reader = csv.reader(_text_lines(path, blocks), delimiter=delimiter, strict=True)
        header = _header(path, reader)
        if header is None:
            return
        while True:
            begin = reader.line_num + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                if not str(error).startswith(_TO_THE_END):
                    # the reader goes on with the next line
                    yield FileRow(b"", _misquoted(begin, reader.line_num, error), reader.line_num, 0, 0)
                    continue
                raise DamagedFile(
                    f'{path.name} stops making sense at line {begin:,} ({error}): a quote (") that begins in '
                    "that row is not closed, and the lines after it are not read. Mend the line"
                ) from error
            if fields is None:
                return
            if fields:
                yield _row(header, fields, reader.line_num)

    return rows


def _misquoted(begin: int, end: int, error: csv.Error) -> str:
    where = f"line {begin:,}" if begin == end else f"lines {begin:,} to {end:,}, taken as one row,"
    return f'{where} cannot be parted into fields ({error}). Double the quotes within a quoted field ("")'


def _text_lines(path: Path, blocks: Iterator[bytes]) -> Iterator[str]:
    for number, (_, line, length) in enumerate(split_lines(blocks), 1):
        if line is None:
            raise DamagedFile(f"{path.name}, line {number:,}: {too_long(length)}. The rest is not read")
        yield line.decode(errors="surrogateescape") + "\n"  # what is not UTF-8 is told row by row


def _header(path: Path, reader: Iterator[list[str]]) -> list[str] | None:
    try:
        header = next((fields for fields in reader if fields), None)
    except csv.Error as error:
        raise InputError(f"{path}: its first line is not one of column names ({error}). Mend it") from error
    if header is None:
        return None
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path} has more than one column named {', '.join(map(repr, twice))}. Rename them")
    return header


def _row(header: list[str], fields: list[str], line: int) -> FileRow:
    if len(fields) > len(header):
        error = (
            f"the row has {len(fields)} fields, the first line names {len(header)} columns. "
            'Put fields that hold the separator in quotes (")'
        )
        return FileRow(b"", error, line, 0, 0)
    try:
        raw = msgspec.json.encode(dict(zip(header, fields, strict=False)))
    except UnicodeEncodeError:
        return FileRow(b"", "the row is not UTF-8. Convert the file: iconv -t UTF-8", line, 0, 0)
    if len(raw) > ROW_BYTES_LIMIT:
        return FileRow(b"", too_long(len(raw)), line, 0, 0)
    return FileRow(raw, None, line, 0, len(raw))
