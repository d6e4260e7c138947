"""Seconds of passes for the kernel: from the step model, and from what somebody has timed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.engines import step_options
from headrace.engines.plan import MemoryPlan
from headrace.errors import UsageError
from headrace.perf.step_model import StepModel
from headrace.simulate.fleet import ServerKind
from headrace.simulate.scheduling import PrefillCosts, Schedule, server_rules

_LEAST_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class StepPoint:
    """A decode step as timed: so many running requests, so many seconds."""

    batch: int
    seconds: float


@dataclass(frozen=True)
class StepSeconds:
    """Decode seconds by batch (0 … cap) and of prompts, with how far the straight line is off.

    `deviation` is the largest of all batches, as a fraction of the full model's seconds.
    """

    decode_fixed: NDArray[np.float64]
    decode_context: NDArray[np.float64]
    prefill: PrefillCosts
    deviation: float


def parse_points(text: str) -> tuple[StepPoint, ...]:
    """Returns points from text like `32:0.050,64:0.075`, by batch.

    Raises:
        UsageError: what is not BATCH:SECONDS, with both above 0.
    """
    found = {}
    for part in filter(None, text.split(",")):
        batch, colon, seconds = part.partition(":")
        try:
            point = StepPoint(int(batch), float(seconds))
        except ValueError:
            colon = ""
        if not colon or point.batch < 1 or not 0 < point.seconds < 3600:
            raise UsageError(
                f"--step-seconds takes BATCH:SECONDS, several with commas, like 32:0.050,64:0.075; got "
                f"'{part[:40]}'."
            )
        found[point.batch] = point
    return tuple(found[batch] for batch in sorted(found))


@dataclass(frozen=True)
class StepScale:
    """Timed ÷ modelled seconds at some batches, in proportion between two, constant beyond."""

    batches: tuple[float, ...] = (1.0,)
    factors: tuple[float, ...] = (1.0,)
    notes: tuple[str, ...] = ()

    def at(self, batches: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the factors of these batches."""
        return np.interp(batches, self.batches, self.factors)


def step_scale(plan: MemoryPlan, points: tuple[StepPoint, ...], context_tokens: float) -> StepScale:
    """Returns how timed steps of the planned server differ from the step model's.

    Variants of the server keep the scale: a change does to the scaled seconds what it does to the model's.

    Args:
        context_tokens: that a running request held, on average.
    """
    if not points:
        return StepScale()
    model = StepModel(plan.inputs.model, plan.inputs.device, step_options(plan))
    where = np.array([float(point.batch) for point in points])
    factors = np.array([point.seconds for point in points]) / model.decode_seconds_of(
        where, where * context_tokens
    )
    notes: tuple[str, ...] = ()
    if len(points) == 1:
        notes = (
            f"one timed step ({points[0].seconds * 1e3:.1f} ms at {points[0].batch}) scales the step "
            f"model at every "
            "batch. What the surplus does at other batches is not known from it; a second point settles it.",
        )
    return StepScale(
        tuple(float(batch) for batch in where), tuple(float(factor) for factor in factors), notes
    )


def step_seconds(
    model: StepModel, cap: int, input_tokens: float, output_tokens: float, scale: StepScale | None = None
) -> StepSeconds:
    """Returns the seconds of all batches up to `cap`.

    Args:
        input_tokens, output_tokens: of a request, mean: the lines are drawn around its middle context.
    """
    context = max(1.0, input_tokens + output_tokens / 2.0)
    scale = scale or StepScale()
    fixed, slope, deviation = _lines(model, cap, context)
    factor = scale.at(np.arange(cap + 1, dtype=float))
    prefill = _prefill(model, cap, context, float(factor[max(1, cap // 2)]))
    return StepSeconds(fixed * factor, slope * factor, prefill, deviation)


def _lines(
    model: StepModel, cap: int, context: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """(fixed seconds, seconds per context token, largest deviation) of batches 0 … cap.

    A line through half and one and a half of the mean context, where a batch of running requests lives. The
    deviation is that from a quarter to twice of it. `StepModel.affine_table` is drawn over every context.
    """
    batches = np.arange(1, cap + 1, dtype=float)
    low, high = (model.decode_seconds_of(batches, batches * context * share) for share in (0.5, 1.5))
    slope = np.maximum(0.0, (high - low) / (batches * context))
    fixed = np.maximum(0.0, low - slope * batches * context * 0.5)
    deviation = 0.0
    for share in (0.25, 1.0, 2.0):
        exact = model.decode_seconds_of(batches, batches * context * share)
        off = np.abs(fixed + slope * batches * context * share - exact) / exact
        deviation = max(deviation, float(off.max()))
    return np.concatenate([[0.0], fixed]), np.concatenate([[0.0], slope]), deviation


def _prefill(model: StepModel, cap: int, context: float, factor: float) -> PrefillCosts:
    """A line through two large passes, a floor from the smallest, and what hides behind decode in mixed
    passes.
    """
    chunk = float(max(1024, model.options.chunk_tokens))
    small, large = model.prefill_seconds(chunk / 2), model.prefill_seconds(chunk)
    prior = 4096.0
    deep = model.prefill_seconds(chunk, prior)
    per_context = max(0.0, deep - large) / (chunk * prior)
    half, whole = chunk / 2, chunk
    per_token = max(
        _LEAST_SECONDS * 1e-3,
        (large - small - per_context * (whole * whole - half * half) / 2) / (whole - half),
    )
    many = 8.0
    per_sequence = max(0.0, model.prefill_seconds(chunk, 0.0, many) - large) / (many - 1)

    def varying(tokens: float) -> float:
        return per_token * tokens + per_context * tokens * tokens / 2 + per_sequence

    fixed = max(0.0, large - varying(whole))
    floor = model.prefill_seconds(1.0)
    mixed = 0.0
    if model.options.mixes_prefill:
        lanes = max(1.0, min(cap, 64) / 2)
        total = lanes * context
        with_prompts = float(model.mixed_seconds(lanes, total, half)[0])
        mixed = with_prompts - model.decode_seconds(lanes, total) - varying(half)
    scaled = (fixed, per_token, per_context, per_sequence, mixed, floor)
    return PrefillCosts(*(factor * seconds for seconds in scaled))


def server_kind(
    plan: MemoryPlan,
    schedule: Schedule,
    input_tokens: float,
    output_tokens: float,
    *,
    scale: StepScale | None = None,
    accept_length: float | None = None,
    ignore_eos: bool = False,
    slowness: float = 1.0,
) -> tuple[ServerKind, StepSeconds]:
    """Returns one kind of server, and the seconds it was made from.

    Args:
        slowness: all passes take this many times as long (one slow GPU among others).

    Raises:
        InputError: the device's bandwidth is not known.
    """
    model = StepModel(plan.inputs.model, plan.inputs.device, step_options(plan, accept_length))
    seconds = step_seconds(model, schedule.cap, input_tokens, output_tokens, scale)
    scaled = PrefillCosts(
        *(slowness * getattr(seconds.prefill, name) for name in PrefillCosts.__dataclass_fields__)
    )
    rules = server_rules(schedule, scaled, ignore_eos=ignore_eos)
    return ServerKind(rules, seconds.decode_fixed * slowness, seconds.decode_context * slowness), seconds
