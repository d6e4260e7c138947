"""Correcting the physics by observed steps: a factor on the GPU's time, host time per step and per request.

The physics is the prior (maximum a posteriori): what the samples cannot tell apart stays where physics has
it. Robust (Huber weights on log residuals); intervals by Laplace's approximation. Refuses where the residuals
show that the model does not describe what was observed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.perf.load import Numbers
from headrace.quantities import Estimate, Quantity

PARAMETERS = ("gpu_factor", "host_seconds", "per_request_seconds")

# Prior widths in log. The GPU's factor: the efficiencies' own spread beside that of the engine version.
# Host times are known to a factor of two to three only.
_FACTOR_SPREAD = 0.15
_HOST_SPREAD = 0.7
_PER_REQUEST_SPREAD = 1.2
_LEAST_NOISE = 0.01  # one per cent: clocks, rounding of logged rates
_FEW_NOISE = 0.05  # noise assumed where there are too few samples to see it
_FEW = 6
_HUBER = 1.5
_TELLS = 0.7  # posterior ÷ prior spread below which the samples say something of a parameter
_WORST_RESIDUAL = 0.12  # median of |log residual| beyond which the fit is refused
_FARTHEST = 4.0  # prior spreads
_EIGHTY = 1.2816  # standard deviations to the 10th and 90th percentile
_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """Steps as observed: the mean of one or many of the same kind.

    `context_tokens` is of all running requests together. Where steps took prompt tokens along,
    `prompt_tokens` and `sequences` are per step.
    """

    batch: float
    context_tokens: float
    seconds: float
    prompt_tokens: float = 0.0
    prior_tokens: float = 0.0
    sequences: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True)
class Correction:
    """seconds = factor × what the GPU is busy + host seconds + per-request seconds × requests."""

    factor: float
    host_seconds: float
    per_request_seconds: float
    covariance: NDArray[np.float64]  # of the logs of the three
    noise: float  # of one sample, in log

    def seconds(self, busy: Numbers, requests: Numbers) -> Numbers:
        """Returns corrected seconds."""
        return self.factor * busy + self.host_seconds + self.per_request_seconds * requests

    def estimate(self, busy: float, requests: float) -> Estimate:
        """Returns the corrected seconds with the range of 80 %: the parameters' and the samples' spread."""
        terms = np.array([self.factor * busy, self.host_seconds, self.per_request_seconds * requests])
        total = float(terms.sum())
        slope = terms / total
        spread = math.sqrt(float(slope @ self.covariance @ slope) + self.noise**2)
        edge = math.exp(_EIGHTY * spread)
        return Estimate(total / edge, total, total * edge, "s")


@dataclass(frozen=True)
class Calibration:
    """What the samples gave: a correction, or the reason for none.

    Attributes:
        intervals: of each parameter, 80 %.
        told_apart: the parameters that the samples say something about; the others are physics.
        residual: median of |log(predicted ÷ observed)| after the fit, `residual_before` without it.
    """

    correction: Correction | None
    reason: str
    samples: int
    intervals: Mapping[str, Estimate] = field(default_factory=dict)
    told_apart: tuple[str, ...] = ()
    residual: float = math.nan
    residual_before: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """Returns the calibration as plain JSON."""
        return {
            "accepted": self.correction is not None,
            "reason": self.reason,
            "samples": self.samples,
            "parameters": {name: each.to_json() for name, each in self.intervals.items()},
            "told_apart": list(self.told_apart),
            "median_residual": None if math.isnan(self.residual) else self.residual,
            "median_residual_before": None if math.isnan(self.residual_before) else self.residual_before,
        }


def fit(
    busy: Numbers,
    requests: Numbers,
    samples: Sequence[Sample],
    level: Quantity,
    step: Quantity,
    per_request: Quantity,
) -> Calibration:
    """Returns the calibration of a model whose GPU is `busy` for the samples, with `requests` running.

    Args:
        level, step, per_request: the physics: the factor's range, host seconds, seconds per request.
    """
    observed = np.array([sample.seconds for sample in samples], dtype=float)
    problem = _unusable(observed, busy)
    if problem:
        return Calibration(None, problem, len(samples))
    weights = np.array([sample.weight for sample in samples], dtype=float)
    prior = np.log([1.0, step.value, per_request.value])
    low, high = level.range
    factor_spread = math.hypot(math.log(high / low) / (2 * _EIGHTY), _FACTOR_SPREAD)
    spreads = np.array([factor_spread, _HOST_SPREAD, _PER_REQUEST_SPREAD])
    columns = np.stack([busy, np.ones_like(busy), requests])
    before = _residuals(prior, columns, observed)
    theta, noise = prior.copy(), _FEW_NOISE
    for _ in range(_ROUNDS):
        step_taken, noise = _step(theta, prior, spreads, columns, observed, weights, noise)
        theta = theta + step_taken
        if float(np.abs(step_taken).max()) < 1e-7:
            break
    _, hessian, _ = _normal(theta, prior, spreads, columns, observed, weights, noise)
    covariance = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
    after = float(np.median(np.abs(_residuals(theta, columns, observed))))
    deviations = np.sqrt(np.diag(covariance))
    told = tuple(
        name
        for name, mine, theirs in zip(PARAMETERS, deviations, spreads, strict=True)
        if mine < _TELLS * theirs
    )
    intervals = {
        name: Estimate(
            math.exp(value - _EIGHTY * deviation),
            math.exp(value),
            math.exp(value + _EIGHTY * deviation),
            "factor" if name == "gpu_factor" else "s",
        )
        for name, value, deviation in zip(PARAMETERS, theta, deviations, strict=True)
    }
    refusal = _refusal(theta, prior, spreads, after, len(samples))
    factor, host, each = (float(value) for value in np.exp(theta))
    correction = Correction(factor, host, each, covariance, noise)
    return Calibration(
        None if refusal else correction,
        refusal or f"{len(samples)} samples, median residual {100 * after:.1f} %",
        len(samples),
        intervals,
        told,
        after,
        float(np.median(np.abs(before))),
    )


def _unusable(observed: Numbers, busy: Numbers) -> str:
    if not len(observed):
        return "no sample was given: nothing to calibrate on"
    if not np.all(np.isfinite(observed)) or np.any(observed <= 0.0):
        return "a sample's seconds are not a positive number: drop it, or mend how it was read"
    if not np.all(np.isfinite(busy)):
        return "a sample's batch or context is not a number: drop it, or mend how it was read"
    return ""


def _refusal(theta: Numbers, prior: Numbers, spreads: Numbers, residual: float, count: int) -> str:
    if residual > _WORST_RESIDUAL:
        return (
            f"after the fit half of the samples still lie more than {100 * residual:.0f} % off (limit "
            f"{100 * _WORST_RESIDUAL:.0f} %): model, device or options are not those that were observed, or "
            "the samples mix different loads"
        )
    away = (theta - prior) / spreads
    worst = int(np.argmax(np.abs(away)))
    if abs(away[worst]) > _FARTHEST:
        ratio = math.exp(float(theta[worst] - prior[worst]))
        return (
            f"{PARAMETERS[worst]} would have to be {ratio:.2g} times what physics has, over {count} samples: "
            "check model, dtype, device and tensor parallelism before calibrating"
        )
    return ""


def _residuals(theta: Numbers, columns: Numbers, observed: Numbers) -> Numbers:
    return np.asarray(np.log(np.exp(theta) @ columns) - np.log(observed))


def _normal(
    theta: Numbers,
    prior: Numbers,
    spreads: Numbers,
    columns: Numbers,
    observed: Numbers,
    weights: Numbers,
    noise: float,
) -> tuple[Numbers, Numbers, Numbers]:
    """Returns gradient and Hessian (Gauss–Newton) of the penalised robust sum, and the log residuals."""
    terms = np.exp(theta)[:, None] * columns
    predicted = terms.sum(axis=0)
    residuals = np.log(predicted) - np.log(observed)
    scaled = np.abs(residuals) / noise
    robust = weights * np.where(scaled <= _HUBER, 1.0, _HUBER / np.maximum(scaled, 1e-12)) / noise**2
    slopes = terms / predicted
    precision = 1.0 / spreads**2
    gradient = slopes @ (robust * residuals) + precision * (theta - prior)
    hessian = (slopes * robust) @ slopes.T + np.diag(precision)
    return gradient, hessian, residuals


def _step(
    theta: Numbers,
    prior: Numbers,
    spreads: Numbers,
    columns: Numbers,
    observed: Numbers,
    weights: Numbers,
    noise: float,
) -> tuple[Numbers, float]:
    """Returns one damped Gauss–Newton step and the noise that the residuals before it show."""
    gradient, hessian, residuals = _normal(theta, prior, spreads, columns, observed, weights, noise)
    move = np.clip(-np.linalg.solve(hessian, gradient), -0.5, 0.5)
    if len(observed) < _FEW:
        return move, _FEW_NOISE
    seen = 1.4826 * float(np.median(np.abs(residuals)))
    return move, max(_LEAST_NOISE, seen)
