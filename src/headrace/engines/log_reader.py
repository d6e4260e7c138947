"""A whole log as a stream of events, whatever it is wrapped in, in memory that does not grow with it.

Read in bounded pieces: a line of gigabytes keeps its first 256 KiB, the rest is skipped. Compressed logs
(.gz) are read as they are, up to a limit. Lines that a container runtime cut are joined again.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headrace.engines.failure_entry import Failure
from headrace.engines.failures import SHARED_IDS, Catalogue
from headrace.engines.llamacpp import logs as llamacpp_logs
from headrace.engines.log_event import LogEvent
from headrace.engines.log_lines import MAX_LINE_CHARACTERS, LogLine, second_header, uncoloured, unwrap
from headrace.engines.log_shapes import Shapes
from headrace.engines.sglang import failures as sglang_failures
from headrace.engines.sglang import logs as sglang_logs
from headrace.engines.vllm import failures as vllm_failures
from headrace.engines.vllm import logs as vllm_logs
from headrace.errors import InputError, UsageError, nearest

Parse = Callable[[LogLine], LogEvent | None]
PARSERS: dict[str, Parse] = {
    "sglang": sglang_logs.parse,
    "vllm": vllm_logs.parse,
    "llamacpp": llamacpp_logs.parse,
}
CATALOGUES: dict[str, Catalogue] = {
    "sglang": sglang_failures.CATALOGUE,
    "vllm": vllm_failures.CATALOGUE,
    "llamacpp": llamacpp_logs.CATALOGUE,
}
_FAMILIES = (*sglang_logs.FAMILIES, *vllm_logs.FAMILIES)
_BLOCK_BYTES = 1 << 17
_YEAR_SECONDS = 366 * 86_400  # of 2000, the year that stands for an untold one
_HALF_YEAR = _YEAR_SECONDS / 2
_MAX_CUT_LINES = 64  # hosts whose cut lines wait for their rest at once
_SETTLED = 200  # events of one engine, and none of another, after which lines without a header are its own
_TROUBLE = frozenset(("failure", "warning", "note", "traceback"))
_ANYBODYS = SHARED_IDS | {"exception", ""}
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
    """

    line_bytes: int = MAX_LINE_CHARACTERS
    unpacked_bytes: int = 16 << 30


def explained(failure: str, engine: str | None = None) -> Failure | None:
    """Returns the catalogue's entry for `LogEvent.failure`: meaning, mend, the constraint it speaks for.

    None for an id that no catalogue has (`exception`, "", one of another version of headrace).
    """
    asked = [CATALOGUES[engine]] if engine in CATALOGUES else list(CATALOGUES.values())
    return next((found for each in asked if (found := each.by_id.get(failure))), None)


def parse_line(text: str, engine: str | None = None) -> LogEvent | None:
    """Returns what one line says, tried for one engine or for each in turn; None where it says nothing known.

    Never raises, whatever the text.
    """
    return LogReader(io.BytesIO(), engine if engine in PARSERS else None).parse(text)


