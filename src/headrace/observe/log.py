"""A log as an Observation: a file, a paste, compressed or wrapped, of one server or of several mixed.

Lines are understood in `engines/`; here they are put together: ranks that say the same are counted once,
data-parallel ranks are added up, ramp and drain are left out, the start's lines become settings and sizes.
A log with several starts tells of the last one under load.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from headrace.engines.log_event import LogEvent
from headrace.engines.log_reader import LogReader
from headrace.net.redact import redact, without_user
from headrace.observe.log_merge import Merged, read_capacities
from headrace.observe.log_series import Series
from headrace.observe.log_settings import read_settings
from headrace.observe.log_start import PREFILL_GAUGES, Ranks, Start
from headrace.observe.observation import Event, Observation, ServerObservation
from headrace.observe.readings import READINGS, drop_low_cap
from headrace.quantities import Origin

MAX_HOSTS = 1024
MAX_RANKS = 1024  # of one server, and within one of its schedulers
MAX_EVENTS = 200  # distinct warnings kept
_TELLING = frozenset(  # kinds of lines that only one engine prints
    ("decode", "prefill", "stats", "speculation", "request", "settings", "capacity", "memory", "boot")
)
_DIGITS = re.compile(r"[0-9a-fA-F]*\d[0-9a-fA-F.:]*")
_ANSWERS = ("/generate", "/v1/", "/chat", "/completion")
_COUNTED = (("new_tokens", "prefill_tokens"), ("cached_tokens", "cached_tokens"))
_GAUGES = frozenset(word for word, meaning in READINGS.items() if not meaning.capacity) - {"preemptions"}
_GIB_TO_GB = 2**30 / 1e9


@dataclass(slots=True)
class _Host:
    """The lines of one host label ("" without one)."""

    name: str
    now: Start = field(default_factory=Start)
    loaded: Start | None = None  # the last start that had load
    starts: int = 1


class LogCollector:
    """Takes events one by one and tells what they come to.

    Args:
        data_parallel: ranks of the server, where another source tells; lines of some stand for all.
    """

    def __init__(self, data_parallel: int | None = None) -> None:
        self._data_parallel = data_parallel
        self._hosts: dict[str, _Host] = {}
        self._engines: Counter[str] = Counter()
        self._events: dict[str, Event] = {}
        self._first_seconds: float | None = None
        self._latest_seconds: float | None = None  # a line without a time came after it

    def take(self, event: LogEvent) -> None:
        """Adds one event."""
        kind = event.kind
        if kind in _TELLING:
            self._engines[event.engine] += 1
        if event.time_seconds is not None:
            self._latest_seconds = event.time_seconds
            if self._first_seconds is None:
                self._first_seconds = event.time_seconds
        host = self._hosts.get(event.host) or self._host(event.host)
        if kind == "decode":
            self._series(host.now, event).add(event.time_seconds, event.values)
        elif kind == "stats":
            series = self._series(host.now, event)
            if "engines" in event.values:
                host.now.is_whole = True
            if "preemptions" in event.values:
                series.count("retracted_requests", event.number("preemptions") or 0.0)
            series.add(event.time_seconds, event.values)
        elif kind == "prefill":
            self._prefill(host.now, event)
        elif kind in ("capacity", "memory"):
            self._sizes(host.now, event)
        elif kind == "settings":
            self._settings(host, event)
        elif kind == "boot":
            for word in ("version", "architecture", "kv_dtype", "mamba_cache_mode"):
                if isinstance(event.values.get(word), str):
                    host.now.words[word] = str(event.values[word])
        elif kind == "speculation":
            series = self._series(host.now, event)
            _average(series, event, ("accept_length", "accept_rate"))
        elif kind == "access":
            if _is_answer(event):
                self._series(host.now, event).count("answers", float(event.repeated))
        elif kind == "retraction":
            self._series(host.now, event).count("retracted_requests", event.number("retracted") or 1.0)
        elif kind == "request":
            series = self._series(host.now, event)
            _average(series, event, ("prompt_tokens", "output_tokens", "queue_seconds"))
        if event.failure or kind in ("warning", "failure"):
            self._note(event)

    # ── kinds of lines ────────────────────────────────────────────────────────────────────────────────────
    def _host(self, name: str) -> _Host:
        key = name if len(self._hosts) < MAX_HOSTS else ""
        return self._hosts.setdefault(key, _Host(key))

    def _series(self, start: Start, event: LogEvent) -> Series:
        # the reader gives equal ranks as one object
        met = start.met.get(id(event.ranks))
        if met is None or met[0] is not event.ranks:
            if len(start.met) >= MAX_RANKS:
                start.met.clear()
            met = start.met[id(event.ranks)] = (event.ranks, self._new_series(start, event))
        series = met[1]
        if event.time_seconds is not None:
            series.last_seconds = event.time_seconds
        return series

    @staticmethod
    def _new_series(start: Start, event: LogEvent) -> Series:
        outer, inner = _ranks(event)
        if outer not in start.ranks:
            if len(start.ranks) >= MAX_RANKS:
                outer = min(start.ranks)
            start.ranks.add(outer)
            start.is_labelled = start.is_labelled or "dp" in event.ranks or "engine" in event.ranks
        by_inner = start.series.get(outer)
        if by_inner is None:
            by_inner = start.series[outer] = {}
        series = by_inner.get(inner)
        if series is None:
            if len(by_inner) >= MAX_RANKS:
                return next(iter(by_inner.values()))
            series = by_inner[inner] = Series(words=_GAUGES)
        return series

    def _prefill(self, start: Start, event: LogEvent) -> None:
        series = self._series(start, event)
        counts = series.counts
        for word, total in _COUNTED:
            value = event.values.get(word)
            if isinstance(value, float):
                counts[total] = counts.get(total, 0.0) + value
        if series.samples:
            return  # Decode lines tell more
        outer, _ = _ranks(event)
        stand_in = start.prefills.get(outer)
        if stand_in is None and len(start.prefills) >= MAX_RANKS:
            return
        if stand_in is None:
            stand_in = start.prefills[outer] = Series(words=PREFILL_GAUGES)
        stand_in.add(event.time_seconds, event.values)

    def _sizes(self, start: Start, event: LogEvent) -> None:
        outer, inner = _ranks(event)
        if isinstance(event.values.get("kv_dtype"), str):
            start.words["kv_dtype"] = str(event.values["kv_dtype"])
        if isinstance(event.values.get("architecture"), str):
            start.words["architecture"] = str(event.values["architecture"])
        for word, value in event.values.items():
            if not isinstance(value, float):
                continue
            if word == "weights_gib":
                word, value = "weights_gb_per_rank", value * _GIB_TO_GB
            if word == "kv_pool_gib" and event.values.get("stage") == "profile":
                continue
            if word == "free_gib" and event.kind == "memory":
                continue
            known = start.capacities.setdefault(word, {})
            if outer not in known or inner <= known[outer][0]:
                known[outer] = (inner, value)

    @staticmethod
    def _settings(host: _Host, event: LogEvent) -> None:
        if host.now.has_load():  # it started again
            host.loaded, host.now = host.now, Start()
            host.starts += 1
        version = event.values.get("version")
        if isinstance(version, str):
            host.now.words["version"] = version
        host.now.settings.update({name: value for name, value in event.values.items() if name != "version"})

    def _note(self, event: LogEvent) -> None:
        severity = event.kind if event.kind in ("failure", "note") else "warning"
        text = redact(event.text)[:400]
        key = event.failure or f"{severity}: {_DIGITS.sub('#', text)[:100]}"
        known = self._events.get(key)
        seconds = event.time_seconds if event.time_seconds is not None else self._latest_seconds
        if known is None:
            if len(self._events) >= MAX_EVENTS:
                key, text = (
                    f"other_{severity}",
                    f"more than {MAX_EVENTS} kinds of lines; the rest is counted here",
                )
            known = self._events.get(key)
        if known is None:
            self._events[key] = Event(event.failure or key, severity, event.repeated, text, seconds, seconds)
        else:
            self._events[key] = replace(
                known,
                count=known.count + event.repeated,
                text=known.text or text,
                last_seconds=seconds,
            )

    # ── what it comes to ──────────────────────────────────────────────────────────────────────────────────
    def servers(self, name: str) -> tuple[ServerObservation, ...]:
        """One observation per host that shows load; one of all where none or a single one does."""
        engine = self._engines.most_common(1)[0][0] if self._engines else None
        starts = []
        for host in self._hosts.values():
            chosen = host.now if host.now.has_load() or host.loaded is None else host.loaded
            starts.append((host, chosen))
        loaded = [(host, start) for host, start in starts if start.has_load()]
        bare = [start for _, start in starts if not start.has_load()]
        if len(loaded) > 1 and _are_one_server([start for _, start in loaded]):
            for _, start in loaded[1:]:
                _add_ranks(loaded[0][1], start)
            del loaded[1:]
        if len(loaded) < 2:
            main = loaded[0][1] if loaded else Start()
            label = name
            for start in bare:
                _add_boot(main, start)
            again = max((host.starts for host, _ in starts), default=1)
            return (self._server(label, engine, main, again),)
        for _, start in loaded:
            for other in bare:
                _add_boot(start, other)
        return tuple(
            self._server(f"{name} ({host.name})" if host.name else name, engine, start, host.starts)
            for host, start in loaded
        )

    def _server(self, name: str, engine: str | None, start: Start, starts: int) -> ServerObservation:
        version = start.words.get("version")
        told = read_settings(engine, version, start.settings)
        notes = []
        if starts > 1:
            notes.append(f"the log holds {starts} starts; read is the last one under load.")
        ranks = max(told.data_parallel or 1, len(start.ranks))
        if start.is_labelled:
            ranks = max(ranks, self._data_parallel or 1)
        # lines of some ranks stand for all; a line without a rank speaks of the whole server
        lines_of = ranks if start.is_labelled and not start.is_whole else 1
        merged = Merged(start, lines_of, always_tells_retractions=engine == "sglang")
        readings, window = merged.readings()
        notes += merged.impossible()
        capacities = read_capacities(start, ranks)
        drop_low_cap(readings, capacities, notes)
        if engine == "vllm" and "attention_block_tokens" in capacities and "kv_capacity_tokens" in capacities:
            notes.append(
                "kv_capacity_tokens is the concurrency at the longest request × its length: blocks hold "
                "recurrent state too."
            )
        if merged.samples and not merged.has_times:
            notes.append(
                "the lines have no times: their order stands for them, and rates over time are missing."
            )
        missing = []
        if not readings:
            missing.append(
                "what runs and waits: the log has no Decode or statistics line; give one of a server under "
                "load."
            )
        first = self._first_seconds or 0.0
        events = tuple(
            replace(
                event,
                first_seconds=None if event.first_seconds is None else event.first_seconds - first,
                last_seconds=None if event.last_seconds is None else event.last_seconds - first,
            )
            for event in self._events.values()
        )
        return ServerObservation(
            name=name,
            engine=engine,
            engine_version=version,
            model=redact(without_user(told.model)) if told.model else None,
            gpus=told.gpus,
            tensor_parallel=told.tensor_parallel,
            data_parallel=told.data_parallel or (ranks if ranks > 1 else None),
            weights_dtype=told.weights_dtype,
            kv_dtype=told.kv_dtype or start.words.get("kv_dtype"),
            flags=redact(without_user(told.flags)),
            flags_origin=Origin.REPORTED,
            seconds=merged.times,
            columns={word: values for word, values in merged.gauges.items() if word in READINGS},
            readings=readings,
            capacities=capacities,
            by_rank=merged.by_rank(),
            window=window,
            events=events,
            settings=told.settings,
            notes=tuple(notes),
            missing=tuple(missing),
        )


def _are_one_server(starts: list[Start]) -> bool:
    """Whether hosts are nodes of one server: their lines name data-parallel ranks, and none twice."""
    ranks = [rank for start in starts for rank in start.ranks]
    return all(start.is_labelled for start in starts) and len(ranks) == len(set(ranks))


def _add_ranks(main: Start, other: Start) -> None:
    """Gives a start the ranks of another node of the same server."""
    main.series.update(other.series)
    main.prefills.update(other.prefills)
    main.ranks |= other.ranks
    for word, by_rank in other.capacities.items():
        main.capacities.setdefault(word, {}).update(by_rank)
    _add_boot(main, other)


def _add_boot(main: Start, other: Start) -> None:
    """Gives a start what another host's lines told of it, where it lacks that."""
    for name, value in other.settings.items():
        main.settings.setdefault(name, value)
    for name, by_rank in other.capacities.items():
        main.capacities.setdefault(name, by_rank)
    for name, word in other.words.items():
        main.words.setdefault(name, word)
    for rank, inner in other.series.items():
        main.series.setdefault(rank, inner)


