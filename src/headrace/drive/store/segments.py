"""Open segments: durable rows on their way into a shard, as plain JSON lines of `Row`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace.drive.store.rows import Row
from headrace.durable.disk import AppendFile, Disk
from headrace.errors import StorageError

CHUNK_BYTES = 1 << 18  # small enough that the event loop is not kept waiting while one is decoded

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Row)


# what a server said in numbers, and the type that a reader will insist on
_NUMBERS: Mapping[str, Any] = {
    "prompt_tokens": int | None,
    "completion_tokens": int | None,
    "latency_seconds": float | None,
    "finished_at": float | None,
    "token_ids": list[int] | None,
}

# A row's numbers alone: reading them back costs little, since the long texts are passed over.
_numbers_decoder = msgspec.json.Decoder(msgspec.defstruct("Numbers", list(_NUMBERS.items()), gc=False))
ROWS_AT_ONCE = 32  # each such piece holds the interpreter for half a millisecond; the event loop goes between


def encode_rows(rows: Sequence[Row]) -> bytes:
    """The rows as JSON lines that `decode_rows` reads.

    Lone surrogates, which have no UTF-8, become U+FFFD; a number of a kind that its field cannot hold, null.
    """
    return b"".join(_encode_few(rows[at : at + ROWS_AT_ONCE]) for at in range(0, len(rows), ROWS_AT_ONCE))


def _encode_few(rows: Sequence[Row]) -> bytes:
    try:
        lines = _encoder.encode_lines(rows)
        _numbers_decoder.decode_lines(lines)  # a line that cannot be read back would spoil its whole segment
    except (UnicodeEncodeError, msgspec.DecodeError):
        mended = (_without_surrogates(msgspec.to_builtins(_with_sound_numbers(row))) for row in rows)
        return b"".join(_encoder.encode(row) + b"\n" for row in mended)
    return lines


def _with_sound_numbers(row: Row) -> Row:
    unsound: dict[str, None] = {}
    for name, kind in _NUMBERS.items():
        try:
            msgspec.convert(getattr(row, name), kind, strict=True)
        except msgspec.ValidationError:
            unsound[name] = None
    return msgspec.structs.replace(row, **unsound) if unsound else row


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


def stored_rows_of(lines: bytes, path: Path) -> list[Row]:
    """As `decode_rows`, of lines read back from the disk.

    Raises:
        StorageError: one of them is not a row; the disk has not kept what was synced.
    """
    try:
        return decode_rows(lines)
    except msgspec.DecodeError as error:
        raise StorageError(
            f"{path} holds a line that is no row of headrace ({error}): the disk has not kept what was "
            "written. Run the job again: such lines of open files are set aside, and their rows asked again"
        ) from error


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


def set_bad_lines_aside(disk: Disk, path: Path, length: int) -> int:
    """Takes the lines that are no rows out of the first `length` bytes of a segment; returns how many.

    They are kept beside it, in a file of its name with `.bad` behind. Where there is one, what follows
    `length` is cut off, so that the file is shorter than `length` and what it lacks is found out.
    """
    if not any(bad for _, bad in _sorted_lines(path, length)):
        return 0
    count = 0
    aside = disk.append_open(path.with_name(path.name + ".bad"))
    mended = path.with_name(path.name + ".tmp")
    file = disk.append_open(mended, fresh=True)
    try:
        for good, bad in _sorted_lines(path, length):
            file.write(good)
            for line in bad:
                aside.write(line.removesuffix(b"\n") + b"\n")
                count += 1
        aside.fsync()
        file.fsync()
    except OSError:
        disk.unlink(mended)
        raise
    finally:
        aside.close()
        file.close()
    disk.replace(mended, path)
    disk.fsync_folder(path.parent)
    return count


def _sorted_lines(path: Path, length: int) -> Iterator[tuple[bytes, list[bytes]]]:
    """Chunks of the lines that are rows, and the lines that are none; an unfinished last line is none."""
    at = 0
    for chunk in line_chunks(path, 0, length):
        at += len(chunk)
        try:
            decode_rows(chunk)
        except msgspec.DecodeError:
            good: list[bytes] = []
            bad: list[bytes] = []
            for line in chunk.split(b"\n")[:-1]:
                (good if _is_row(line) else bad).append(line + b"\n")
            yield b"".join(good), bad
        else:
            yield chunk, []
    if at < length:
        with path.open("rb") as file:
            file.seek(at)
            rest = file.read(length - at)
        if len(rest) == length - at:  # else the file is too short, which is found out without this
            yield b"", [rest]


def _is_row(line: bytes) -> bool:
    try:
        _decoder.decode(line)
    except msgspec.DecodeError:
        return False
    return True


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
            for line in chunk.split(b"\n")[:-1]:
                try:
                    rows.append(_decoder.decode(line))
                except msgspec.DecodeError:
                    return Torn(rows, at)
                at += len(line) + 1
    return Torn(rows, at)
