"""Servers by what a Prometheus server has stored of them: `prometheus:http://host:9090?match=job="sglang"`.

    match  label matchers, joined by commas, as in a query; none takes all
    since  for `diagnose`: how far back, 1h by default;  step: between two samples, 15s by default

Families of all known engines are asked for, one query each; histograms' buckets stay there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

import msgspec

from headrace.clock import Clock
from headrace.engines.llamacpp import metrics as llamacpp
from headrace.engines.load import Fetch
from headrace.engines.metrics import Page, add_up
from headrace.engines.sglang import metrics as sglang
from headrace.engines.vllm import metrics as vllm
from headrace.errors import UnreachableError, UsageError
from headrace.net.redact import redact, without_user
from headrace.observe.observation import Observation, ServerObservation
from headrace.observe.recording.form import ServerAbout
from headrace.observe.recording.writer import RecordingWriter
from headrace.observe.track import Track

PREFIX = "prometheus:"
_ENGINES = {"sglang": sglang.FAMILIES, "vllm": vllm.FAMILIES, "llamacpp": llamacpp.FAMILIES}
_ENGINE_LABELS = {"sglang": sglang.RANK_LABELS, "vllm": vllm.RANK_LABELS, "llamacpp": ("rank",)}
_ADDED = frozenset({"__name__", "instance", "job"})  # labels that Prometheus adds to what a server says
_MATCH = re.compile(
    r'[A-Za-z_]\w*\s*(?:=|!=|=~|!~)\s*"(?:[^"\\]|\\.)*"(?:\s*,\s*[A-Za-z_]\w*\s*(?:=|!=|=~|!~)\s*"(?:[^"\\]|\\.)*")*$'
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)$")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
MAX_POINTS = 11_000  # of one series in one answer: Prometheus refuses more


@dataclass(frozen=True, slots=True)
class Asked:
    """A Prometheus source as named: the server's base URL, matchers, and the range."""

    base: str
    match: str
    since_seconds: float
    step_seconds: float


def parse_source(text: str) -> Asked:
    """What `prometheus:URL?…` asks for. Raises UsageError for what it cannot be."""
    parts = urlsplit(text.removeprefix(PREFIX))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"'{text[:120]}' names no server: write prometheus:http://host:9090?match=job=\"sglang\"."
        )
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    unknown = sorted(asked.keys() - {"match", "since", "step"})
    if unknown:
        raise UsageError(f"prometheus: knows match, since and step, got '{unknown[0][:40]}'.")
    match = asked.get("match", "").strip()
    if match and not _MATCH.match(match):
        raise UsageError(f"prometheus: match takes label matchers like job=\"sglang\", got '{match[:80]}'.")
    since, step = _seconds(asked.get("since", "1h"), "since"), _seconds(asked.get("step", "15s"), "step")
    if since / step > MAX_POINTS:
        raise UsageError(
            f"prometheus: since ÷ step is {since / step:,.0f} samples, at most {MAX_POINTS:,}: ask a larger "
            "step."
        )
    base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    return Asked(base, match, since, step)


def queries(match: str) -> Iterator[tuple[str, str]]:
    """(engine, query) for every engine: its families, without the buckets of histograms."""
    more = f",{match}" if match else ""
    for engine in _ENGINES:
        yield engine, f'{{__name__=~"{engine}[:_].+",__name__!~".+_bucket"{more}}}'


