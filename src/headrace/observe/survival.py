"""The survival curve of answer lengths: what is still being made is longer than what has come back.

A request in flight says "longer than so many tokens": a censored length. Left out, the mean is that of the
short ones. Kaplan-Meier's curve counts each length against those that could still have had it (Kaplan and
Meier 1958); its variance is Greenwood's (1926). Both hold for any distribution, as long as a request's own
length does not decide when it started, which is so for slots that are filled again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from headrace.observe.observation import Column

LEVEL = 0.8  # of an interval, unless asked otherwise: what an estimate's low and high mean throughout


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Survival:
    """A Kaplan-Meier curve.

    Attributes:
        tokens: lengths at which a request ended, ascending, each once.
        surviving: share of requests longer than that.
        greenwood: sum of d ÷ (n × (n − d)) up to that length; infinite where all that were left ended.
        at_risk: requests that could have ended at that length.
        ended: requests that did.
        longest_tokens: the longest length seen, of an ended request or one in flight.
        finished, in_flight: requests behind the curve.
    """

    tokens: Column
    surviving: Column
    greenwood: Column
    at_risk: Column
    ended: Column
    longest_tokens: float
    finished: int
    in_flight: int

    @property
    def left(self) -> float:
        """Share of requests longer than any that has ended: what the data do not tell; 0 … 1."""
        return float(self.surviving[-1])

    def beyond(self, tokens: float) -> float:
        """Share of requests longer than `tokens`."""
        place = int(np.searchsorted(self.tokens, tokens, side="right"))
        return 1.0 if place == 0 else float(self.surviving[place - 1])

    def area(self) -> float:
        """Mean of min(length, longest length seen), tokens: the area under the curve."""
        edges = np.concatenate(([0.0], self.tokens, [self.longest_tokens]))
        heights = np.concatenate(([1.0], self.surviving))
        return float(np.sum(np.diff(edges) * heights))

    def area_variance(self) -> float:
        """Greenwood's variance of `area`, tokens², with the small-sample factor m ÷ (m − 1)."""
        edges = np.concatenate((self.tokens, [self.longest_tokens]))
        pieces = np.diff(edges) * self.surviving
        after = np.cumsum(pieces[::-1])[::-1]  # area right of each ending
        some_left = self.at_risk > self.ended
        n, d = self.at_risk[some_left], self.ended[some_left]
        events = float(self.ended.sum())
        factor = events / (events - 1) if events > 1 else 1.0
        return factor * float(np.sum(after[some_left] ** 2 * d / (n * (n - d))))

    def quantile(self, share: float, level: float = LEVEL) -> Interval | None:
        """The length that `share` of the requests do not exceed; None where the curve does not reach it.

        The interval inverts the log-log band (Brookmeyer and Crowley 1982, with Kalbfleisch and Prentice's
        transformation); an end that the curve does not reach is infinite.
        """
        reached = np.flatnonzero(self.surviving <= 1 - share)
        if not len(reached):
            return None
        z = NormalDist().inv_cdf(0.5 + level / 2)
        inner = (self.surviving > 0) & (self.surviving < 1)
        curve, spread = self.surviving[inner], np.sqrt(self.greenwood[inner])
        width = z * spread / np.abs(np.log(curve))
        lower, upper = curve ** np.exp(width), curve ** np.exp(-width)
        lengths = self.tokens[inner]
        below, above = np.flatnonzero(lower <= 1 - share), np.flatnonzero(upper <= 1 - share)
        value = float(self.tokens[reached[0]])
        low = float(lengths[below[0]]) if len(below) else value
        ended_all = self.surviving[-1] <= 0
        high = float(lengths[above[0]]) if len(above) else (float(self.tokens[-1]) if ended_all else math.inf)
        return Interval(value, min(low, value), max(high, value))


def survival(finished: Column, in_flight: Column, entered: Column | None = None) -> Survival | None:
    """The curve of these lengths; None before anything has finished.

    Args:
        finished: output tokens of ended requests (those cut at max_tokens ended there).
        in_flight: output tokens so far of requests still running.
        entered: tokens that each had made when it was first seen, finished ones first; None: all were seen
            from their start. Requests that had ended before anybody looked are then not missed.
    """
    ends = np.asarray(finished, dtype=np.float64)
    running = np.asarray(in_flight, dtype=np.float64)
    ends, running = ends[np.isfinite(ends) & (ends >= 0)], running[np.isfinite(running) & (running >= 0)]
    if not len(ends):
        return None
    tokens, ended = np.unique(ends, return_counts=True)
    every = np.sort(np.concatenate((ends, running)))
    at_risk = (len(every) - np.searchsorted(every, tokens, side="left")).astype(np.float64)
    if entered is not None:
        began = np.sort(np.asarray(entered, dtype=np.float64))
        at_risk -= len(began) - np.searchsorted(began, tokens, side="left")
        at_risk = np.maximum(at_risk, ended)
    counts = ended.astype(np.float64)
    surviving = np.cumprod(1 - counts / at_risk, dtype=np.float64)
    left = at_risk - counts
    with np.errstate(divide="ignore"):
        greenwood = np.cumsum(np.where(left > 0, counts / (at_risk * np.maximum(left, 1)), np.inf))
    return Survival(
        tokens=tokens,
        surviving=np.asarray(surviving, dtype=np.float64),
        greenwood=greenwood,
        at_risk=at_risk,
        ended=counts,
        longest_tokens=float(every[-1]),
        finished=len(ends),
        in_flight=len(running),
    )
