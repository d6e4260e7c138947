"""Where the level of a series moved: binary segmentation on means of blocks, against its own noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headrace.observe.observation import Column

LEAST_MOVE = 0.10  # of the level: a smaller move changes no answer (the assumption audit's own line)
BLOCKS = 60  # at most: means of so many blocks are nearly independent, and quick to search
LEAST_BLOCKS = 3  # on either side
# Of 20,000 simulated series of 60 independent blocks, 1 in 100 exceeds 3.9 and 1 in 1,000 4.8 (the test
# repeats it with fewer). The rest is room for blocks that are not quite independent.
THRESHOLD = 5.0
_MAD_TO_SIGMA = 1.4826  # of a normal distribution


@dataclass(frozen=True, slots=True)
class Change:
    """One move of the level: when, from and to which mean."""

    seconds: float
    before: float
    after: float


def change_points(seconds: Column, values: Column, *, least_seconds: float) -> tuple[Change, ...]:
    """Returns the moves of at least 10 % that stand out of the noise, ascending.

    The noise is that of neighbouring blocks (median absolute difference), so that the moves themselves do
    not widen it.

    Args:
        seconds: times, ascending.
        values: NaN where unknown.
        least_seconds: a level that holds for less is no level; blocks are at most a quarter as long.
    """
    known = np.isfinite(values)
    times, known_values = seconds[known], values[known]
    if len(times) < 2 * LEAST_BLOCKS:
        return ()
    span = float(times[-1] - times[0])
    if span <= 0:
        return ()
    count = min(BLOCKS, len(times) // 2)
    edges = np.linspace(times[0], times[-1], count + 1)
    place = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, count - 1)
    sums = np.bincount(place, known_values, count)
    sizes = np.bincount(place, minlength=count)
    filled = sizes > 0
    means, starts = sums[filled] / sizes[filled], edges[:-1][filled]
    shortest = max(LEAST_BLOCKS, math.ceil(least_seconds / (span / count)))
    steps = np.diff(means)
    level = float(np.mean(np.abs(means)))
    noise = _MAD_TO_SIGMA * float(np.median(np.abs(steps))) / math.sqrt(2) if len(steps) else 0.0
    noise = max(noise, 1e-9 * level)
    found: list[int] = []
    _divide(means, 0, len(means), noise, shortest, found)
    found.sort()
    while found:  # the least move goes first, and its two levels become one
        bounds = [0, *found, len(means)]
        levels = [float(np.mean(means[a:b])) for a, b in pairwise(bounds)]
        moves = [
            abs(after - before) / max(abs(before), abs(after), 1e-300) for before, after in pairwise(levels)
        ]
        least = int(np.argmin(moves))
        if moves[least] >= LEAST_MOVE:
            return tuple(
                Change(float(starts[at]), before, after)
                for at, (before, after) in zip(found, pairwise(levels), strict=True)
            )
        del found[least]
    return ()


def _divide(means: Column, begin: int, end: int, noise: float, shortest: int, found: list[int]) -> None:
    part = means[begin:end]
    size = len(part)
    if size < 2 * shortest:
        return
    left = np.arange(1, size)
    sums = np.cumsum(part)[:-1]
    gap = np.abs(sums / left - (part.sum() - sums) / (size - left))
    score = gap / (noise * np.sqrt(1 / left + 1 / (size - left)))
    allowed = score[shortest - 1 : size - shortest]
    at = int(np.argmax(allowed)) + shortest
    if score[at - 1] < THRESHOLD:
        return
    found.append(begin + at)
    _divide(means, begin, begin + at, noise, shortest, found)
    _divide(means, begin + at, end, noise, shortest, found)
