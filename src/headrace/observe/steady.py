"""The steady part of what was seen: windows without ramp and drain, medians of gauges, growth of counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.observe.observation import Column, Window

BUSY_SHARE = 0.8  # of the usual number of running requests: below it a server ramps up, drains or idles
STEPWISE_MARGIN = 0.25  # of the window: how far a counter's first and last step may lie from its ends


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a counter grew: `amount` in `seconds`, and how often it went back (the server restarted)."""

    amount: float
    seconds: float
    resets: int

    @property
    def per_second(self) -> float:
        return self.amount / self.seconds


def steady_window(
    seconds: Column, running: Column | None, steady: tuple[float, float] | None = None
) -> tuple[int, int, Window]:
    """Returns the first and last sample of the steady part, and its window.

    Where `steady` says when it starts and ends, that is it. Else the steady part reaches from the first to
    the last sample with at least 80 % of the running requests that the busy samples usually have (their 75th
    percentile). Without running requests it is all there is.

    Args:
        seconds: times, ascending; at least one.
        running: requests per sample, NaN where unknown.
        steady: start and end in seconds, as `phases` finds them.
    """
    first, last = 0, len(seconds) - 1
    within = np.flatnonzero((seconds >= steady[0]) & (seconds <= steady[1])) if steady else np.empty(0)
    if len(within):
        first, last = int(within[0]), int(within[-1])
    elif running is not None:
        busy = running[np.isfinite(running) & (running > 0)]
        if len(busy):
            usual = float(np.percentile(busy, 75))
            full = np.flatnonzero(np.nan_to_num(running, nan=0.0) >= BUSY_SHARE * usual)
            first, last = int(full[0]), int(full[-1])
    window = Window(
        start_seconds=float(seconds[first]),
        end_seconds=float(seconds[last]),
        samples=last - first + 1,
        whole_seconds=float(seconds[-1] - seconds[0]),
    )
    return first, last, window


def typical(values: Column) -> tuple[float, float, float, int] | None:
    """Returns (median, lowest, highest, count) of the finite values, or None without any."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    return float(np.median(finite)), float(finite.min()), float(finite.max()), len(finite)


def growth(seconds: Column, values: Column, *, from_step_to_step: bool = True) -> Growth | None:
    """Returns how much a counter grew, or None with fewer than two samples apart in time.

    A value below the last one is a restart: that interval counts neither as growth nor as time. A counter
    that moves in steps (once per log interval) is measured from its first to its last step, where both lie
    near the ends, so that the cut of the window does not shave it.

    Args:
        from_step_to_step: False takes the whole window, for ratios of two counters.
    """
    known = np.isfinite(values)
    times, counts = seconds[known], values[known]
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    steps = np.diff(counts)
    intervals = np.diff(times)
    resets = int((steps < 0).sum())
    if resets:
        kept = steps >= 0
        span = float(intervals[kept].sum())
        return Growth(float(steps[kept].sum()), span, resets) if span > 0 else None
    moved = np.flatnonzero(steps > 0) + 1
    span = float(times[-1] - times[0])
    if from_step_to_step and 3 <= len(moved) < len(steps):
        head, tail = times[moved[0]] - times[0], times[-1] - times[moved[-1]]
        if max(head, tail) <= STEPWISE_MARGIN * span:
            first, last = moved[0], moved[-1]
            return Growth(float(counts[last] - counts[first]), float(times[last] - times[first]), 0)
    return Growth(float(counts[-1] - counts[0]), span, 0)


def queue_grows(queued: Column) -> bool | None:
    """Whether the queue's last third lies well above its first; None with fewer than nine samples."""
    known = queued[np.isfinite(queued)]
    if len(known) < 9:
        return None
    third = len(known) // 3
    before, after = float(np.median(known[:third])), float(np.median(known[-third:]))
    return after > 1.25 * before + 4
