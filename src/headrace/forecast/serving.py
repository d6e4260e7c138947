"""What a planned server would serve: its decode step by operator, and throughput by requests in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.engines import step_options
from headrace.engines.plan import MemoryPlan, Rung
from headrace.forecast.lengths import Lengths
from headrace.perf.closed_loop import Served, closed_loop
from headrace.perf.step_model import StepModel, StepTime
from headrace.quantities import Estimate
from headrace.words import Constraint

_MOST_IN_FLIGHT = 1024
# Where KV tokens are what bounds, fewer run than their mean context would let: requests grow at different
# times, and admission keeps some back. Little's law on 14 published queued runs gives 0.82 of the computed
# cap, 0.66 to 1.13 (SGLang documentation's Qwen3.6 rows).
KV_SHARE = 0.82


@dataclass(frozen=True, slots=True)
class Point:
    """So many requests in flight: what is served with the plan's caps, and what would be without them.

    `rung` is the cap on running requests that lies exactly here, None where none does.
    """

    in_flight: int
    served: Served
    lifted: Served
    rung: Rung | None

    def to_json(self) -> dict[str, Any]:
        """Returns the point as plain JSON."""
        return {
            "in_flight": self.in_flight,
            "served": self.served.to_json(),
            "without_caps": self.lifted.to_json(),
            "rung": str(self.rung.constraint) if self.rung else None,
        }


@dataclass(frozen=True)
class Serving:
    """A planned server at work; rates are of one scheduler, `gpus` the GPUs that it has.

    Attributes:
        step: a decode step with as many running as the lowest cap lets.
        points: by requests in flight, every cap among them.
    """

    plan: MemoryPlan
    lengths: Lengths
    step: StepTime
    points: tuple[Point, ...]
    gpus: float
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the document as plain JSON."""
        return {
            "input_tokens": self.lengths.input_tokens,
            "output_tokens": self.lengths.output_tokens,
            "cached_tokens": self.lengths.cached_tokens,
            "context_tokens": self.lengths.context_tokens,
            "gpus": self.gpus,
            "step": self.step.to_json(),
            "points": [point.to_json() for point in self.points],
            "notes": list(self.notes),
        }


def serving(
    plan: MemoryPlan, lengths: Lengths, accept_length: float | None = None, note: str = ""
) -> Serving | None:
    """Returns what the planned server serves; None where it would not start.

    Args:
        accept_length: tokens that a speculative step yields per request.
        note: a sentence about the lengths, kept beside the figures.

    Raises InputError where the device's bandwidth is not known.
    """
    if plan.lowest is None:
        return None
    options = step_options(plan, accept_length)
    model = StepModel(plan.inputs.model, plan.inputs.device, options)
    cap = running_cap(plan)
    running = min(cap, float(_MOST_IN_FLIGHT))
    notes = [note] if note else []
    if not plan.inputs.device.dense_flops_per_second:
        notes.append(
            "no dense rate is known for this GPU: FLOPs take no time here, and prompts next to none."
        )
    if options.speculation is not None and accept_length is None:
        notes.append("no acceptance length was told: a speculative step counts for one token per request.")
    return Serving(
        plan,
        lengths,
        model.decode(running, running * lengths.context_tokens),
        tuple(_points(model, plan, lengths, cap)),
        options.tp * options.pp / options.dp,
        tuple(notes),
    )


def running_cap(plan: MemoryPlan) -> float:
    """Returns how many requests run at once, on average, where as many are sent as can run; at least one.

    The lowest rung, that of the KV pool less what requests of different lengths leave unused. Raises
    ValueError for a plan that would not start.
    """
    if not plan.ladder:
        raise ValueError("a plan that would not start has no cap")
    shares = {Constraint.KV_POOL: KV_SHARE}
    return max(1.0, min(rung.running.value * shares.get(rung.constraint, 1.0) for rung in plan.ladder))


def served_by(model: StepModel, lengths: Lengths, in_flight: float, cap: float | None) -> Served:
    """Returns what one scheduler serves with so many in flight and a cap on running requests."""
    return closed_loop(
        model,
        in_flight,
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        cap=cap,
        cached_tokens=lengths.cached_tokens,
    )


def _points(model: StepModel, plan: MemoryPlan, lengths: Lengths, cap: float) -> Iterator[Point]:
    rungs: dict[int, Rung] = {}
    for rung in plan.ladder:
        at = int(rung.running.value)
        if 1 <= at <= _MOST_IN_FLIGHT:
            rungs.setdefault(at, rung)
    top = max([*rungs, min(_MOST_IN_FLIGHT, int(cap))])
    powers = {2**power for power in range(11) if 2**power <= top}
    near = {at for at in powers if any(abs(at - rung) < 0.12 * rung for rung in rungs)}
    for at in sorted((powers - near) | set(rungs)):
        capped = served_by(model, lengths, at, cap)
        lifted = capped if at <= cap else served_by(model, lengths, at, None)
        yield Point(at, capped, lifted, rungs.get(at))


def per_gpu(estimate: Estimate, gpus: float) -> Estimate:
    """Returns a scheduler's rate per GPU."""
    return estimate.scaled(1.0 / gpus)
