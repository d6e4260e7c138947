"""Correcting the physics by observed steps: factors on bytes and FLOPs, on fixed time, and time per request.

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

PARAMETERS = ("roof_factor", "fixed_factor", "per_request_seconds")

# Prior widths in log. The roofs' factor: the efficiencies' own spread beside that of the engine version.
# Fixed time (launches and host): the constants' own ranges reach from half to twice; of a device that nobody
# measured a launch is known still less than a roof. Time per request: its own range, and no less than a
# factor of three.
_FACTOR_SPREAD = 0.15
_FIXED_SPREAD = 0.5
_PER_REQUEST_SPREAD = 1.2
_STARTS = (0.0, 2.5, 5.0, 7.5)  # logs of the time per request above physics from which the fit is begun
_LEAST_NOISE = 0.01  # one per cent: clocks, rounding of logged rates
_FEW_NOISE = 0.05  # noise assumed where there are too few samples to see it
_FEW = 6
# Kernels change with the batch (tiles, split-K) in ways the physics does not follow: calibrated on half of
# two public traces (vLLM 0.19, 8B and 32B), it is 4–5 % off on the other half. That error is one for all
# samples of nearly the same batch, so more of them do not wear it down.
_MISFIT = 0.05
_SAME_BATCH = 0.15  # in log
_HUBER = 1.5
_TELLS = 0.7  # posterior ÷ prior spread below which the samples say something of a parameter
_WORST_MISFIT = 0.12  # median over batches of |median log residual| beyond which the fit is refused
_WORST_SCATTER = 0.35  # the same of single samples: a busy machine's steps scatter by 15 to 20 %
_FARTHEST = 4.0  # prior spreads
_EIGHTY = 1.2816  # standard deviations to the 10th and 90th percentile
_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """Steps as observed: the mean of one or many of the same kind.

    `context_tokens` is of all running requests together. Where some of the steps took prompt tokens along,
    `prompt_tokens` is the mean over all of them, `chunk_tokens` what such a step took (0: every step took the
    mean).
    """

    batch: float
    context_tokens: float
    seconds: float
    prompt_tokens: float = 0.0
    chunk_tokens: float = 0.0
    weight: float = 1.0

    @property
    def prompt_share(self) -> float:
        """Of the steps, those that took prompt tokens along."""
        if self.prompt_tokens <= 0.0:
            return 0.0
        return min(1.0, self.prompt_tokens / self.chunk_tokens) if self.chunk_tokens > 0.0 else 1.0


@dataclass(frozen=True)
class Correction:
    """seconds = roof factor × time at the roofs + fixed factor × fixed time + time per request × requests.

    Fixed time is what a step takes whatever its batch: launches, the gap between steps, scheduling that
    nothing overlaps.
    """

    roof_factor: float
    fixed_factor: float
    per_request_seconds: float
    covariance: NDArray[np.float64]  # of the logs of the three

    def seconds(self, roofs: Numbers, fixed: Numbers, requests: Numbers) -> Numbers:
        """Returns corrected seconds."""
        return self.roof_factor * roofs + self.fixed_factor * fixed + self.per_request_seconds * requests

    def estimate(self, roofs: float, fixed: float, requests: float) -> Estimate:
        """Returns the corrected seconds with the range of 80 %: the parameters' spread and the misfit."""
        terms = np.array(
            [self.roof_factor * roofs, self.fixed_factor * fixed, self.per_request_seconds * requests]
        )
        total = float(terms.sum())
        slope = terms / total
        spread = math.sqrt(float(slope @ self.covariance @ slope) + _MISFIT**2)
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
    roofs: Numbers,
    fixed: Numbers,
    requests: Numbers,
    samples: Sequence[Sample],
    level: Quantity,
    per_request: Quantity,
) -> Calibration:
    """Returns the calibration of a model from its own terms for each sample.

    Args:
        roofs, fixed, requests: seconds at the roofs, fixed seconds, requests running, per sample.
        level, per_request: the physics: the range of the roofs' factor, seconds per request.
    """
    observed = np.array([sample.seconds for sample in samples], dtype=float)
    problem = _unusable(observed, roofs + fixed + requests)
    if problem:
        return Calibration(None, problem, len(samples))
    low, high = level.range
    level_spread = math.log(high / low) / (2 * _EIGHTY)
    factor_spread = math.hypot(level_spread, _FACTOR_SPREAD)
    fixed_spread = max(_FIXED_SPREAD, 2 * level_spread)
    least, most = per_request.range
    each_spread = math.log(most / least) / (2 * _EIGHTY)
    groups = _groups(samples)
    problem_set = _Problem(
        prior=np.log([1.0, 1.0, per_request.value]),
        spreads=np.array([factor_spread, fixed_spread, max(_PER_REQUEST_SPREAD, each_spread)]),
        columns=np.stack([roofs, fixed, requests]),
        observed=observed,
        weights=np.array([sample.weight for sample in samples], dtype=float),
        mixed=np.array([sample.prompt_tokens > 0.0 for sample in samples]),
        alike=np.bincount(groups)[groups].astype(np.float64),
    )
    theta, covariance = problem_set.solve()
    before = float(np.median(np.abs(problem_set.residuals(problem_set.prior))))
    after = float(np.median(np.abs(problem_set.residuals(theta))))
    deviations = np.sqrt(np.diag(covariance))
    told = tuple(
        name
        for name, mine, theirs in zip(PARAMETERS, deviations, problem_set.spreads, strict=True)
        if mine < _TELLS * theirs
    )
    intervals = {
        name: Estimate(
            math.exp(value - _EIGHTY * deviation),
            math.exp(value),
            math.exp(value + _EIGHTY * deviation),
            "s" if name.endswith("seconds") else "factor",
        )
        for name, value, deviation in zip(PARAMETERS, theta, deviations, strict=True)
    }
    misfit = _misfit(problem_set.residuals(theta), groups)
    refusal = _refusal(theta, problem_set.prior, problem_set.spreads, misfit, after, len(samples))
    roof, still, each = (float(value) for value in np.exp(theta))
    return Calibration(
        None if refusal else Correction(roof, still, each, covariance),
        refusal or f"{_counted(len(samples))}, median residual {100 * after:.1f} %",
        len(samples),
        intervals,
        told,
        after,
        before,
    )


