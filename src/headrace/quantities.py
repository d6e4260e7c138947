"""Numbers that know where they come from, and estimates with a range.

A `Quantity` is a value with its unit, its origin and its source; a derived one keeps its inputs, so that
every number of a report unfolds to formula and inputs, and the assumption audit finds what it rests on.
Making one costs about a microsecond: planners make a few dozen per estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

_MAX_JSON_DEPTH = 32


class Origin(StrEnum):
    """Where a number comes from, the strongest evidence first."""

    MEASURED = "measured"  # we timed or counted it
    REPORTED = "reported"  # the server said so
    CONFIGURED = "configured"  # a flag, a setting or a model's config.json
    DEFAULT = "default"  # that engine version's default
    DATASHEET = "datasheet"  # published for this device
    DERIVED = "derived"  # a formula over others
    USER = "user"  # a claim typed in by a person
    ASSUMED = "assumed"  # nobody said; the audit perturbs it


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with unit, origin and source.

    `source` is one phrase: the page, the flag, the log line; for a derived quantity, the formula in the words
    of its inputs. `low` and `high` are the plausible range, where one is known (sources in conflict, an
    assumption with its spread); None means that no range was stated, not that there is none.
    """

    value: float
    unit: str
    origin: Origin
    source: str = ""
    inputs: Mapping[str, Quantity] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    @property
    def range(self) -> tuple[float, float]:
        """(low, high), each the value itself where no range was stated."""
        return (
            self.value if self.low is None else self.low,
            self.value if self.high is None else self.high,
        )

    def with_range(self, low: float, high: float) -> Quantity:
        """Returns the same quantity with the plausible range [low, high]."""
        return replace(self, low=low, high=high)

    def leaves(self, name: str = "") -> Iterator[tuple[str, Quantity]]:
        """Yields (dotted name, quantity) for every input that is not itself derived, depth first.

        A quantity without inputs is its own leaf. The same leaf comes once per path that leads to it.
        """
        if not self.inputs:
            yield name, self
            return
        for key, inner in self.inputs.items():
            yield from inner.leaves(f"{name}.{key}" if name else key)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON form: value, unit, origin, and source, inputs, low, high where there are any."""
        document: dict[str, Any] = {"value": self.value, "unit": self.unit, "origin": str(self.origin)}
        if self.source:
            document["source"] = self.source
        if self.low is not None:
            document["low"] = self.low
        if self.high is not None:
            document["high"] = self.high
        if self.inputs:
            document["inputs"] = {key: inner.to_json() for key, inner in self.inputs.items()}
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any], _depth: int = 0) -> Quantity:
        """Returns the quantity that `to_json` wrote. Raises ValueError where a key is missing or odd."""
        if _depth > _MAX_JSON_DEPTH:
            raise ValueError(f"quantity nested deeper than {_MAX_JSON_DEPTH} levels")
        try:
            value, unit, origin = document["value"], document["unit"], Origin(document["origin"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"a quantity needs value, unit and origin; got {str(document)[:120]}") from error
        inputs = {key: cls.from_json(inner, _depth + 1) for key, inner in document.get("inputs", {}).items()}
        source, low, high = document.get("source", ""), document.get("low"), document.get("high")
        return cls(value, unit, origin, source, inputs, low, high)


def derived(value: float, unit: str, formula: str, **inputs: Quantity) -> Quantity:
    """Returns `value` as a derived quantity that keeps its inputs.

    `formula` is text in the words of the inputs, for people:
    `derived(rest, "bytes", "free × fraction − weights", free=free, fraction=fraction, weights=weights)`.
    The caller computes; nothing is evaluated here.
    """
    return Quantity(value, unit, Origin.DERIVED, formula, inputs)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A prediction: low ≤ mid ≤ high, in `unit`."""

    low: float
    mid: float
    high: float
    unit: str

    def __post_init__(self) -> None:
        if not self.low <= self.mid <= self.high:
            raise ValueError(f"an estimate needs low ≤ mid ≤ high: {self.low}, {self.mid}, {self.high}")

    def scaled(self, factor: float) -> Estimate:
        """Returns the estimate times a factor ≥ 0, in the same unit."""
        return Estimate(self.low * factor, self.mid * factor, self.high * factor, self.unit)

    def to_json(self) -> dict[str, Any]:
        """Returns {"low", "mid", "high", "unit"}."""
        return {"low": self.low, "mid": self.mid, "high": self.high, "unit": self.unit}
