"""An emulated GPU with physics of its own, so that nothing tested against it is right by construction.

By a seed every kind of work takes up to 30 % more or less, the memory's bandwidth is up to 20 % off, each
request costs a little host time that no model knows of, and answers have another length law than the
log-normal. A server with a seed says nothing of it: what it is has to be found from outside.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np

from headrace.simulate.emulate.timing import StepTimes
from headrace.simulate.fleet import ServerKind

_OPERATOR_SPREAD, _BANDWIDTH_SPREAD = 0.3, 0.2
# Assumed: host time of a request in a step. With 64 running it is 6 ms, a seventh of the book's step.
_MOST_HIDDEN_SECONDS = 0.0001
LAWS = ("weibull", "two_kinds")


@dataclass(frozen=True, slots=True)
class _Draw:
    """How many times as long each kind of work takes, and the seconds of a request that no model knows."""

    weights: float
    state: float
    cache: float
    compute: float
    hidden_seconds: float


def _drawn(seed: int) -> _Draw:
    draw = random.Random(seed)
    bandwidth = draw.uniform(1 - _BANDWIDTH_SPREAD, 1 + _BANDWIDTH_SPREAD)
    weights, state, cache, compute = (
        draw.uniform(1 - _OPERATOR_SPREAD, 1 + _OPERATOR_SPREAD) for _ in range(4)
    )
    hidden = draw.uniform(0.0, _MOST_HIDDEN_SECONDS)
    return _Draw(weights / bandwidth, state / bandwidth, cache / bandwidth, compute, hidden)


def hidden_times(times: StepTimes, seed: int | None) -> StepTimes:
    """Returns the times of one GPU; the given ones without a seed."""
    if seed is None:
        return times
    drawn = _drawn(seed)
    return replace(
        times,
        decode_step_seconds=times.decode_step_seconds * drawn.weights,
        decode_seconds_per_request=times.decode_seconds_per_request * drawn.state + drawn.hidden_seconds,
        decode_seconds_per_context_token=times.decode_seconds_per_context_token * drawn.cache,
        prefill_step_seconds=times.prefill_step_seconds * drawn.weights,
        prefill_seconds_per_token=times.prefill_seconds_per_token * drawn.compute,
    )


def hidden_kind(kind: ServerKind, seed: int | None) -> ServerKind:
    """Returns a server with its real seconds; the given ones without a seed.

    A step of one request stands for the weights, what it grows by with the batch for state and compute.
    """
    if seed is None:
        return kind
    drawn = _drawn(seed)
    one = float(kind.decode_fixed[min(1, len(kind.decode_fixed) - 1)])
    grows = np.maximum(0.0, kind.decode_fixed - one)
    batches = np.arange(len(kind.decode_fixed), dtype=np.float64)
    fixed = np.minimum(kind.decode_fixed, one) * drawn.weights + grows * drawn.state
    factors = {
        "prefill_fixed": drawn.weights,
        "prefill_floor": drawn.weights,
        "prefill_token": drawn.compute,
        "prefill_token_context": drawn.compute,
        "prefill_sequence": drawn.compute,
        "mixed_fixed": drawn.weights,
    }
    rules = {name: value * factors.get(name, 1.0) for name, value in kind.rules.rules.items()}
    return ServerKind(
        replace(kind.rules, rules=rules),
        fixed + drawn.hidden_seconds * batches,
        kind.decode_context * drawn.cache,
    )


def hidden_law(seed: int | None) -> str:
    """Returns the law of answers' lengths: log-normal without a seed, never with one."""
    return "lognormal" if seed is None else LAWS[seed % len(LAWS)]
