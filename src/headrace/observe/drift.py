"""How a series moved against the job's own first hours: pools that fragment, hit rates, lengths, clocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from headrace.observe.observation import Column

FIRST_SECONDS = 3600.0  # of the steady window: "the first hours" are at least one
LEAST_BLOCKS = 4  # per side: fewer have no spread


@dataclass(frozen=True, slots=True)
class Drift:
    """The level in the first and in the last stretch.

    Attributes:
        before, after: means.
        share: (after − before) ÷ before; low and high are the ends of its 95 % interval.
        certain: the interval leaves zero out.
    """

    before: float
    after: float
    share: float
    low: float
    high: float
    certain: bool


def drift(
    seconds: Column,
    values: Column,
    *,
    block_seconds: float,
    first_seconds: float = FIRST_SECONDS,
) -> Drift | None:
    """Returns how far the last stretch lies from the first; None where they would overlap.

    Both are `first_seconds` long. Means of blocks stand for independent readings (a block is to be at least
    as long as what makes neighbours alike: a mean latency); the interval is Welch's on them.

    Args:
        seconds: times of the steady window, ascending.
        values: NaN where unknown.
        block_seconds: length of a block.
    """
    known = np.isfinite(values)
    times, values = seconds[known], values[known]
    if len(times) < 2 or times[-1] - times[0] < 2 * first_seconds:
        return None
    early = _blocks(times, values, times[0], times[0] + first_seconds, block_seconds)
    late = _blocks(times, values, times[-1] - first_seconds, times[-1], block_seconds)
    if min(len(early), len(late)) < LEAST_BLOCKS:
        return None
    before, after = float(np.mean(early)), float(np.mean(late))
    if before <= 0:
        return None
    spread = math.sqrt(float(np.var(early, ddof=1)) / len(early) + float(np.var(late, ddof=1)) / len(late))
    z = _student(min(len(early), len(late)) - 1)
    share = (after - before) / before
    low, high = share - z * spread / before, share + z * spread / before
    return Drift(before, after, share, low, high, low > 0 or high < 0)


def _blocks(times: Column, values: Column, begin: float, end: float, block_seconds: float) -> Column:
    inside = (times >= begin) & (times <= end)
    count = max(1, int((end - begin) / block_seconds))
    place = np.clip(((times[inside] - begin) / (end - begin) * count).astype(int), 0, count - 1)
    sums, sizes = np.bincount(place, values[inside], count), np.bincount(place, minlength=count)
    return np.asarray(sums[sizes > 0] / sizes[sizes > 0])


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's t by Cornish and Fisher's expansion: within 1 % from 3 degrees on."""
    z = NormalDist().inv_cdf(0.975)
    n = float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