def _counted(count: int) -> str:
    return f"{count} sample" if count == 1 else f"{count} samples"


def _groups(samples: Sequence[Sample]) -> NDArray[np.intp]:
    """Returns, for each sample, the number of its group: about the same batch, with prompts or without."""
    batches = np.log(np.array([max(sample.batch, 1.0) for sample in samples]))
    kinds = np.array([sample.prompt_tokens > 0.0 for sample in samples])
    keys = np.stack([np.round(batches / _SAME_BATCH), kinds.astype(float)], axis=1)
    return np.asarray(np.unique(keys, axis=0, return_inverse=True)[1]).ravel()


def _misfit(residuals: Numbers, groups: NDArray[np.intp]) -> float:
    """Returns the median over groups of |median residual|: what is wrong with the curve, not a sample."""
    return float(np.median([abs(np.median(residuals[groups == each])) for each in np.unique(groups)]))


def _unusable(observed: Numbers, terms: Numbers) -> str:
    if not len(observed):
        return "no sample was given: nothing to calibrate on"
    if not np.all(np.isfinite(observed)) or np.any(observed <= 0.0):
        return "a sample's seconds are not a positive number: drop it, or mend how it was read"
    if not np.all(np.isfinite(terms)):
        return "a sample's batch or context is not a number: drop it, or mend how it was read"
    return ""


def _refusal(
    theta: Numbers, prior: Numbers, spreads: Numbers, misfit: float, scatter: float, count: int
) -> str:
    away = (theta - prior) / spreads
    worst = int(np.argmax(np.abs(away)))
    if abs(away[worst]) > _FARTHEST:
        ratio = math.exp(float(theta[worst] - prior[worst]))
        return (
            f"{PARAMETERS[worst]} would have to be {ratio:.2g} times what physics has, over "
            f"{_counted(count)}: check model, dtype, device and tensor parallelism before calibrating"
        )
    if misfit > _WORST_MISFIT:
        return (
            f"after the fit half of the batches still lie more than {100 * misfit:.0f} % off (limit "
            f"{100 * _WORST_MISFIT:.0f} %): model, device or options are not those that were observed, or "
            "the samples mix different loads"
        )
    if scatter > _WORST_SCATTER:
        return (
            f"half of the samples lie more than {100 * scatter:.0f} % off the fit (limit "
            f"{100 * _WORST_SCATTER:.0f} %): they mix different loads, or are too short to be timed"
        )
    return ""


