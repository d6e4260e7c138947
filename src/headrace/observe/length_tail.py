"""What lies beyond the longest length seen: mean tokens still to come, by distributions fitted to the rest.

The survival curve ends where the data end. Behind it two families are fitted to all lengths, ended and in
flight, by maximum likelihood: Weibull (its tail is exponential or lighter, or stretched) and log-normal
(heavier). Their weights are Akaike's (Burnham and Anderson 2002); both have two parameters, so the weights
are likelihoods. What they disagree on is part of the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headrace.observe.observation import Column

_STEPS = 60  # of the fits: both converge in under 30 on a thousand lengths
_HALVINGS = 400  # points of the integral over a tail
_MOST = 4000  # lengths that a fit looks at; more are thinned evenly
_LEAST_WEIGHT = 0.05  # a family less likely than this has no say in the range
_FURTHEST = 50.0  # mean lengths: an integral without a limit ends there


@dataclass(frozen=True, slots=True)
class Tail:
    """Mean tokens beyond a length, of the requests that get there: weighted over families, and the ends."""

    value: float
    low: float
    high: float


def mean_beyond(finished: Column, in_flight: Column, tokens: float, limit: float | None) -> Tail | None:
    """Mean of min(length, limit) − tokens over requests longer than `tokens`; None without a fit.

    Args:
        finished, in_flight: lengths, tokens; at least ten finished ones.
        limit: max_tokens, or None where nothing cuts an answer.
    """
    ends, running = _thinned(finished), _thinned(in_flight)
    share = len(finished) / len(ends) if len(ends) else 1.0
    if len(ends) < 10 or tokens <= 0:
        return None
    # thinned apart, the two keep their proportion by weights
    weight = (len(in_flight) / len(running)) / share if len(running) else 1.0
    found = [fit for fit in (_weibull(ends, running, weight), _lognormal(ends, running, weight)) if fit]
    if not found:
        return None
    best = max(likelihood for likelihood, _ in found)
    weights = [math.exp(max(likelihood - best, -700.0)) for likelihood, _ in found]
    means = [_integral(curve, tokens, limit, float(np.mean(ends))) for _, curve in found]
    total = sum(weights)
    value = sum(w * mean for w, mean in zip(weights, means, strict=True)) / total
    heard = [mean for w, mean in zip(weights, means, strict=True) if w / total >= _LEAST_WEIGHT]
    return Tail(value, min(heard), max(heard))


class _Weibull:
    def __init__(self, shape: float, scale: float) -> None:
        self._shape, self._scale = shape, scale

    def log_surviving(self, tokens: Column) -> Column:
        return np.asarray(-((tokens / self._scale) ** self._shape))


class _LogNormal:
    def __init__(self, mean: float, spread: float) -> None:
        self._mean, self._spread = mean, spread

    def log_surviving(self, tokens: Column) -> Column:
        return _log_upper((np.log(tokens) - self._mean) / self._spread)


def _integral(curve: _Weibull | _LogNormal, tokens: float, limit: float | None, scale: float) -> float:
    end = limit if limit is not None else tokens + _FURTHEST * scale
    if end <= tokens:
        return 0.0
    points = np.geomspace(tokens, end, _HALVINGS)
    heights = np.exp(np.minimum(curve.log_surviving(points) - curve.log_surviving(points[:1]), 0.0))
    return float(np.sum((heights[1:] + heights[:-1]) / 2 * np.diff(points)))


def _weibull(ends: Column, running: Column, weight: float) -> tuple[float, _Weibull] | None:
    """Maximum likelihood: one equation for the shape, solved by bisection in its logarithm."""
    logs = np.log(ends)
    every = np.concatenate((ends, running))
    heavy = np.concatenate((np.ones(len(ends)), np.full(len(running), weight)))
    centre = float(np.mean(logs))
    scaled = np.log(every) - centre

    def slope(shape: float) -> float:
        powers = heavy * np.exp(np.minimum(shape * scaled, 600.0))
        return float(np.sum(powers * scaled) / np.sum(powers) - 1 / shape - np.mean(logs - centre))

    low, high = 0.05, 100.0
    if slope(low) > 0 or slope(high) < 0:
        return None
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    shape = math.sqrt(low * high)
    mean_power = float(np.sum(heavy * np.exp(shape * scaled)) / len(ends))
    scale = math.exp(centre) * mean_power ** (1 / shape)
    count = len(ends)
    likelihood = (
        count * math.log(shape)
        - count * shape * math.log(scale)
        + (shape - 1) * float(np.sum(logs))
        - float(np.sum(heavy * (every / scale) ** shape))
    )
    return likelihood, _Weibull(shape, scale)


def _lognormal(ends: Column, running: Column, weight: float) -> tuple[float, _LogNormal] | None:
    """Maximum likelihood by expectation and maximisation: what runs on is replaced by its expectation."""
    logs, open_logs = np.log(ends), np.log(running)
    count = len(logs) + weight * len(open_logs)
    mean, spread = float(np.mean(logs)), max(float(np.std(logs)), 1e-3)
    for _ in range(_STEPS):
        z = (open_logs - mean) / spread
        ratio = np.exp(-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - _log_upper(z))  # inverse Mills
        first = mean + spread * ratio
        second = mean**2 + spread**2 + spread * (open_logs + mean) * ratio
        new_mean = (float(np.sum(logs)) + weight * float(np.sum(first))) / count
        square = (float(np.sum(logs**2)) + weight * float(np.sum(second))) / count
        new_spread = math.sqrt(max(square - new_mean**2, 1e-6))
        settled = abs(new_mean - mean) + abs(new_spread - spread) < 1e-6
        mean, spread = new_mean, new_spread
        if settled:
            break
    likelihood = (
        -float(np.sum(logs))
        - len(logs) * (math.log(spread) + 0.5 * math.log(2 * math.pi))
        - 0.5 * float(np.sum(((logs - mean) / spread) ** 2))
        + weight * float(np.sum(_log_upper((open_logs - mean) / spread)))
    )
    return likelihood, _LogNormal(mean, spread)


def _log_upper(z: Column) -> Column:
    """Logarithm of the normal distribution's upper tail; Mills' ratio where it underflows."""
    found = np.empty(len(z))
    for place, one in enumerate(z.tolist()):
        if one < 30:
            found[place] = math.log(0.5 * math.erfc(one / math.sqrt(2)))
        else:
            found[place] = -0.5 * one * one - math.log(one * math.sqrt(2 * math.pi))
    return found


def _thinned(lengths: Column) -> Column:
    """Positive lengths, at most 4,000 of them, evenly over their order."""
    positive = np.sort(lengths[lengths > 0])
    if len(positive) <= _MOST:
        return positive
    return np.asarray(positive[np.linspace(0, len(positive) - 1, _MOST).round().astype(int)])
