"""How long passes take: a stretch of decode in closed form, and what prompt tokens add."""

from __future__ import annotations

import math
from typing import Any

from headrace.simulate.kernel.compiled import compiled
from headrace.simulate.kernel.records import DECODE, World


@compiled
def seconds_of(sch: Any, steps: int) -> float:
    """Seconds of the first so many passes of a stretch."""
    return float((sch.linear + sch.quadratic * steps) * steps)


@compiled
def whole_steps(sch: Any, now: float) -> int:
    """Decode passes of the present phase that have ended by `now`."""
    if sch.phase != DECODE:
        return 0
    elapsed = now - sch.phase_start
    most = int(sch.steps)
    if sch.quadratic > 0.0:
        root = math.sqrt(sch.linear * sch.linear + 4.0 * sch.quadratic * elapsed)
        estimate = (root - sch.linear) / (2.0 * sch.quadratic)
    elif sch.linear > 0.0:
        estimate = elapsed / sch.linear
    else:
        return most
    steps = max(0, most if estimate > most else int(estimate))
    while steps < most and seconds_of(sch, steps + 1) <= elapsed:
        steps += 1
    while steps > 0 and seconds_of(sch, steps) > elapsed:
        steps -= 1
    return steps


@compiled
def prefill_seconds(w: World, s: int) -> float:
    """Seconds that the prompt tokens planned for this pass add."""
    sch, slots = w.schedulers[s], w.slots[s]
    rule = w.rules[sch.kind]
    tokens = 0.0
    weighted = 0.0
    sequences = 0
    for i in range(sch.slots):
        slot = slots[i]
        if slot.now > 0.0:
            before = slot.input + slot.made - slot.todo
            tokens += slot.now
            weighted += slot.now * (before + slot.now / 2.0)
            sequences += 1
    return float(
        rule.prefill_token * tokens
        + rule.prefill_token_context * weighted
        + rule.prefill_sequence * sequences
    )
