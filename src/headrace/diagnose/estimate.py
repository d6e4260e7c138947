"""Step 6, estimate: what a change is worth, as a range from caps, floors and the step model. No simulation.

Middle and range are the step model's, corrected by the observed step; what more requests add to a step is at
least their bytes at the data sheet's bandwidth. Where the model cannot judge, or the observed step does not
fit it, a batch of n takes floor(n) + remainder: whether the remainder grows with the batch nobody knows
before it is tried, so the low end lets it grow in proportion and the high end keeps it as it is.
"""

from __future__ import annotations

import math

from headrace.diagnose.expected import Expected, Gain
from headrace.diagnose.view import View
from headrace.perf.step_model import StepModel
from headrace.quantities import Estimate, Quantity


def step_model(view: View) -> Expected | None:
    """Returns the step model that prices changes, None where it cannot, or does not fit what was observed."""
    return view.expected if view.expected is not None and view.expected.extrapolates else None


def more_running(view: View, running: float, after: StepModel | None = None) -> Gain:
    """Returns the factor (low, mid, high) on a server's throughput with `running` requests in its batch.

    Without a floor or a step model it lies between nothing and proportional, the middle geometric.

    Args:
        after: the step model under other settings (`Expected.under`); None: settings stay as they are.
    """
    now, usual = view.running, step_model(view)
    if now is None or now <= 0 or running <= 0 or (running <= now and after is None):
        return (1.0, 1.0, 1.0)
    if usual is None:
        return _by_floor(view, now, running)
    low, middle, high = usual.gain(now, running, after)
    if after is None:  # more running at the same settings never makes less
        low, middle, high = max(1.0, low), max(1.0, middle), max(1.0, high)
        high = max(middle, min(high, _most(view, now, running)))
    return (low, middle, high)


def _most(view: View, now: float, running: float) -> float:
    """The factor where each further request adds no more than its bytes at the data sheet's bandwidth."""
    floor, split = view.floor, view.decomposition
    if floor is None or split.floor is None or split.remainder is None:
        return running / now
    longest = split.floor.value + split.remainder.range[1]  # the step, were the uncorrected rate right
    each = floor.per_request_seconds * floor.datasheet.value / floor.achievable.value
    return running / now * longest / (longest + (running - now) * each)


def _by_floor(view: View, now: float, running: float) -> Gain:
    """The factor by floor and remainder: the remainder grows in proportion, half of that, or stays."""
    ratio = running / now
    floor, split = view.floor, view.decomposition
    if running <= now:
        return (1.0, 1.0, 1.0)
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
    high = max(low, high)
    return (low, min(max(middle, low), high), high)


def throughput(view: View, gain: Gain, *, of_fleet: bool = True) -> Estimate | None:
    """Returns output tokens per second after a change, of the fleet or of one server.

    What is measured now times the gain; where nothing was measured what the step model expects now; None
    where there is neither.
    """
    rate = view.baseline.get("output_tokens_per_s_fleet" if of_fleet else "output_tokens_per_s")
    low, mid, high = gain
    if rate is not None:
        return Estimate(rate.value * low, rate.value * mid, rate.value * high, "tokens/s")
    if view.expected is None or not view.running:
        return None
    now = view.expected.rate(view.running)
    servers = (view.baseline.value("servers") or 1.0) if of_fleet else 1.0
    return Estimate(now.low * low, now.mid * mid, now.high * high, "tokens/s").scaled(servers)


def second_order(view: View, running: float, after: StepModel | None = None) -> tuple[str, ...]:
    """Returns what else moves when `running` run, each with its size; the estimate has all of it in it."""
    usual, now = step_model(view), view.running
    if usual is None or not now or running <= 0:
        return ()
    found = []
    here, there = usual.seconds(now), usual.seconds(running, after)
    if there > _NOTABLE * here:
        found.append(
            f"a step takes about {there * 1e3:,.0f} ms in place of {here * 1e3:,.0f}: each answer takes "
            f"×{there / here:.2f} as long"
        )
    each = running / usual.ranks
    model = after or usual.corrected
    if usual.corrected.host.overlaps != model.host.overlaps:
        change = there - usual.seconds(running)
        word = "lost" if change > 0 else "gained"
        found.append(f"the overlap of host and GPU is {word}: {abs(change) * 1e3:,.1f} ms of every step")
    if model.options.is_eager(each) and model.options.graphs:
        found.append(f"graphs are captured up to {model.options.graphs[-1]}: such steps launch every kernel")
    prompts = usual.prompts.seconds(
        model, each, each * usual.context_tokens, model.decode_seconds(each, each * usual.context_tokens)
    )
    if prompts > _NOTABLE_SHARE * there:
        found.append(f"prompts take {prompts / there:.0%} of the time")
    return tuple(found)


# What is worth a sentence: below it the estimate's own range hides it.
_NOTABLE = 1.05
_NOTABLE_SHARE = 0.05


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
