"""Ramp-up, steady window, drain and change points of a stretch of samples. "None yet" is an answer.

A full batch is not yet a steady one: after an empty start all requests are of the same age, the short ones
end first, contexts are short. The ages have mixed after two mean latencies, with latency = mean length ×
step time by the survival estimate. (In flight ÷ requests per second says less while the ramp lasts: its rate
is that of the short ones.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.observe.change_points import Change, change_points
from headrace.observe.observation import Column
from headrace.observe.steady import BUSY_SHARE

MIXED_AFTER = 2.0  # mean latencies from an empty start: the golden case's own rule
LEAST_WINDOW = 1.0  # mean latencies that a steady window must hold: one full turn of the slots


@dataclass(frozen=True, slots=True)
class Phases:
    """How a stretch divides; times are on the clock of the samples.

    Attributes:
        full_from_seconds: the first sample with at least 80 % of the usual running requests.
        full_until_seconds: the last such sample.
        began_with_ramp: the stretch shows the start: fewer ran at first.
        drained: fewer run at the end.
        steady_seconds: start and end of the steady window; None: not yet, or not to be told (`why`).
        changes: where the level moved within it, ascending; the steady window begins after the last.
        latency_seconds: mean seconds of a request that this was judged with, or None.
        ready_in_seconds: how much longer it must run until there is a steady window; None where there is
            one, or nobody can say.
        why: one sentence: what the window rests on, or why there is none.
    """

    full_from_seconds: float
    full_until_seconds: float
    began_with_ramp: bool
    drained: bool
    steady_seconds: tuple[float, float] | None
    changes: tuple[Change, ...]
    latency_seconds: float | None
    ready_in_seconds: float | None
    why: str


def find_phases(
    seconds: Column,
    running: Column,
    rate: Column | None = None,
    *,
    latency_seconds: float | None,
    began_empty: bool | None = None,
) -> Phases | None:
    """Returns the phases of one server or fleet; None without a sample in which anything runs.

    Args:
        seconds: times, ascending.
        running: running requests, NaN where unknown.
        rate: output tokens per second, for change points; NaN where unknown.
        latency_seconds: mean length by the survival estimate × step seconds; None where unknown.
        began_empty: whether nothing ran when the samples begin; None: judged by the first of them.
    """
    known = np.isfinite(running)
    times, running = seconds[known], running[known]
    rate = rate[known] if rate is not None else None
    busy = running[running > 0]
    if not len(busy):
        return None
    usual = float(np.percentile(busy, 75))
    full = np.flatnonzero(running >= BUSY_SHARE * usual)
    first, last = int(full[0]), int(full[-1])
    start, end = float(times[first]), float(times[last])
    ramp = first > 0 if began_empty is None else began_empty
    drained = last < len(times) - 1
    mixed, why = _mixed_from(float(times[0]), start, ramp, latency_seconds)
    if mixed is None or latency_seconds is None:
        return Phases(start, end, ramp, drained, None, (), latency_seconds, None, why)
    inside = (times >= mixed) & (times <= end)
    changes: tuple[Change, ...] = ()
    for values in (running, rate):
        if values is not None and int(inside.sum()) > 1:
            changes += change_points(times[inside], values[inside], least_seconds=latency_seconds)
    changes = tuple(sorted(changes, key=lambda change: change.seconds))
    begin = max([mixed, *(change.seconds for change in changes)])
    need = LEAST_WINDOW * latency_seconds
    if end - begin >= need:
        return Phases(start, end, ramp, drained, (begin, end), changes, latency_seconds, None, why)
    missing = need - (end - begin)
    why = (
        f"no steady window: {max(end - begin, 0):,.0f} s lie between the mixing of the ages and the end of "
        f"the full batch, one mean latency of {latency_seconds:,.0f} s is needed"
    )
    return Phases(
        start, end, ramp, drained, None, changes, latency_seconds, None if drained else missing, why
    )


def _mixed_from(
    begin: float, full_from: float, ramp: bool, latency_seconds: float | None
) -> tuple[float | None, str]:
    if not ramp:
        return full_from, "the batch was full when the samples begin"
    if latency_seconds is None:
        return None, (
            "no steady window can be told: the samples begin with a ramp, and the mean latency is not known"
        )
    # a slow ramp mixes the ages while it lasts; one latency more lets its last requests turn over
    mixed = max(begin + MIXED_AFTER * latency_seconds, full_from + latency_seconds)
    return mixed, (
        f"the ages have mixed two mean latencies ({2 * latency_seconds:,.0f} s) after the empty start"
    )