@dataclass(frozen=True)
class _Problem:
    """The penalised robust sum over log residuals, and its minimum.

    Steps that took prompts along scatter more than those that did not: each kind has its own noise.
    """

    prior: Numbers
    spreads: Numbers
    columns: Numbers
    observed: Numbers
    weights: Numbers
    mixed: NDArray[np.bool_]
    alike: Numbers  # samples of about the same batch, itself included

    def residuals(self, theta: Numbers) -> Numbers:
        return np.asarray(np.log(np.exp(theta) @ self.columns) - np.log(self.observed))

    def solve(self) -> tuple[Numbers, Numbers]:
        """Returns the logs of the parameters and their covariance.

        A time per request that is far too small does not show in the predictions, so that the fit would stay
        there: it is begun from several, and the likeliest end is taken.
        """
        ends = [self.descend(self.prior + np.array([0.0, 0.0, more])) for more in _STARTS]
        return min(ends, key=lambda end: end[2])[:2]

    def descend(self, theta: Numbers) -> tuple[Numbers, Numbers, float]:
        """Returns (logs of the parameters, covariance, what is minimised) from one beginning."""
        # from where the samples are as a whole: to one far off, every one of them would look like an outlier
        shift = float(np.median(self.residuals(theta)))
        theta = theta - np.array([shift, shift, 0.0])
        noise = np.full(len(self.observed), _FEW_NOISE)
        for _ in range(_ROUNDS):
            gradient, hessian = self.normal(theta, noise)
            move = np.clip(-np.linalg.solve(hessian, gradient), -0.5, 0.5)
            noise = self.noise(self.residuals(theta))
            theta = theta + move
            if float(np.abs(move).max()) < 1e-7:
                break
        _, hessian = self.normal(theta, noise)
        return theta, np.asarray(np.linalg.inv(hessian), dtype=np.float64), self.objective(theta)

    def objective(self, theta: Numbers) -> float:
        """Returns minus the log of the posterior, at the noise that is assumed for few samples."""
        noise = np.full(len(self.observed), _FEW_NOISE)
        scaled = np.abs(self.residuals(theta)) / np.hypot(noise, _MISFIT)
        huber = np.where(scaled <= _HUBER, scaled**2 / 2.0, _HUBER * scaled - _HUBER**2 / 2.0)
        share = np.hypot(noise, _MISFIT) ** 2 / (noise**2 + self.alike * _MISFIT**2)
        away = (theta - self.prior) / self.spreads
        return float((self.weights * share * huber).sum() + (away @ away) / 2.0)

    def noise(self, residuals: Numbers) -> Numbers:
        found = np.full(len(residuals), _FEW_NOISE)
        for kind in (self.mixed, ~self.mixed):
            if kind.sum() >= _FEW:
                found[kind] = max(_LEAST_NOISE, 1.4826 * float(np.median(np.abs(residuals[kind]))))
        return found

    def normal(self, theta: Numbers, noise: Numbers) -> tuple[Numbers, Numbers]:
        """Returns gradient and Hessian (Gauss–Newton)."""
        terms = np.exp(theta)[:, None] * self.columns
        predicted = terms.sum(axis=0)
        residuals = np.log(predicted) - np.log(self.observed)
        scaled = np.abs(residuals) / np.hypot(noise, _MISFIT)
        robust = np.where(scaled <= _HUBER, 1.0, _HUBER / np.maximum(scaled, 1e-12))
        force = self.weights * robust / (noise**2 + self.alike * _MISFIT**2)
        slopes = terms / predicted
        precision = 1.0 / self.spreads**2
        gradient = slopes @ (force * residuals) + precision * (theta - self.prior)
        hessian = (slopes * force) @ slopes.T + np.diag(precision)
        return gradient, hessian
