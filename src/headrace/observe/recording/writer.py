"""Writes a recording: samples are collected, and flushed as one gzip member: on the disk when it returns."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock

import msgspec

from headrace import __version__
from headrace.clock import Clock
from headrace.durable.disk import AppendFile, Disk
from headrace.engines.metrics import Page
from headrace.errors import InputError
from headrace.observe.recording.form import (
    ABOUT,
    SCHEMA,
    SEGMENT_BYTES,
    VERSION,
    About,
    Answers,
    GpuSamples,
    InFlight,
    Line,
    Samples,
    Segment,
    ServerAbout,
    Values,
    segment_name,
    segments,
)

_LEVEL = 1  # of zlib: 5 times smaller at a tenth of the time of level 6
_GZIP = 31  # window bits with a gzip head


class RecordingWriter:
    """One recording. `add…` is cheap and does no I/O; `flush` does all of it, and may run in a thread.

    Args:
        folder: made if missing; a recording that is there is gone on with, in a new segment.
        every_seconds: between two samples of a server.
        sources: of a job: source → max_tokens.

    Raises:
        InputError: the folder holds something that is no recording of this version.
    """

    def __init__(
        self,
        folder: Path,
        disk: Disk,
        clock: Clock,
        *,
        every_seconds: float,
        sources: Mapping[str, int | None] | None = None,
    ) -> None:
        self._folder, self._disk, self._clock = folder, disk, clock
        self.began = clock.monotonic()  # the zero of this segment's times
        self._wall = clock.wall()
        disk.make_folder(folder)
        self._about = About(
            schema=SCHEMA,
            version=VERSION,
            headrace=__version__,
            began_wall=self._wall,
            every_seconds=every_seconds,
            sources=dict(sources) if sources is not None else None,
        )
        if (folder / ABOUT).exists():
            earlier = read_about(folder)
            self._about.began_wall = earlier.began_wall
            self._about.servers, self._about.gpus = earlier.servers, earlier.gpus
            if sources is None:
                self._about.sources = earlier.sources
        self._told = b""
        self._servers_seen: set[str] = set()
        self._number = len(segments(folder))
        self._file: AppendFile | None = None
        self._pages: dict[str, list[tuple[float, Page]]] = {}
        self._missed: dict[str, int] = {}
        self._gpus: dict[str, list[tuple[float, Mapping[str, float]]]] = {}
        self._lines: list[Answers | InFlight] = []
        self._flushing = Lock()  # a flush that was abandoned in its thread goes on to its end
        self.samples = 0  # of servers, written or to be

    @property
    def servers_seen(self) -> set[str]:
        """Servers of which this run has a sample."""
        return self._servers_seen

    @property
    def gpus_seen(self) -> set[str]:
        """GPUs of which the recording has a sample."""
        return set(self._about.gpus)

    def at(self) -> float:
        """Seconds since this writer began."""
        return self._clock.monotonic() - self.began

    def about(self, server: str, told: ServerAbout) -> None:
        """What a server told of itself; kept with the next flush."""
        self._about.servers[server] = told

    def add(self, server: str, seconds: float, page: Page) -> None:
        """One sample of a server."""
        self._pages.setdefault(server, []).append((seconds, page))
        self._servers_seen.add(server)
        self.samples += 1

    def missed(self, server: str) -> None:
        """A server did not answer this time."""
        self._missed[server] = self._missed.get(server, 0) + 1

    def add_gpu(self, name: str, device: str, seconds: float, values: Mapping[str, float]) -> None:
        """One sample of a GPU; `device` is its name as the driver says it."""
        self._about.gpus[name] = device
        self._gpus.setdefault(name, []).append((seconds, values))

    def add_line(self, line: Answers | InFlight) -> None:
        """Answers of a job, or what is in flight."""
        self._lines.append(line)

    def take(self) -> list[Line]:
        """What was collected since the last time; the writer forgets it."""
        found: list[Line] = []
        pages, self._pages = self._pages, {}
        missed, self._missed = self._missed, {}
        gpus, self._gpus = self._gpus, {}
        lines, self._lines = self._lines, []
        for name in dict.fromkeys((*pages, *missed)):
            rows = pages.get(name, [])
            found.append(
                Samples(
                    name=name,
                    seconds=[round(seconds, 3) for seconds, _ in rows],
                    gauges=_columns([page.gauges for _, page in rows]),
                    counters=_columns([page.counters for _, page in rows]),
                    ranks=_columns([_flat(page.by_rank) for _, page in rows]),
                    missed=missed.get(name, 0),
                )
            )
        for name, samples in gpus.items():
            found.append(
                GpuSamples(
                    name, [round(at, 3) for at, _ in samples], _columns([values for _, values in samples])
                )
            )
        return [*found, *lines]

    def flush(self, lines: Sequence[Line] | None = None) -> None:
        """Puts the lines (by default all that was collected) on the disk, and the head where it changed.

        Raises:
            OSError: the disk refuses; these lines are lost, the recording before them is whole.
        """
        with self._flushing:
            self._flush(self.take() if lines is None else lines)

    def _flush(self, lines: Sequence[Line]) -> None:
        told = msgspec.json.encode(self._about)
        if told != self._told:
            self._disk.write_atomic(self._folder / ABOUT, told)
            self._told = told
        if not lines:
            return
        if self._file is None or self._file.length >= SEGMENT_BYTES:
            self._next_segment()
        assert self._file is not None
        self._append(self._file, lines)

    def close(self) -> None:
        """Flushes and closes."""
        try:
            self.flush()
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _next_segment(self) -> None:
        if self._file is not None:
            self._file.close()
        self._number += 1
        self._file = self._disk.append_open(self._folder / segment_name(self._number))
        self._disk.fsync_folder(self._folder)
        self._append(self._file, [Segment(self._wall)])

    @staticmethod
    def _append(file: AppendFile, lines: Iterable[Line]) -> None:
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        before = file.length
        try:
            file.write(packer.compress(text) + packer.flush())
            file.fsync()
        except OSError:
            file.truncate(before)
            raise


def read_about(folder: Path) -> About:
    """The head of a recording. Raises InputError where it is none, or of a later version."""
    path = folder / ABOUT
    try:
        about = msgspec.json.decode(path.read_bytes(), type=About)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}. Name the recording's folder.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is no recording: {error}. Was it written by `headrace record`?") from None
    if about.schema != SCHEMA or about.version > VERSION:
        raise InputError(
            f"{path}: schema {about.schema[:40]} version {about.version}; this headrace reads "
            f"{SCHEMA} up to version {VERSION}. Read it with the version that wrote it, or a later one."
        )
    return about


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, Values]:
    """Rows of words as columns: one number where all are alike, None where a row lacks the word."""
    words = dict.fromkeys(word for row in rows for word in row)
    found: dict[str, Values] = {}
    for word in words:
        values = [row.get(word) for row in rows]
        first = values[0]
        if first is not None and values.count(first) == len(values):
            found[word] = _short(first)
        else:
            found[word] = [None if value is None else _short(value) for value in values]
    return found


def _flat(by_rank: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{word}/{rank}": value for word, ranks in by_rank.items() for rank, value in ranks.items()}


def _short(value: float) -> float:
    """Twelve digits: a counter of tokens stays whole, a sum of seconds keeps its microseconds."""
    return value if value == int(value) else float(f"{value:.12g}")
