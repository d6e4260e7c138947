"""A decode step as a straight line over total context, with where it holds and by how much it is off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.perf.load import Numbers

_POINTS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Affine:
    """step seconds = fixed_seconds + seconds_per_context_token × total context tokens, for one batch.

    Valid for totals from `from_tokens` to `to_tokens`; there it is off by `deviation` of the full model's
    seconds at most, as seen at five points. Outside, windows or another roof bend the line.
    """

    batch: float
    fixed_seconds: float
    seconds_per_context_token: float
    from_tokens: float
    to_tokens: float
    deviation: float

    def seconds(self, total_context_tokens: float) -> float:
        """Returns the seconds of a step."""
        return self.fixed_seconds + self.seconds_per_context_token * total_context_tokens


@dataclass(frozen=True)
class AffineTable:
    """The lines of many batches: arrays of equal length."""

    batches: Numbers
    fixed_seconds: Numbers
    seconds_per_context_token: Numbers
    from_tokens: Numbers
    to_tokens: Numbers
    deviation: Numbers

    def at(self, index: int) -> Affine:
        """Returns one row."""
        names = ("batches", "fixed_seconds", "seconds_per_context_token", "from_tokens", "to_tokens")
        return Affine(*(float(getattr(self, name)[index]) for name in (*names, "deviation")))


def segment(bounds: Sequence[float], near_tokens: float, longest_tokens: float) -> tuple[float, float]:
    """Returns the mean contexts from and to which no window or indexer bends the line, around `near_tokens`.

    Args:
        bounds: contexts per request at which the line bends, ascending.
        longest_tokens: the model's longest context.
    """
    edges = sorted({0.0, *bounds, max(longest_tokens, near_tokens + 1.0)})
    low = max(edge for edge in edges if edge <= near_tokens)
    return low, min(edge for edge in edges if edge > low)


def affine_table(
    seconds_of: Callable[[Numbers, Numbers], Numbers], batches: Numbers, low: Numbers, high: Numbers
) -> AffineTable:
    """Returns the line of each batch between two mean contexts.

    Args:
        seconds_of: decode seconds for (batches, total contexts).
        low, high: mean contexts, per batch; high above low.
    """
    points = np.array(_POINTS)[:, None]
    context = (low + points * (high - low)) * batches
    wide = np.broadcast_to(batches, context.shape)
    seconds = seconds_of(wide.ravel(), context.ravel()).reshape(context.shape)
    slope = (seconds[-1] - seconds[0]) / (context[-1] - context[0])
    fixed = seconds[0] - slope * context[0]
    off = np.abs(fixed + slope * context - seconds) / seconds
    return AffineTable(batches, fixed, slope, context[0], context[-1], off.max(axis=0))
