"""The baseline: the numbers of step 1, and the evidence that they are collected from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.observe.observation import ClientFacts, Observation, ServerObservation
from headrace.quantities import Origin, Quantity


@dataclass(frozen=True)
class Baseline:
    """What the fleet does, per server unless the name says `fleet` or `per_gpu`.

    Attributes:
        numbers: name → quantity; what cannot be told is absent.
        lower_bounds: names of rates that count finished requests only.
        assumptions: sentences, for the audit.
    """

    numbers: Mapping[str, Quantity]
    lower_bounds: frozenset[str] = frozenset()
    assumptions: tuple[str, ...] = ()
    window: str = ""
    notes: tuple[str, ...] = field(default=())

    def get(self, name: str) -> Quantity | None:
        return self.numbers.get(name)

    def value(self, name: str) -> float | None:
        """The plain number, None where it cannot be told."""
        found = self.numbers.get(name)
        return None if found is None else found.value

    def to_json(self) -> dict[str, Any]:
        """Returns window, every number with unit and origin, what is a lower bound, and what was assumed."""
        return {
            "window": self.window,
            "numbers": {name: quantity.to_json() for name, quantity in self.numbers.items()},
            "lower_bounds": sorted(self.lower_bounds),
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
        }


class Collected:
    """The baseline's numbers while they are collected, each at most once, beside what they rest on."""

    def __init__(
        self, observation: Observation, server: ServerObservation, kv_capacity: Quantity | None
    ) -> None:
        self.observation, self.server = observation, server
        self.client = observation.client or ClientFacts()
        self.numbers: dict[str, Quantity] = {}
        self.lower: set[str] = set()
        self.assumptions: list[str] = []
        self.notes: list[str] = []
        self.servers = Quantity(
            float(max(1, observation.replicas)), "servers", Origin.CONFIGURED, "servers of the fleet"
        )
        self.kv_capacity = server.get("kv_capacity_tokens") or kv_capacity

    def set(self, name: str, quantity: Quantity | None) -> None:
        """Keeps a number that was not known yet; one that is out of all bounds is no number."""
        if quantity is None or name in self.numbers:
            return
        if all(math.isfinite(value) for value in (quantity.value, *quantity.range)):
            self.numbers[name] = quantity

    def get(self, name: str) -> Quantity | None:
        return self.numbers.get(name)

    def baseline(self, window: str) -> Baseline:
        """Returns what was collected."""
        return Baseline(
            self.numbers, frozenset(self.lower), tuple(self.assumptions), window, tuple(self.notes)
        )
