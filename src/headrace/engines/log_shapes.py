"""The lines that fill logs, read in one go: whole lines of a shape met before, as one pattern.

A server prints a handful of shapes all day: a header, `key: value` pairs whose numbers alone change, or
uvicorn's record of a request; perhaps within Docker's JSON or behind kubectl's time stamp. Each shape is
learned from a line that was read the long way (`log_lines`, `engines/*/logs`), and only where the pattern
says of that line exactly what the long way said. A line that fits no shape goes the long way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from headrace.engines.log_event import NO_RANKS, NOTHING, LogEvent, Value
from headrace.engines.log_lines import unwrap
from headrace.engines.log_times import instant
from headrace.engines.log_troubles import request_path

_MAX_SHAPES = 24  # of one wrapping
_MAX_CHARACTERS = 4096  # of a line with a shape
_HEADER = (  # a process, then SGLang's header, vLLM's, or none; its meaning is looked up by its text
    r"((?:\([^()\n]{1,140}\) )?"
    r"(?:\[20[^\]]{17,90}\] |INFO (?:20\d\d-)?\d\d-\d\d [\d:.,]{8,18} \[[\w./-]{1,120}\.py:\d{1,6}\] |))"
)
_ISO = r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)"
_WRAPPINGS: Final = {  # first character → before the header, behind the message
    "{": (
        r'\{"log":"',
        r'\\n","stream":"std(?:err|out)","time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z"\}',
    ),
    "2": (rf"{_ISO}(?: std(?:err|out) F)? ", ""),
    "p": (rf"\[(pod/[^\]\s]{{1,250}})\] {_ISO}(?: std(?:err|out) F)? ", ""),
    "": ("", ""),
}
_WHOLE, _DECIMAL = r"(\d{1,15})", r"(\d{1,15}\.\d{1,15})"
_NUMBER = re.compile(r"(?:(\d{1,15})|\d{1,15}\.\d{1,15})(%|[ ][A-Za-z/]{1,12})?")
_BARE_NUMBER = re.compile(r"\d{1,15}\.\d{1,15}")
_SWITCHES: Mapping[str, float] = {"True": 1.0, "False": 0.0}
_REQUEST = (
    r'INFO:     [^\s"\\]{1,58} - "([A-Z]{1,16}) ([^\s"\\?]{1,200})(?:\?[^\s"\\]{0,2000})?'
    r'(?: HTTP/[\d.]{1,4})?" '
    r"(\d{3})(?: [A-Za-z -]{0,40})?"
)
_MAX_TRIALS = 200  # lines that turned out to be of no shape, after which none is tried any more


@dataclass(frozen=True, slots=True)
class Family:
    """Lines of pairs that one engine prints.

    Attributes:
        begin: how the message begins; its group, if it has one, is the number of the engine.
        words: key → word of the event.
    """

    engine: str
    kind: str
    begin: re.Pattern[str]
    words: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the groups of one alternative mean; their numbers are those of the whole pattern."""

    engine: str
    kind: str
    text: str
    places: Mapping[str, tuple[int, float]]  # word → group, divisor
    constants: Mapping[str, Value]
    number_at: int = 0  # group of the engine's number
    request_at: int = 0  # group of a request's method; path and status follow


class Measures(Mapping[str, Value]):
    """The numbers of a line, each read from its text when it is asked for: most never are."""

    __slots__ = ("_found", "_shape")

    def __init__(self, found: re.Match[str], shape: _Shape) -> None:
        self._found, self._shape = found, shape

    def __getitem__(self, word: str) -> Value:
        place = self._shape.places.get(word)
        if place is None:
            return self._shape.constants[word]
        value = float(self._found[place[0]])
        return value / 100 if place[1] != 1 else value

    def among(self, words: frozenset[str]) -> dict[str, Value]:
        """Returns those of the numbers whose word is asked for."""
        shape, found = self._shape, self._found
        some: dict[str, Value] = {
            word: float(found[group]) / divisor
            for word, (group, divisor) in shape.places.items()
            if word in words
        }
        some.update((word, value) for word, value in shape.constants.items() if word in words)
        return some

    def __contains__(self, word: object) -> bool:
        return word in self._shape.places or word in self._shape.constants

    def __iter__(self) -> Iterator[str]:
        yield from self._shape.places
        yield from self._shape.constants

    def __len__(self) -> int:
        return len(self._shape.places) + len(self._shape.constants)

    def __repr__(self) -> str:
        return repr(dict(self))


