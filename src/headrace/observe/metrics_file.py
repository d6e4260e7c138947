"""A saved /metrics page as an Observation: one look, of which only gauges and lifetime means can be told."""

from __future__ import annotations

from pathlib import Path

from headrace.engines.llamacpp.metrics import read_metrics as read_llamacpp
from headrace.engines.metrics import MAX_PAGE_BYTES, Page
from headrace.engines.sglang.metrics import read_metrics as read_sglang
from headrace.engines.vllm.metrics import read_metrics as read_vllm
from headrace.observe.observation import Observation, ServerObservation
from headrace.observe.track import Track

_PREFIXES = ("sglang:", "sglang_", "vllm:", "vllm_", "llamacpp:")
_MARKS = ("# HELP ", "# TYPE ")


def is_metrics_page(text: str) -> bool:
    """Whether most lines at the beginning of a text are those of a metrics page."""
    lines = [line for line in text.splitlines()[:200] if line.strip()]
    marked = sum(1 for line in lines if line.startswith((*_PREFIXES, *_MARKS)))
    return bool(lines) and marked > len(lines) / 2


def read_page_file(path: Path) -> bytes:
    """The beginning of a saved page, up to what is read of one."""
    with path.open("rb") as stream:
        return stream.read(MAX_PAGE_BYTES)


def read_metrics_page(page: bytes, name: str, version: str | None = None) -> Observation:
    """The Observation of one saved page."""
    found: tuple[tuple[str, Page], ...] = (
        ("sglang", read_sglang(page, version)),
        ("vllm", read_vllm(page)),
        ("llamacpp", read_llamacpp(page)),
    )
    engine, told = max(found, key=lambda pair: pair[1].seen)
    if not told.seen:
        return Observation(
            servers=(ServerObservation(name=name, missing=("all: no metric of a known engine is in it.",)),),
            source=name,
        )
    track = Track()
    track.add(0.0, told)
    seen = track.reduced()
    missing = ["rates over time: one page has none; save two, some seconds apart, or give the server's URL."]
    if "running" not in seen.readings:
        missing.append("running and queued requests: the page does not have them.")
    server = ServerObservation(
        name=name,
        engine=engine,
        engine_version=version,
        model=told.model,
        seconds=seen.seconds,
        columns=seen.columns,
        readings=seen.readings,
        capacities=seen.capacities,
        by_rank=seen.by_rank,
        window=seen.window,
        settings=dict(told.settings),
        notes=tuple(seen.notes),
        missing=tuple(missing),
    )
    return Observation(servers=(server,), source=name)
