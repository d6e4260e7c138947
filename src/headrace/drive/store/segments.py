"""Open segments: durable rows on their way into a shard, as plain JSON lines of `Row`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from headrace.drive.store.rows import Row
from headrace.durable.disk import AppendFile, Disk

CHUNK_BYTES = 1 << 20

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Row)


def encode_rows(rows: Sequence[Row]) -> bytes:
    """The rows as JSON lines. Lone surrogates, which have no UTF-8, become U+FFFD."""
    try:
        return _encoder.encode_lines(rows)
    except UnicodeEncodeError:
        mended = (_without_surrogates(msgspec.to_builtins(row)) for row in rows)
        return b"".join(_encoder.encode(row) + b"\n" for row in mended)


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value


def decode_rows(lines: bytes) -> list[Row]:
    """The rows of whole JSON lines. Raises msgspec.DecodeError when one of them is not a row."""
    return _decoder.decode_lines(lines)


def line_chunks(path: Path, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Whole lines between two offsets, about a megabyte at a time; an unfinished last line is left out."""
    with path.open("rb") as file:
        yield from open_line_chunks(file.fileno(), begin, end)


def open_line_chunks(descriptor: int, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
    """As `line_chunks`, of an open file; its position is not used."""
    rest = b""
    at = begin
    while end is None or at < end:
        block = os.pread(descriptor, CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - at), at)
        if not block:
            return
        at += len(block)
        cut = block.rfind(b"\n") + 1
        if cut:
            yield rest + block[:cut]
            rest = block[cut:]
        else:
            rest += block


class OpenSegment:
    """The segment that rows are appended to.

    Attributes:
        length: bytes known to be on the disk; `rows` as many rows.
    """

    def __init__(self, disk: Disk, number: int, path: Path, *, length: int = 0, rows: int = 0) -> None:
        """Opens the segment, made if missing, and cuts it to `length`."""
        self.number = number
        self.path = path
        self.length = length
        self.rows = rows
        self._disk = disk
        self._file: AppendFile | None = None
        self._torn = False

    def append(self, lines: bytes, rows: int) -> None:
        """Returns when the lines are on the disk. After an OSError nothing of them counts; call it again."""
        if self._file is None:
            self._file = self._disk.append_open(self.path)
            self._torn = self._file.length != self.length
            self._disk.fsync_folder(self.path.parent)
        if self._torn:
            self._file.truncate(self.length)
            self._torn = False
        try:
            self._file.write(lines)
            self._file.fsync()
        except OSError:
            self._torn = True
            self._file.truncate(self.length)  # gives the room back at once
            self._torn = False
            raise
        self.length += len(lines)
        self.rows += rows

    def close(self) -> None:
        """Closes the file; its rows stay."""
        if self._file is not None:
            self._file.close()
            self._file = None


class Torn(msgspec.Struct, frozen=True):
    """What the end of a segment holds beyond what the ledger vouches for.

    Attributes:
        rows: whole rows, in order.
        good_length: bytes up to the end of the last whole row.
    """

    rows: list[Row]
    good_length: int


def read_tail(path: Path, begin: int) -> Torn:
    """The whole rows from offset `begin` on, up to the first line that is not a row."""
    rows: list[Row] = []
    at = begin
    for chunk in line_chunks(path, begin):
        try:
            rows += decode_rows(chunk)
            at += len(chunk)
        except msgspec.DecodeError:
            for line in chunk.splitlines(keepends=True):
                try:
                    rows.append(_decoder.decode(line))
                except msgspec.DecodeError:
                    return Torn(rows, at)
                at += len(line)
    return Torn(rows, at)
