"""JSON documents: an array of rows, an object with a `data` or `rows` array, or objects one after another.

Rows are cut out by following strings and brackets over a sliding buffer, so that neither the document
nor its nesting is ever held whole, and a row that does not parse spoils only itself.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path

from headrace.drive.sources.file_rows import ROW_BYTES_LIMIT, DamagedFile, FileRow, too_long
from headrace.drive.sources.lines import UTF8_BOM

WRAPPERS = (b'"data"', b'"rows"')

# A whole string, an opening quote whose string is not all there yet, or one structural byte.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{},:]', re.DOTALL)
_SPACE = b" \t\r\n"


def json_document_rows(path: Path, blocks: Iterator[bytes]) -> Iterator[FileRow]:
    """Yields the rows of a JSON document, each on one line; `place` is the 1-based item.

    Raises:
        DamagedFile: the document ends within a row or before its closing bracket.
    """
    buffer = _Buffer(path, blocks)
    start = buffer.first_byte()
    if start == b"[":
        if (yield from _array_rows(buffer, 1)):
            _refuse_more(buffer)
    elif start == b"{":
        inside = _wrapped_array(buffer)
        if inside is None:
            yield from _object_rows(buffer)
        else:
            buffer.drop(inside)
            yield from _array_rows(buffer, 1)
    elif start:
        raise DamagedFile(
            f"{path.name} begins with {start!r}, which is neither a JSON array nor an object. "
            "Name the file by its format: .jsonl, .json, .csv, .tsv, .parquet or .txt"
        )


class _Buffer:
    """The part of the document that is in memory: grows by blocks at its end, is dropped at its start."""

    def __init__(self, path: Path, blocks: Iterator[bytes]) -> None:
        self.path = path
        self.data = b""
        self._blocks = blocks

    def grow(self) -> bool:
        """Takes at least one more block, and as much as is held; False at the end of the file."""
        wanted = max(len(self.data), 1)
        more: list[bytes] = []
        for block in self._blocks:
            more.append(block)
            wanted -= len(block)
            if wanted <= 0:
                break
        self.data = b"".join((self.data, *more))
        return bool(more)

    def drop(self, count: int) -> None:
        self.data = self.data[count:]

    def first_byte(self) -> bytes:
        """The first byte that is neither a byte order mark nor white space; b"" when there is none."""
        if not self.data:
            self.grow()
        self.data = self.data.removeprefix(UTF8_BOM).lstrip(_SPACE)
        while not self.data and self.grow():
            self.data = self.data.lstrip(_SPACE)
        return self.data[:1]


def _array_rows(buffer: _Buffer, place: int) -> Generator[FileRow, None, bool]:
    """The items of the array whose opening bracket the buffer starts with; then whether all were read."""
    start = position = 1  # start: of the item being collected
    depth = 0  # within the item
    while True:
        token = _TOKEN.search(buffer.data, position)
        word = token.group() if token else b""
        if token is None or word == b'"':
            if len(buffer.data) - start > ROW_BYTES_LIMIT:
                yield _over_limit(place)
                return False
            position = (token.start() if token else len(buffer.data)) - start
            buffer.drop(start)
            start = 0
            if not buffer.grow():
                item = buffer.data.strip(_SPACE)
                if depth == 0 and item.endswith(b"}"):
                    yield _row(item, place)
                    place += 1
                raise _cut_off(buffer, place)
            continue
        position = token.end()
        if word in (b"{", b"["):
            depth += 1
        elif depth == 0 and word in (b",", b"]"):
            item = buffer.data[start : token.start()].strip(_SPACE)
            if item or word == b",":
                yield _row(item, place)
                place += 1
            if word == b"]":
                buffer.drop(position)
                return True
            start = position
        elif word in (b"}", b"]"):
            depth = max(depth - 1, 0)


def _refuse_more(buffer: _Buffer) -> None:
    """Raises DamagedFile when something follows the closing bracket of the whole document."""
    more = buffer.first_byte()
    if more:
        begins = buffer.data[:40].decode(errors="replace")
        raise DamagedFile(
            f"{buffer.path.name} goes on after its closing bracket, with {begins!r}: that is not read. "
            "Put all rows into one array, or write JSON lines (.jsonl)"
        )


def _object_rows(buffer: _Buffer) -> Iterator[FileRow]:
    """Objects one after another, with or without newlines between them."""
    place = 1
    position = depth = 0
    while True:
        token = _TOKEN.search(buffer.data, position)
        word = token.group() if token else b""
        if token is None or word == b'"':
            if len(buffer.data) > ROW_BYTES_LIMIT:
                yield _over_limit(place)
                return
            position = token.start() if token else len(buffer.data)
            if not buffer.grow():
                if buffer.data.strip(_SPACE):
                    raise _cut_off(buffer, place)
                return
            continue
        position = token.end()
        if word in (b"{", b"["):
            depth += 1
        elif word in (b"}", b"]"):
            depth = max(depth - 1, 0)
            if depth == 0:
                yield _row(buffer.data[:position].strip(_SPACE), place)
                place += 1
                buffer.drop(position)
                position = 0


def _wrapped_array(buffer: _Buffer) -> int | None:
    """Where the `data` or `rows` array of the first object begins, or None when it is a row itself.

    Looks no further than the row limit. When the object ends within the first block and another
    follows, the file is JSON lines under another name, whatever their columns are called.
    """
    position = depth = 0
    key = b""
    found: int | None = None
    while True:
        token = _TOKEN.search(buffer.data, position)
        word = token.group() if token else b""
        if token is None or word == b'"':
            if found is not None:
                return found
            position = token.start() if token else len(buffer.data)
            if len(buffer.data) > ROW_BYTES_LIMIT or not buffer.grow():
                return None
            continue
        if word == b"[" and depth == 1 and key in WRAPPERS and found is None:
            found = token.start()
        position = token.end()
        if word in (b"{", b"["):
            depth += 1
        elif word in (b"}", b"]"):
            depth -= 1
            if depth <= 0:
                follows = buffer.data[position:].lstrip(_SPACE)[:1]
                return None if follows else found
        if depth == 1 and word != b":":
            key = word if word.startswith(b'"') else b""


def _over_limit(place: int) -> FileRow:
    return FileRow(b"", too_long(ROW_BYTES_LIMIT) + "; the rest of the file is not read", place, 0, 0)


def _row(item: bytes, place: int) -> FileRow:
    if len(item) > ROW_BYTES_LIMIT:
        return FileRow(b"", too_long(ROW_BYTES_LIMIT), place, 0, 0)
    # Between tokens a newline is white space, within a string it is an error anyway.
    raw = item.replace(b"\n", b" ")
    return FileRow(raw, None, place, 0, len(raw))


def _cut_off(buffer: _Buffer, place: int) -> DamagedFile:
    return DamagedFile(
        f"{buffer.path.name} ends within item {place:,} or before its closing bracket: it is cut off. "
        "Fetch or write the file again"
    )