def _average(series: Series, event: LogEvent, words: tuple[str, ...]) -> None:
    """Counts values of which only the mean is asked."""
    for word in words:
        if (value := event.number(word)) is not None:
            series.count(f"sum_{word}", value)
            series.count(f"times_{word}", 1.0)


def _is_answer(event: LogEvent) -> bool:
    """Whether an access line is a generation that succeeded."""
    if event.number("status") != 200 or event.values.get("method") != "POST":
        return False
    return str(event.values.get("path", "")).startswith(_ANSWERS)


def _ranks(event: LogEvent) -> tuple[int, Ranks]:
    """The scheduler (data-parallel rank, vLLM's engine number), and the ranks within it."""
    ranks = event.ranks
    if not ranks:
        return 0, ()
    outer = ranks.get("dp", ranks.get("engine", 0))
    return outer, tuple(ranks.get(name, 0) for name in ("pp", "attn_cp", "moe_dp", "tp", "ep", "dcp"))


def collect(
    events: Iterable[LogEvent], name: str, data_parallel: int | None = None
) -> tuple[ServerObservation, ...]:
    """The servers that a stream of events tells of; at least one, perhaps empty."""
    collector = LogCollector(data_parallel)
    for event in events:
        collector.take(event)
    return collector.servers(name)


def read_log(
    source: Path | BinaryIO, name: str, engine: str | None = None, data_parallel: int | None = None
) -> Observation:
    """The Observation of a log.

    Args:
        source: a file (.gz too), or an open binary stream such as standard input.
        name: what the observation calls it.
        engine: where it is known; else the lines tell.
        data_parallel: where it is known; else the lines' ranks and settings tell.

    Raises:
        InputError: the file cannot be opened, or is compressed in a way that is not read.
    """
    reader = LogReader(source, engine)
    servers = collect(reader, name, data_parallel)
    notes = list(reader.notes)
    if reader.overlong:
        notes.append(f"{reader.overlong} lines were longer than the limit and were cut.")
    if not reader.understood:
        notes.append(f"none of {reader.lines:,} lines is one that SGLang, vLLM or llama.cpp prints.")
    return Observation(servers=servers, notes=tuple(notes), source=name)
