"""A finding: one constraint that has evidence of its own, with what would refute it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.quantities import Quantity
from headrace.words import Constraint


class Side(StrEnum):
    """Throughput is running × rate per running request: which factor a constraint holds down."""

    CONCURRENCY = "concurrency"
    RATE = "rate"
    STATE = "state"  # a condition of the fleet, not a constraint: no ladder


_C = Constraint
_CONCURRENCY = frozenset(
    {
        _C.CLIENT_CONCURRENCY,
        _C.CLIENT_SIDE,
        _C.LONG_TAIL,
        _C.LOAD_IMBALANCE,
        _C.MAX_RUNNING_REQUESTS,
        _C.STATE_POOL,
        _C.KV_POOL,
        _C.ADMISSION,
        _C.TOKEN_BUDGET,
        _C.RUNAWAY_LENGTH,
    }
)
_STATES = frozenset({_C.SERVER_DOWN, _C.COLD_START, _C.CONFIGURATION_ERROR, _C.NOT_LIMITED, _C.UNKNOWN})


def side_of(constraint: Constraint) -> Side:
    """Returns the side that a constraint is on."""
    if constraint in _STATES:
        return Side.STATE
    return Side.CONCURRENCY if constraint in _CONCURRENCY else Side.RATE


# How much a kind of evidence is worth, before anything speaks against it: the share of times that evidence of
# its kind is right. docs/accuracy.md has the reliability table that these are checked against.
SAID = 0.9  # the engine or a counter says it in so many words
COUNTED = 0.8  # follows from told numbers by arithmetic alone
PAIRED = 0.82  # the same load with and without it was measured by the reporter
CONFIGURED = 0.6  # the set-up makes it so, and nothing else told explains it
SUGGESTED = 0.4  # one sign, or a person's words; never decides against better evidence


@dataclass(frozen=True, slots=True)
class Finding:
    """A constraint with evidence of its own.

    Attributes:
        confidence: 0…1, of this constraint being at work; what binds is decided over all findings.
        evidence: sentences with the numbers in them, the strongest first.
        would_refute: what to look at, and what it would show if this were wrong.
        numbers: the quantities behind the evidence, by name, for unfolding.
        gain: factor on the fleet's throughput if this alone were lifted (low, mid, high), where it can be
            told.
    """

    constraint: Constraint
    confidence: float
    evidence: tuple[str, ...]
    would_refute: tuple[str, ...] = ()
    numbers: Mapping[str, Quantity] = field(default_factory=dict)
    gain: tuple[float, float, float] | None = None

    @property
    def side(self) -> Side:
        return side_of(self.constraint)

    def to_json(self) -> dict[str, Any]:
        """Returns constraint, side, confidence, evidence, would_refute, and numbers and gain where known."""
        document: dict[str, Any] = {
            "constraint": str(self.constraint),
            "side": str(self.side),
            "confidence": round(self.confidence, 2),
            "evidence": list(self.evidence),
            "would_refute": list(self.would_refute),
        }
        if self.numbers:
            document["numbers"] = {name: quantity.to_json() for name, quantity in self.numbers.items()}
        if self.gain is not None:
            low, mid, high = (round(value, 3) for value in self.gain)
            document["gain"] = {"low": low, "mid": mid, "high": high, "unit": "×"}
        return document
