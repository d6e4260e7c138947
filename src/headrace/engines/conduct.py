"""How an engine admits requests and where it tells what: all of one that `diagnose` may know."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

from headrace.engines.failure_entry import Failure


@dataclass(frozen=True, slots=True)
class Conduct:
    """One engine's ways.

    Attributes:
        keeps_reserve: its scheduler holds tokens back for what running requests may still make.
        slots_are_cap: it runs as many as it has slots, and nothing else caps it.
        load_told_at: where running and queued requests are read.
        cap_told_at: where the cap on running requests is told.
        hits_told_at: where cached and prompt tokens are told.
    """

    keeps_reserve: bool
    slots_are_cap: bool
    load_told_at: str
    cap_told_at: str
    hits_told_at: str


_CONDUCT = {
    "sglang": Conduct(
        True,
        False,
        "/v1/loads",
        "the start line with max_running_requests=, or /v1/loads",
        "cached ÷ prompt tokens: #cached-token of the prefill lines",
    ),
    "vllm": Conduct(
        False, False, "/metrics", "--max-num-seqs of the launch line", "the prefix hit rate: the stats line"
    ),
    "llamacpp": Conduct(
        True, True, "/slots", "--parallel of the launch line", "cached tokens: timings of the answers"
    ),
}
_ANY = Conduct(True, False, "/metrics", "the launch line's own limit", "the prefix hit rate: the stats line")


def conduct(engine: str | None) -> Conduct:
    """Returns the ways of an engine; of one that is not known, what holds for most."""
    return _CONDUCT.get(engine or "", _ANY)


def meaning_of(engine: str | None, id: str) -> Failure | None:
    """Returns the failure catalogue's entry of an event, None where there is none."""
    return _entries(engine or "").get(id)


@lru_cache(maxsize=8)
def _entries(engine: str) -> dict[str, Failure]:
    if engine not in _CONDUCT:
        return {}
    try:
        module = import_module(f"headrace.engines.{engine}.failures")
    except ModuleNotFoundError:
        return {}
    entries: dict[str, Failure] = module.CATALOGUE.by_id
    return entries
