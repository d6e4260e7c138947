"""What a change of the flags moves: each figure of two plans that is not the same in both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.engines.plan import MemoryPlan
from headrace.quantities import Quantity


@dataclass(frozen=True, slots=True)
class Moved:
    """One figure before and after a change; None where that plan has none of it.

    Attributes:
        name: of the figure, pool or setting, as in the plan's JSON.
        unit: of numbers; "" for words.
    """

    name: str
    before: float | str | None
    after: float | str | None
    unit: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "before": self.before, "after": self.after, "unit": self.unit}


def moved(before: MemoryPlan, after: MemoryPlan) -> list[Moved]:
    """Returns what differs: the caps and what binds them, then figures, pools, and settings."""
    return [pair for pair in _pairs(before, after) if pair.before != pair.after]


def _pairs(before: MemoryPlan, after: MemoryPlan) -> Iterator[Moved]:
    yield Moved("would_start", _word(before.would_start), _word(after.would_start))
    yield _numbers("cap", before.cap, after.cap)
    yield Moved("cap_bound_by", _bound(before), _bound(after))
    lowest = [plan.lowest for plan in (before, after)]
    yield _numbers("running", *(rung.running if rung else None for rung in lowest))
    first, second = (str(rung.constraint) if rung else None for rung in lowest)
    yield Moved("running_bound_by", first, second)
    told = set()
    for name in dict.fromkeys([*before.figures, *after.figures]):
        figure = _numbers(name, before.figures.get(name), after.figures.get(name))
        told.add((figure.before, figure.after))
        yield figure
    for name in dict.fromkeys(pool.name for plan in (before, after) for pool in plan.pools):
        pools = [plan.pool(name) for plan in (before, after)]
        pair = _numbers(name, *(pool.bytes if pool else None for pool in pools))
        if (pair.before, pair.after) not in told:  # else a figure has said it
            yield pair
    settings = [plan.settings.values for plan in (before, after)]
    for name in dict.fromkeys([*settings[0], *settings[1]]):
        was, now = (_setting(values[name].value) if name in values else None for values in settings)
        yield Moved(name, was, now)


def _numbers(name: str, before: Quantity | None, after: Quantity | None) -> Moved:
    known = after or before
    return Moved(
        name,
        None if before is None else before.value,
        None if after is None else after.value,
        known.unit if known is not None else "",
    )


def _bound(plan: MemoryPlan) -> str | None:
    return str(plan.cap_bound_by) if plan.cap is not None else None


def _word(value: bool) -> str:
    return "yes" if value else "no"


def _setting(value: object) -> float | str | None:
    if isinstance(value, bool):
        return _word(value)
    if value is None:
        return None
    return float(value) if isinstance(value, int | float) else str(value)
