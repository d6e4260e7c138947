"""A whole log as a stream of events, whatever it is wrapped in, in memory that does not grow with it.

Lines that a container runtime cut are joined again; lines of a shape met before are read in one go.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from headrace.engines.failure_entry import Failure
from headrace.engines.failures import SHARED_IDS, Catalogue
from headrace.engines.llamacpp import logs as llamacpp_logs
from headrace.engines.log_event import LogEvent
from headrace.engines.log_lines import MAX_LINE_CHARACTERS, LogLine, second_header, uncoloured, unwrap
from headrace.engines.log_shapes import Shapes
from headrace.engines.log_texts import Limits, Texts
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
_YEAR_SECONDS = 366 * 86_400  # of 2000, the year that stands for an untold one
_HALF_YEAR = _YEAR_SECONDS / 2
_MAX_CUT_LINES = 64  # hosts whose cut lines wait for their rest at once
_SETTLED = 200  # events of one engine, and none of another, after which lines without a header are its own
_TROUBLE = frozenset(("failure", "warning", "note", "traceback"))
_ANYBODYS = SHARED_IDS | {"exception", ""}


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
        self.kinds: Counter[str] = Counter()
        self.engines: Counter[str] = Counter()
        self._source = source
        self._texts = Texts(limits or Limits())
        self._lines = 0
        self._order = list(PARSERS) if engine is None else [engine]
        self._told = engine or ""
        self._shapes = Shapes(_FAMILIES)
        self._in_trace = False
        self._stopping = False
        self._pieces: dict[str, tuple[LogLine, io.StringIO]] = {}
        self._last_seconds: float | None = None
        self._years_seconds = 0.0

    @property
    def lines(self) -> int:
        """Lines read so far, empty ones too."""
        return self._lines + self._texts.blank

    @property
    def overlong(self) -> int:
        """Lines of which only the beginning was read, so far."""
        return self._texts.overlong

    @property
    def notes(self) -> list[str]:
        """What was cut or damaged, for people."""
        return self._texts.notes

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
        for text in self._texts.read(stream):
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
        self._lines += 1
        self.kinds[found.kind] += 1
        self.engines[engine] += 1
        return found

    def _read(self, text: str) -> LogEvent | None:
        """What a line says, read the long way."""
        self._lines += 1
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