async def read_range(asked: Asked, fetch: Fetch, clock: Clock) -> Observation:
    """The servers over the range, one per `instance`.

    Raises:
        UnreachableError: the Prometheus server does not answer, or knows none of them.
    """
    end = clock.wall()
    start = end - asked.since_seconds
    servers: list[ServerObservation] = []
    answered = False
    for engine, query in queries(asked.match):
        path = (
            f"/api/v1/query_range?query={quote(query)}&start={start:.3f}&end={end:.3f}"
            f"&step={asked.step_seconds:g}"
        )
        result = _result(await fetch(path))
        answered = answered or result is not None
        for instance, pages in sorted(_pages(engine, result or [], "values").items()):
            track = Track()
            for at, page in sorted(pages.items()):
                track.add(at - start, page)
            seen = track.reduced()
            servers.append(
                ServerObservation(
                    name=instance,
                    engine=engine,
                    model=next((page.model for page in track.pages if page.model), None),
                    seconds=seen.seconds,
                    columns=seen.columns,
                    readings=seen.readings,
                    capacities=seen.capacities,
                    by_rank=seen.by_rank,
                    window=seen.window,
                    events=tuple(seen.events),
                    notes=tuple(seen.notes),
                    missing=(
                        "settings, the GPU and the version: Prometheus stores none; give --flags, --gpu.",
                    ),
                )
            )
    shown = redact(without_user(asked.base))
    if not answered:
        raise UnreachableError(f"{shown} does not answer /api/v1/query_range. Is it a Prometheus server?")
    if not servers:
        raise UnreachableError(
            f"{shown} has stored no family of a known engine in that range. Check match, or raise since."
        )
    return Observation(servers=tuple(servers), source=f"{PREFIX}{shown}")


class PrometheusSource:
    """Its newest samples, recorded beside or instead of the servers themselves."""

    def __init__(self, asked: Asked, fetch: Fetch) -> None:
        self._asked, self._fetch = asked, fetch

    async def sample(self, writer: RecordingWriter) -> None:
        """One instant query per engine; each instance is a server."""
        at = writer.at()
        for engine, query in queries(self._asked.match):
            result = _result(await self._fetch(f"/api/v1/query?query={quote(query)}")) or []
            for instance, pages in _pages(engine, result, "value").items():
                page = pages[max(pages)]
                writer.add(instance, at, page)
                writer.about(
                    instance,
                    ServerAbout(engine=engine, model=page.model, names=page.names, ranks=page.ranks),
                )


def _pages(engine: str, result: list[Any], key: str) -> dict[str, dict[float, Page]]:
    """Instance → time → its page, of a vector (`value`) or matrix (`values`)."""
    found: dict[str, dict[float, list[tuple[str, dict[str, str], float]]]] = {}
    families = _ENGINES[engine]
    for series in result:
        labels = series.get("metric") if isinstance(series, Mapping) else None
        if not isinstance(labels, Mapping):
            continue
        name = str(labels.get("__name__", ""))
        name = name if name in families else name.replace("_", ":", 1)
        if name not in families:
            continue
        kept = {str(key): str(value) for key, value in labels.items() if key not in _ADDED}
        points = series.get(key)
        by_time = found.setdefault(redact(str(labels.get("instance", "?"))[:200]), {})
        for point in [points] if key == "value" else points or []:
            try:
                at, value = float(point[0]), float(point[1])
            except (TypeError, ValueError, IndexError, KeyError):
                continue
            if math.isfinite(at):
                by_time.setdefault(at, []).append((name, kept, value))
    labels_of = _ENGINE_LABELS[engine]
    return {
        instance: {at: _page(engine, rows, families, labels_of) for at, rows in by_time.items()}
        for instance, by_time in found.items()
        if by_time
    }


def _page(
    engine: str, rows: list[tuple[str, dict[str, str], float]], families: Any, labels: tuple[str, ...]
) -> Page:
    page = add_up(rows, families, labels)
    return sglang.settle(page) if engine == "sglang" else page


def _result(body: bytes | None) -> list[Any] | None:
    try:
        told = msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    data = told.get("data") if isinstance(told, dict) and told.get("status") == "success" else None
    result = data.get("result") if isinstance(data, dict) else None
    return result if isinstance(result, list) else None


def _seconds(text: str, name: str) -> float:
    found = _DURATION.match(text)
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"prometheus: {name} takes a duration like 15s, 1h or 2d, got '{text[:40]}'.")
    return float(found[1]) * _SECONDS[found[2]]
