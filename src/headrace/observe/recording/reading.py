"""Reads a recording back into columns: whole members only, within limits, whoever wrote it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from headrace.errors import InputError
from headrace.observe.observation import Column
from headrace.observe.recording.form import (
    ABOUT,
    About,
    Answers,
    GpuSamples,
    InFlight,
    Line,
    Samples,
    Segment,
    Values,
    segments,
)
from headrace.observe.recording.writer import read_about

MAX_MEMBER_BYTES = 256 * 1024 * 1024  # one flush of 1,000 servers is 1 MB
MAX_VALUES = 200_000_000  # 1.6 GB of columns: 1,000 servers for 90 minutes at 1 Hz
_CHUNK = 4 * 1024 * 1024


@dataclass(slots=True)
class Columns:
    """Columns of one server or GPU; times count from the recording's beginning."""

    seconds: Column
    columns: dict[str, Column]


@dataclass(slots=True)
class Job:
    """What a recording of `headrace run` knows of answers. Times count from the recording's beginning.

    Attributes:
        answers: source → columns `sent`, `seconds`, `tokens`, and the server of each row.
        in_flight: the last look: when, limit, rows pending, and source → server → when sent.
        at_seconds: of that look; None where there was none.
        in_flight_totals: requests in flight at every look.
        runs_seconds: when each run began: what was in flight before it was lost.
    """

    answers: dict[str, dict[str, Column]] = field(default_factory=dict)
    in_flight: InFlight | None = None
    at_seconds: float | None = None
    in_flight_totals: list[int] = field(default_factory=list)
    runs_seconds: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Recording:
    """A recording, read: gauges, counters and ranks by server, GPUs, and the job's side where it has one."""

    about: About
    gauges: dict[str, Columns] = field(default_factory=dict)
    counters: dict[str, Columns] = field(default_factory=dict)
    ranks: dict[str, Columns] = field(default_factory=dict)
    gpus: dict[str, Columns] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    job: Job = field(default_factory=Job)
    notes: list[str] = field(default_factory=list)


def is_recording(folder: Path) -> bool:
    """Whether a folder holds a recording."""
    return (folder / ABOUT).is_file()


def read_recording(folder: Path) -> Recording:
    """All that is on the disk of a recording, which may still be written to.

    Raises:
        InputError: it is none, is damaged before its end, or larger than the limits.
    """
    found = Recording(read_about(folder))
    parts = _Parts()
    for path in segments(folder):
        offset = 0.0
        for line in _lines(path, found.notes):
            if isinstance(line, Segment):
                offset = line.wall - found.about.began_wall
                found.job.runs_seconds.append(offset)
            else:
                parts.add(line, offset, found)
    parts.into(found)
    return found


class _Parts:
    """What was read so far, as chunks."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[str, str], list[tuple[Column, Mapping[str, Values]]]] = {}
        self._answers: dict[str, list[tuple[Column, Column, Column]]] = {}
        self._values = 0

    def add(self, line: Samples | GpuSamples | Answers | InFlight, offset: float, found: Recording) -> None:
        if isinstance(line, Samples):
            times = np.array(line.seconds, dtype=np.float64) + offset
            for kind, columns in (
                ("gauges", line.gauges),
                ("counters", line.counters),
                ("ranks", line.ranks),
            ):
                self._chunk(kind, line.name, times, columns)
            if line.missed:
                found.missed[line.name] = found.missed.get(line.name, 0) + line.missed
        elif isinstance(line, GpuSamples):
            self._chunk("gpus", line.name, np.array(line.seconds, dtype=np.float64) + offset, line.columns)
        elif isinstance(line, Answers):
            if len({len(line.sent), len(line.seconds), len(line.tokens)}) == 1:
                row = (np.array(line.sent) + offset, np.array(line.seconds), np.array(line.tokens, float))
                self._answers.setdefault(line.source, []).append(row)
                self._values += 3 * len(line.sent)
        else:
            found.job.at_seconds = line.at + offset
            found.job.in_flight_totals.append(
                sum(len(sent) for by_server in line.sent.values() for sent in by_server.values())
            )
            shifted = {
                source: {server: [at + offset for at in sent] for server, sent in by_server.items()}
                for source, by_server in line.sent.items()
            }
            found.job.in_flight = InFlight(line.at + offset, line.limit, line.pending, shifted)
        if self._values > MAX_VALUES:
            raise InputError(
                f"the recording holds more than {MAX_VALUES:,} values; record fewer servers or with a longer "
                "--every."
            )

    def _chunk(self, kind: str, name: str, times: Column, columns: Mapping[str, Values]) -> None:
        if len(times):
            self._chunks.setdefault((kind, name), []).append((times, columns))
            self._values += len(times) * len(columns)

    def into(self, found: Recording) -> None:
        for (kind, name), chunks in self._chunks.items():
            getattr(found, kind)[name] = _joined(chunks)
        for source, rows in self._answers.items():
            sent, seconds, tokens = (np.concatenate([row[place] for row in rows]) for place in range(3))
            found.job.answers[source] = {"sent": sent, "seconds": seconds, "tokens": tokens}


def _joined(chunks: list[tuple[Column, Mapping[str, Values]]]) -> Columns:
    seconds = np.concatenate([times for times, _ in chunks])
    words = dict.fromkeys(word for _, columns in chunks for word in columns)
    columns = {word: np.full(len(seconds), np.nan) for word in words}
    at = 0
    for times, told in chunks:
        end = at + len(times)
        for word, values in told.items():
            if not isinstance(values, list) or len(values) == len(times):
                columns[word][at:end] = np.array(values, dtype=np.float64)
        at = end
    order = np.argsort(seconds, kind="stable")
    later = np.concatenate(([True], np.diff(seconds[order]) > 0))  # two writers never share a moment
    kept = order[later]
    return Columns(seconds[kept], {word: values[kept] for word, values in columns.items()})


def _lines(path: Path, notes: list[str]) -> Iterator[Line]:
    """The lines of one segment, member by member; a torn end is left out."""
    decoder = msgspec.json.Decoder(Line)
    try:
        with path.open("rb") as stream:
            rest = b""
            while True:
                member, rest = _member(stream.read, rest)
                if member is None:
                    if rest:
                        notes.append(f"{path.name}: the last flush is not whole, and is left out.")
                    return
                for text in member.split(b"\n"):
                    if text:
                        yield decoder.decode(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}. Check the disk.") from None
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        notes.append(f"{path.name}: damaged, read up to there: {str(error)[:100]}")


def _member(read: object, begin: bytes) -> tuple[bytes | None, bytes]:
    """One whole gzip member and what was read beyond it; (None, rest) where there is no whole one."""
    unpacker = zlib.decompressobj(31)
    found = bytearray()
    data = begin
    while True:
        if not data:
            data = read(_CHUNK)  # type: ignore[operator]
            if not data:
                return None, bytes(found)
        found += unpacker.decompress(data, MAX_MEMBER_BYTES + 1 - len(found))
        if len(found) > MAX_MEMBER_BYTES:
            raise InputError(f"a flush of more than {MAX_MEMBER_BYTES:,} bytes: no headrace wrote this.")
        if unpacker.eof:
            return bytes(found), unpacker.unused_data
        data = unpacker.unconsumed_tail
