"""Step 6, estimate, first form: what a change is worth, as a range from caps and floors. No simulation.

A batch of n takes floor(n) + remainder. Whether the remainder grows with the batch nobody knows before it is
tried: the low end lets it grow in proportion, the high end keeps it as it is.
"""

from __future__ import annotations

import math

from headrace.diagnose.baseline import Baseline
from headrace.diagnose.view import View
from headrace.quantities import Estimate, Quantity


def more_running(view: View, running: float) -> tuple[float, float, float]:
    """Returns the factor (low, mid, high) on a server's throughput with `running` requests in its batch.

    Without a floor it lies between nothing and proportional, the middle geometric.
    """
    now = view.running
    if now is None or now <= 0 or running <= now:
        return (1.0, 1.0, 1.0)
    ratio = running / now
    floor, split = view.floor, view.decomposition
    if floor is None or split.step is None or split.remainder is None:
        return (1.0, math.sqrt(ratio), ratio)
    here, there = floor.at(now), floor.at(running)
    outcomes = []
    for remainder in {max(0.0, split.remainder.value), max(0.0, split.remainder.range[1])}:
        step = here + remainder
        outcomes.append((ratio * step / (there + remainder * ratio), ratio * step / (there + remainder)))
    low, high = min(pair[0] for pair in outcomes), max(pair[1] for pair in outcomes)
    remainder = max(0.0, split.remainder.value)
    step = here + remainder
    middle = ratio * step / (there + remainder * (1 + ratio) / 2)
    low = max(1.0, low)
    return (low, min(max(middle, low), high), max(high, low))


def throughput(baseline: Baseline, gain: tuple[float, float, float]) -> Estimate | None:
    """Returns the fleet's output tokens per second after a change, None where the baseline has no rate."""
    rate = baseline.get("output_tokens_per_s_fleet")
    if rate is None:
        return None
    low, mid, high = gain
    return Estimate(rate.value * low, rate.value * mid, rate.value * high, "tokens/s")


def narrowed_by(view: View) -> str:
    """What would narrow the range most."""
    if view.floor is None:
        return "the model and GPU by name: they give the floor of a step"
    if view.baseline.get("output_tokens_per_s") is None:
        return "one throughput figure of the server itself"
    return "one server tried with the change, the others as they are"


def spelled(gain: tuple[float, float, float]) -> str:
    """`×1.3 to 1.8`; `×1.1` where the ends agree."""
    low, _, high = gain
    if high - low < 0.05:
        return f"×{(low + high) / 2:.2f}"
    return f"×{low:.2f} to {high:.2f}"


def range_of(quantity: Quantity) -> tuple[float, float, float]:
    """(low, value, high) of a quantity."""
    low, high = quantity.range
    return low, quantity.value, high