class _Wrapping:
    """The shapes met within one wrapping, as one pattern of alternatives."""

    def __init__(self, first: str) -> None:
        self._first = first
        self._before, self._behind = _WRAPPINGS[first]
        self._header_at = re.compile(self._before).groups + 1
        self._iso_at = {"2": 1, "p": 2}.get(first, 0)
        self._shapes: list[_Shape] = []
        self._by_last: dict[int, tuple[_Shape, str, str, int, int]] = {}
        self._match = re.compile(r"(?!)").fullmatch

    @property
    def is_full(self) -> bool:
        return len(self._shapes) >= _MAX_SHAPES

    def empty(self) -> _Wrapping:
        """The same wrapping without shapes."""
        return _Wrapping(self._first)

    def add(self, shape: _Shape) -> None:
        """Takes a shape, whose groups are numbered from 1, into the pattern."""
        self._shapes.append(shape)
        at = self._header_at
        alternatives = []
        self._by_last = {}
        for each in self._shapes:
            text = each.text.replace('"', r"\\\"") if self._first == "{" else each.text
            alternatives.append(f"{text}()")  # the empty group tells which alternative it was
            placed = replace(
                each,
                places={word: (at + group, divisor) for word, (group, divisor) in each.places.items()},
                number_at=each.number_at and at + each.number_at,
                request_at=each.request_at and at + each.request_at,
            )
            at += re.compile(text).groups + 1
            self._by_last[at] = placed, placed.kind, placed.engine, placed.number_at, placed.request_at
        whole = f"{self._before}{_HEADER}(?:{'|'.join(alternatives)})[., ]{{0,3}}{self._behind}"
        self._match = re.compile(whole).fullmatch

    def read(self, text: str) -> tuple[LogEvent, bool] | None:
        """Returns the event and whether its time has a year; None for a line of no known shape."""
        found = self._match(text)
        if found is None:
            return None
        shape, kind, engine, number_at, request_at = self._by_last[found.lastindex or 0]
        header = _header(found[self._header_at], found[number_at] if number_at else "")
        if header is None:
            return None
        of_header, seconds, has_year, ranks, host = header
        if at := self._iso_at:
            seconds, has_year = instant(found[at], found[at + 1], found[at + 2]), True
            if at == 2:
                host = host or found[1]
        elif self._first == "{":
            at = text.rfind('"', 0, -2)
            seconds, has_year = instant(text[at + 1 : at + 20], text[at + 21 : -3]), True
        values: Mapping[str, Value]
        if request_at:
            if of_header != ("sglang" if engine == "sglang" else ""):
                return None
            method, path, status = found.group(request_at, request_at + 1, request_at + 2)
            values = {"method": method, "path": request_path(path), "status": float(status)}
        elif of_header and of_header != engine:
            return None
        else:
            values = Measures(found, shape)
        return LogEvent(kind, engine, seconds, ranks, values, NOTHING, "", "", host), has_year


# engine, seconds, whether they were written with a year, ranks, host
_Header = tuple[str, float | None, bool, Mapping[str, int], str]


@lru_cache(maxsize=4096)
def _header(text: str, number: str) -> _Header | None:
    """The header's meaning, as `unwrap` reads it; None where it is more, or less, than a header."""
    line = unwrap(text + "x")
    if line.message != "x" or line.level not in ("", "INFO"):
        return None
    ranks = {**line.ranks, "engine": int(number)} if number else line.ranks
    return line.engine, line.time_seconds, line.has_year, _shared(tuple(ranks.items())), line.host


