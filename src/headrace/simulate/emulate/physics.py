"""An emulated GPU with physics of its own, so that nothing tested against it is right by construction.

By a seed every kind of work takes up to 30 % more or less, the memory's bandwidth is up to 20 % off, each
request costs a little host time that no model knows of, and answers have another length law than the
log-normal. A server with a seed says nothing of it: what it is has to be found from outside.
"""

from __future__ import annotations

import random
from dataclasses import replace

from headrace.simulate.emulate.timing import StepTimes

_OPERATOR_SPREAD, _BANDWIDTH_SPREAD = 0.3, 0.2
# Assumed: host time of a request in a step. With 64 running it is 6 ms, a seventh of the book's step.
_MOST_HIDDEN_SECONDS = 0.0001
LAWS = ("weibull", "two_kinds")


def hidden_times(times: StepTimes, seed: int | None) -> StepTimes:
    """Returns the times of one GPU; the given ones without a seed."""
    if seed is None:
        return times
    draw = random.Random(seed)
    bandwidth = draw.uniform(1 - _BANDWIDTH_SPREAD, 1 + _BANDWIDTH_SPREAD)

    def operator() -> float:
        return draw.uniform(1 - _OPERATOR_SPREAD, 1 + _OPERATOR_SPREAD)

    weights, state, cache, compute = (operator() for _ in range(4))
    hidden = draw.uniform(0.0, _MOST_HIDDEN_SECONDS)
    return replace(
        times,
        decode_step_seconds=times.decode_step_seconds * weights / bandwidth,
        decode_seconds_per_request=times.decode_seconds_per_request * state / bandwidth + hidden,
        decode_seconds_per_context_token=times.decode_seconds_per_context_token * cache / bandwidth,
        prefill_step_seconds=times.prefill_step_seconds * weights / bandwidth,
        prefill_seconds_per_token=times.prefill_seconds_per_token * compute,
    )


def hidden_law(seed: int | None) -> str:
    """Returns the law of answers' lengths: log-normal without a seed, never with one."""
    return "lognormal" if seed is None else LAWS[seed % len(LAWS)]
