"""A stream of bytes as lines of text: compressed or not, UTF-8 or UTF-16, in memory that stays small.

Read in bounded blocks: a line of gigabytes keeps its first 256 KiB, the rest is skipped. Compressed logs
(.gz) are read as they are, up to a limit.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from headrace.engines.log_lines import MAX_LINE_CHARACTERS
from headrace.errors import InputError

_BLOCK_BYTES = 1 << 17
_OTHER_FORMATS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a log is read.

    Attributes:
        line_bytes: kept of one line; what is beyond is skipped.
        unpacked_bytes: read out of a compressed log at most; a note says where that was not all.
        unpacked_freely_bytes: beyond these a log that unpacks to more than `largest_ratio` times its size is
            no log, and reading ends.
    """

    line_bytes: int = MAX_LINE_CHARACTERS
    unpacked_bytes: int = 16 << 30
    unpacked_freely_bytes: int = 64 << 20
    largest_ratio: int = 250  # gzip packs logs 10 to 100 times; at its limit of 1,030 stand bombs


class Texts:
    """Reads lines; `overlong` and `blank` count, `notes` says what was cut or damaged."""

    def __init__(self, limits: Limits) -> None:
        self.overlong = 0
        self.blank = 0
        self.notes: list[str] = []
        self._limits = limits

    def read(self, stream: BinaryIO) -> Iterator[str]:
        """Yields the lines as text, none longer than the limit, those that are empty left out.

        Raises:
            InputError: the log is compressed in a way that is not read.
        """
        packed = _Raw(stream)
        opened = io.BufferedReader(packed, 1 << 16)
        begin = opened.peek(8)[:8]
        for magic, name in _OTHER_FORMATS.items():
            if begin.startswith(magic):
                raise InputError(f"the log is compressed with {name}, which is not read. Unpack it first.")
        if begin[:2] == b"\x1f\x8b":
            with gzip.open(opened) as unpacked:
                yield from self._gzip_texts(_Unpacked(unpacked, packed, self._limits))
        elif begin[:2] in (b"\xff\xfe", b"\xfe\xff"):  # a PowerShell redirection writes UTF-16
            yield from self._wide_texts(io.TextIOWrapper(opened, "utf-16", "replace", newline="\n"))
        else:
            yield from self._plain_texts(opened)

    def _plain_texts(self, stream: BinaryIO) -> Iterator[str]:
        """The lines of UTF-8, read in blocks; of a line longer than the limit, its beginning."""
        limit = self._limits.line_bytes
        read = getattr(stream, "read1", stream.read)
        begun: list[bytes] = []  # pieces of a line that has not ended yet
        size = 0
        while block := read(_BLOCK_BYTES):
            end = block.rfind(b"\n") + 1
            if not end:
                if size <= limit:
                    begun.append(block)
                size += len(block)
                continue
            begun.append(block[:end])
            whole = b"".join(begun)
            begun = [block[end:]] if end < len(block) else []
            size_before, size = size, len(block) - end
            first_end = whole.find(b"\n")
            if max(first_end, size_before) > limit:
                self.overlong += 1
                yield whole[:limit].decode("utf-8", "replace")
                whole = whole[first_end + 1 :]
            if whole:
                yield from self._split(whole.decode("utf-8", "replace"))
        if begun:
            if size > limit:
                self.overlong += 1
            yield b"".join(begun)[:limit].decode("utf-8", "replace").rstrip("\r")

    def _split(self, block: str) -> list[str]:
        """The lines of a block that ends with one."""
        lines = block[:-1].split("\n")
        if "\r" in block:
            lines = [line.rstrip("\r") for line in lines]
        if "\n\n" in block or "" in lines:
            told = [line for line in lines if line]
            self.blank += len(lines) - len(told)
            lines = told
        limit = self._limits.line_bytes
        if len(block) > limit:
            self.overlong += sum(1 for line in lines if len(line) > limit)
            lines = [line[:limit] for line in lines]
        return lines

    def _gzip_texts(self, raw: _Unpacked) -> Iterator[str]:
        try:
            yield from self._plain_texts(io.BufferedReader(raw, 1 << 16))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.notes.append(f"the compressed log is damaged or cut after {raw.count:,} bytes: {error}")
        if raw.is_full():
            self.notes.append(
                f"the compressed log was read up to {raw.count:,} bytes, the limit; unpack it to read all"
            )

    def _wide_texts(self, stream: io.TextIOWrapper) -> Iterator[str]:
        limit = self._limits.line_bytes
        while text := stream.readline(limit):
            if len(text) == limit and text[-1] != "\n":
                self.overlong += 1
                while (rest := stream.readline(limit)) and rest[-1] != "\n":
                    pass
            yield text.rstrip("\r\n")


class _Raw(io.RawIOBase):
    """Any binary stream (a pipe, BytesIO) as one that can be buffered and peeked into."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = stream
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        read = getattr(self._stream, "read1", self._stream.read)
        wanted = self._wanted(len(view))
        data = (read(wanted) or b"") if wanted > 0 else b""
        view[: len(data)] = data
        self.count += len(data)
        return len(data)

    def _wanted(self, size: int) -> int:
        return size


class _Unpacked(_Raw):
    """What comes out of a compressed stream, up to the limits."""

    def __init__(self, stream: gzip.GzipFile, packed: _Raw, limits: Limits) -> None:
        super().__init__(stream)
        self._packed, self._limits = packed, limits

    def is_full(self) -> bool:
        limits = self._limits
        if self.count >= limits.unpacked_bytes:
            return True
        return self.count > max(limits.unpacked_freely_bytes, limits.largest_ratio * self._packed.count)

    def _wanted(self, size: int) -> int:
        return 0 if self.is_full() else min(size, self._limits.unpacked_bytes - self.count)
