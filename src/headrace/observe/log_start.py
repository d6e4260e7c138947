"""What one start of one server printed, before it is put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.engines.log_event import Value
from headrace.observe.log_series import Series

Ranks = tuple[int, ...]
PREFILL_GAUGES = frozenset(("running", "queued", "kv_usage", "state_usage", "swa_usage"))


@dataclass(slots=True)
class Start:
    """One start of one server, up to the next."""

    series: dict[int, dict[Ranks, Series]] = field(default_factory=dict)
    settings: dict[str, Value] = field(default_factory=dict)
    capacities: dict[str, dict[int, tuple[Ranks, float]]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    is_labelled: bool = False  # whether lines name their data-parallel rank
    is_whole: bool = False  # whether a line speaks of all ranks together
    prefills: dict[int, Series] = field(default_factory=dict)  # stands in where no Decode line was pasted
    met: dict[int, tuple[Mapping[str, int], Series]] = field(default_factory=dict)  # by the ranks' identity

    def has_load(self) -> bool:
        return bool(self.prefills) or any(
            series.samples for inner in self.series.values() for series in inner.values()
        )