class LogReader:
    """Iterates over the events of a log, once.

    After the iteration (and during it) `lines`, `understood`, `overlong`, `kinds` and `engines` count, and
    `notes` says what was cut or damaged.

    Args:
        source: a file, or an open binary stream; a stream is not closed.
        engine: `sglang`, `vllm` or `llamacpp` where it is known; else each line finds out.

    Raises:
        InputError: the file cannot be opened, or is of a compression that is not read.
        UsageError: no engine of that name.
    """

    def __init__(
        self, source: Path | BinaryIO, engine: str | None = None, limits: Limits | None = None
    ) -> None:
        if engine is not None and engine not in PARSERS:
            raise UsageError(
                f"no log of the engine '{engine}' can be read.{nearest(engine, PARSERS)} "
                f"Known: {', '.join(PARSERS)}."
            )
        self.lines = 0
        self.overlong = 0
        self.kinds: Counter[str] = Counter()
        self.engines: Counter[str] = Counter()
        self.notes: list[str] = []
        self._source = source
        self._limits = limits or Limits()
        self._order = list(PARSERS) if engine is None else [engine]
        self._told = engine or ""
        self._shapes = Shapes(_FAMILIES)
        self._in_trace = False
        self._stopping = False
        self._pieces: dict[str, tuple[LogLine, io.StringIO]] = {}
        self._last_seconds: float | None = None
        self._years_seconds = 0.0

    @property
    def understood(self) -> int:
        """Lines that said something known, so far."""
        return self.kinds.total()

    def __iter__(self) -> Iterator[LogEvent]:
        if isinstance(self._source, Path):
            try:
                with self._source.open("rb") as stream:
                    yield from self._events(stream)
            except OSError as error:
                raise InputError(
                    f"the log {self._source} cannot be read: {error.strerror or error}. "
                    "Check the path and its rights."
                ) from error
        else:
            yield from self._events(self._source)

    def _events(self, stream: BinaryIO) -> Iterator[LogEvent]:
        for text in self._texts(stream):
            found = self._met(text)
            if found is not None:
                yield found
                continue
            rest = text
            # two ranks wrote at once: a second header within the line begins a line of its own
            while rest[:3] == "[20" and (at := second_header(rest)):
                found = self._read(rest[:at])
                if found is not None:
                    yield found
                rest = rest[at:]
            found = self._read(rest)
            if found is not None:
                yield found

    def parse(self, text: str) -> LogEvent | None:
        """Returns what the next line says. Never raises."""
        return self._met(text) or self._read(text)

    def _met(self, text: str) -> LogEvent | None:
        """What a line of a shape met before says, None for any other."""
        if self._pieces:
            return None
        if "\x1b" in text:
            text = uncoloured(text)
        told = self._shapes.read(text)
        if told is None:
            return None
        found, has_year = told
        engine = found.engine
        if engine != self._order[0]:
            return None
        self._in_trace = False
        if not has_year and found.time_seconds is not None:
            found.time_seconds = self._in_order(found.time_seconds)
        self.lines += 1
        self.kinds[found.kind] += 1
        self.engines[engine] += 1
        return found

    def _read(self, text: str) -> LogEvent | None:
        """What a line says, read the long way."""
        self.lines += 1
        found = self._parse(text)
        if found is not None:
            self.kinds[found.kind] += 1
            if found.engine:
                self.engines[found.engine] += 1
        return found

    def _parse(self, text: str) -> LogEvent | None:
        if "\x1b" in text:
            text = uncoloured(text)
        line = unwrap(text)
        if line.continues or self._pieces:
            whole = self._joined(line)
            if whole is None:
                return None
            line = whole
        found = self._tried(line)
        if found is None:
            if self._in_trace and line.message[:1] in (" ", "\t"):
                return LogEvent("traceback", self._main_engine(), line.time_seconds, line.ranks)
            return None
        if found.kind == "traceback" or "Traceback (most recent call last)" in found.text:
            self._in_trace = True
        elif line.message[:1] not in (" ", "\t"):
            self._in_trace = False
        if found.kind == "shutdown":
            self._stopping = True
        elif found.failure == "child_failed" and self._stopping:  # asked to stop, the children are stopped
            found.kind, found.failure = "shutdown", ""
        elif found.kind == "ready":
            self._stopping = False
        if found.engine == self._order[0] and not self._pieces:
            self._shapes.learn(text, line.message, found, line.has_year)
        if found.time_seconds is not None and not line.has_year:
            found.time_seconds = self._in_order(found.time_seconds)
        return found

    def _tried(self, line: LogLine) -> LogEvent | None:
        """The line as the first engine that knows it reads it; the engine of the log is tried first."""
        order = self._order
        settled = not line.engine and len(self.engines) == 1 and self.understood > _SETTLED
        anybodys: LogEvent | None = None
        for index, engine in enumerate(order[:1] if settled else order):
            found = PARSERS[engine](line)
            if found is None:
                continue
            if not (line.engine or line.process) and found.failure in _ANYBODYS and found.kind in _TROUBLE:
                # what any program might say tells nothing of the engine; another one may know it better
                if anybodys is None or anybodys.failure in ("", "exception"):
                    found.engine = self._main_engine()
                    anybodys = found
                continue
            if index:
                order.insert(0, order.pop(index))
            return found
        return anybodys

    def _main_engine(self) -> str:
        return max(self.engines, key=self.engines.__getitem__, default=self._told)

    def _in_order(self, seconds: float) -> float:
        """The time of a line without a year, a year later once the log has passed New Year."""
        seconds += self._years_seconds
        last = self._last_seconds
        if last is not None:
            if last - seconds > _HALF_YEAR:
                self._years_seconds += _YEAR_SECONDS
                seconds += _YEAR_SECONDS
            elif self._years_seconds and seconds - last > _HALF_YEAR:  # a late line of the old year
                return seconds - _YEAR_SECONDS
        self._last_seconds = seconds
        return seconds

    def _joined(self, line: LogLine) -> LogLine | None:
        """The line with the pieces before it; None while it goes on."""
        if line.host not in self._pieces:
            if not line.continues:
                return line
            if len(self._pieces) >= _MAX_CUT_LINES:
                self._pieces.clear()  # names without end: none of them is a container
            self._pieces[line.host] = (line, io.StringIO())
        first, text = self._pieces[line.host]
        if text.tell() < MAX_LINE_CHARACTERS:
            text.write(line.message)
        if line.continues:
            return None
        del self._pieces[line.host]
        if first.engine:  # the header was whole in the first piece
            first.message = text.getvalue()
            return first
        whole = unwrap(text.getvalue())
        whole.time_seconds = first.time_seconds if first.time_seconds is not None else whole.time_seconds
        whole.host = whole.host or first.host
        return whole

    def _texts(self, stream: BinaryIO) -> Iterator[str]:
        """The lines as text, none longer than the limit."""
        opened = io.BufferedReader(_Raw(stream), 1 << 16)
        begin = opened.peek(8)[:8]
        for magic, name in _OTHER_FORMATS.items():
            if begin.startswith(magic):
                raise InputError(f"the log is compressed with {name}, which is not read. Unpack it first.")
        if begin[:2] == b"\x1f\x8b":
            with gzip.open(opened) as unpacked:
                yield from self._gzip_texts(_Raw(unpacked, self._limits.unpacked_bytes))
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
        limit = self._limits.line_bytes
        if len(block) > limit:
            self.overlong += sum(1 for line in lines if len(line) > limit)
            lines = [line[:limit] for line in lines]
        return lines

    def _gzip_texts(self, raw: _Raw) -> Iterator[str]:
        try:
            yield from self._plain_texts(io.BufferedReader(raw, 1 << 16))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            self.notes.append(f"the compressed log is damaged or cut after {raw.count:,} bytes: {error}")
        if raw.count >= self._limits.unpacked_bytes:
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

    def __init__(self, stream: BinaryIO | gzip.GzipFile, limit: int | None = None) -> None:
        self._stream = stream
        self._limit = limit
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        wanted = len(view) if self._limit is None else min(len(view), self._limit - self.count)
        read = getattr(self._stream, "read1", self._stream.read)
        data = (read(wanted) or b"") if wanted > 0 else b""
        view[: len(data)] = data
        self.count += len(data)
        return len(data)