@lru_cache(maxsize=4096)
def _shared(ranks: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """The same mapping for the same ranks."""
    return dict(ranks) if ranks else NO_RANKS


class Shapes:
    """Learns shapes, and reads lines by them.

    Args:
        families: the lines of pairs to look for.
    """

    def __init__(self, families: tuple[Family, ...]) -> None:
        self._families = families
        self._wrappings = {first: _Wrapping(first) for first in _WRAPPINGS}
        self._bare = self._wrappings[""]
        self._trials = 0

    def read(self, text: str) -> tuple[LogEvent, bool] | None:
        """Returns what the line says, and whether its time was written with a year.

        None for a line of no known shape.
        """
        return self._wrapping(text).read(text)

    def learn(self, text: str, message: str, found: LogEvent, has_year: bool) -> None:
        """Takes the shape of a line that was read the long way, if it is one of pairs or of a request."""
        if found.unknown or found.text or found.failure or not found.values:
            return
        wrapping = self._wrapping(text)
        if wrapping.is_full or self._trials >= _MAX_TRIALS or len(text) > _MAX_CHARACTERS:
            return
        shape = self._shape(message, found)
        if shape is None or wrapping.read(text) is not None:
            return
        self._trials += 1
        trial = wrapping.empty()
        trial.add(shape)
        if trial.read(text) == (found, has_year):
            wrapping.add(shape)

    def _wrapping(self, text: str) -> _Wrapping:
        first = text[:1]
        if first == "[":
            return self._wrappings["p"] if text[1:5] == "pod/" else self._bare
        if first == "{":
            return self._wrappings["{"]
        return self._wrappings["2"] if first == "2" else self._bare

    def _shape(self, message: str, found: LogEvent) -> _Shape | None:
        if found.kind == "access":
            return _Shape(found.engine, "access", _REQUEST, {}, {}, request_at=1)
        for family in self._families:
            if family.kind == found.kind and family.engine == found.engine:
                begin = family.begin.match(message)
                if begin is not None:
                    return _pairs_shape(family, begin, message)
        return None


def _pairs_shape(family: Family, begin: re.Match[str], message: str) -> _Shape | None:
    pattern: list[str] = []
    places: dict[str, tuple[int, float]] = {}
    constants: dict[str, Value] = {}
    group = begin.re.groups
    for part in message[begin.end() :].rstrip("., ").split(", "):
        if _BARE_NUMBER.fullmatch(part):  # a list's further values
            pattern.append(r"\d{1,15}\.\d{1,15}")
            continue
        key, _, raw = part.partition(": ")
        word = family.words.get(key)
        if word is None or word in places or word in constants:
            return None
        if raw in _SWITCHES:
            constants[word] = _SWITCHES[raw]
            pattern.append(re.escape(part))
            continue
        found = _NUMBER.fullmatch(raw)
        if found is None:
            return None
        group += 1
        unit = found[2] or ""
        places[word] = (group, 100.0 if unit == "%" else 1.0)
        pattern.append(f"{re.escape(key)}: {_WHOLE if found[1] else _DECIMAL}{re.escape(unit)}")
    return _Shape(
        family.engine,
        family.kind,
        _literal(begin) + ", ".join(pattern),
        places,
        constants,
        number_at=1 if begin.re.groups else 0,
    )


def _literal(begin: re.Match[str]) -> str:
    """The beginning as a pattern: literal, but for the engine's number."""
    if not begin.re.groups:
        return re.escape(begin[0])
    first, last = begin.span(1)
    start, text = begin.start(), begin.string
    return f"{re.escape(text[start:first])}(\\d{{1,6}}){re.escape(text[last : begin.end()])}"
