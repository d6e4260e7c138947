"""How long answers are, from those that ended and those in flight; the naive figure stands beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

import numpy as np

from headrace.observe.length_tail import mean_beyond
from headrace.observe.observation import Column
from headrace.observe.survival import LEVEL, Interval, Survival, survival

QUANTILES = (0.5, 0.9, 0.99)
LEAST_FINISHED = 10  # below it a mean has no interval worth the name
WHOLE_TAIL = 0.005  # of the requests: less than this beyond the longest needs no distribution
AGREES = 0.10  # estimate and server may differ by so much: prompts and special tokens are in one alone


class TokensBy(StrEnum):
    """Where the tokens made so far by requests in flight come from."""

    STREAMED = "counted while they streamed"
    ELAPSED = "elapsed decode time × the server's tokens per running request"
    ELAPSED_OWN = "elapsed time × tokens per second of this job's finished requests"
    SCALED = "elapsed decode time × tokens per running request, scaled to the server's sum of lengths"
    NONE = "nothing was in flight"


@dataclass(frozen=True, slots=True)
class MadeSoFar:
    """Output tokens so far of the requests in flight.

    Attributes:
        tokens: one per request.
        error: share by which all of them may be off together; 0 where they were counted.
        by: how they were found.
        against_server: estimate ÷ the server's own sum; None where it tells none.
    """

    tokens: Column
    error: float
    by: TokensBy
    against_server: float | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """Output tokens of a request.

    Attributes:
        mean: with its interval; cut at `limit` where there is one.
        quantiles: share → length, where the curve reaches it.
        naive_mean: of finished requests alone: too short while long ones are in flight.
        finished, in_flight: requests behind it.
        limit: max_tokens, or None.
        beyond: share of requests longer than any length seen to end.
        beyond_tokens: part of the mean that rests on a fitted distribution, not on lengths seen.
        by: how the tokens in flight were found.
        level: of the intervals.
    """

    mean: Interval
    quantiles: Mapping[float, Interval]
    naive_mean: float
    finished: int
    in_flight: int
    limit: float | None
    beyond: float
    beyond_tokens: float
    by: TokensBy
    level: float

    def to_json(self) -> dict[str, Any]:
        """The JSON form; an end that the data do not reach is null."""
        return {
            "mean": _ends(self.mean),
            "quantiles": {f"{share:g}": _ends(one) for share, one in self.quantiles.items()},
            "naive_mean": self.naive_mean,
            "finished": self.finished,
            "in_flight": self.in_flight,
            "limit": self.limit,
            "beyond": self.beyond,
            "beyond_tokens": self.beyond_tokens,
            "tokens_in_flight_by": str(self.by),
            "level": self.level,
        }


def _ends(interval: Interval) -> dict[str, float | None]:
    return {
        name: value if math.isfinite(value) else None
        for name, value in (("value", interval.value), ("low", interval.low), ("high", interval.high))
    }


def lengths(
    finished: Column, made: MadeSoFar, limit: float | None = None, level: float = LEVEL
) -> Lengths | None:
    """The survival estimate; None before ten requests have ended.

    Args:
        finished: output tokens of ended requests, those cut at max_tokens included.
        limit: max_tokens of the requests: no answer is longer.
    """
    if len(finished) < LEAST_FINISHED:
        return None
    running = np.minimum(made.tokens, limit) if limit is not None else made.tokens
    curve = survival(finished, running)
    if curve is None:
        return None
    value, low, high, beyond_tokens = _mean(curve, finished, running, limit, level)
    if made.error > 0 and len(running):
        shifts = []
        for factor in (1 - made.error, 1 + made.error):
            moved = running * factor if limit is None else np.minimum(running * factor, limit)
            other = survival(finished, moved)
            if other is not None:
                shifts.append(_mean(other, finished, moved, limit, level)[0] - value)
        # fewer tokens so far shorten the estimate, more lengthen it: beside the sampling, in quadrature
        low = value - math.hypot(value - low, min([0.0, *shifts]))
        high = value + math.hypot(high - value, max([0.0, *shifts]))
    bound = math.inf if limit is None else limit
    found = {share: curve.quantile(share, level) for share in QUANTILES}
    return Lengths(
        mean=Interval(value, max(low, 0.0), min(high, bound)),
        quantiles={share: interval for share, interval in found.items() if interval is not None},
        naive_mean=float(np.mean(finished)),
        finished=curve.finished,
        in_flight=curve.in_flight,
        limit=limit,
        beyond=curve.left,
        beyond_tokens=beyond_tokens,
        by=made.by if len(made.tokens) else TokensBy.NONE,
        level=level,
    )


def lengths_by_source(
    finished: Mapping[str, Column],
    made: Mapping[str, MadeSoFar],
    limits: Mapping[str, float | None],
    level: float = LEVEL,
) -> dict[str, Lengths | None]:
    """`lengths` of each source; None where fewer than ten of its requests have ended."""
    nothing = MadeSoFar(np.empty(0), 0.0, TokensBy.NONE)
    return {
        source: lengths(ends, made.get(source, nothing), limits.get(source), level)
        for source, ends in finished.items()
    }


def _mean(
    curve: Survival, finished: Column, running: Column, limit: float | None, level: float
) -> tuple[float, float, float, float]:
    """Value, low, high and the part that a fitted distribution tells."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    area, spread = curve.area(), math.sqrt(curve.area_variance())
    if curve.left <= WHOLE_TAIL or (limit is not None and curve.longest_tokens >= limit):
        return area, area - z * spread, area + z * spread, 0.0
    tail = mean_beyond(finished, running, curve.longest_tokens, limit)
    if tail is None:  # only what is sure: at least the area
        end = area + curve.left * (limit - curve.longest_tokens) if limit is not None else math.inf
        return area, area - z * spread, end + z * spread, 0.0
    # the last third of the endings tell how fast requests end there: Poisson's error
    error = 1 / math.sqrt(max(float(curve.ended.sum()) / 3, 1.0))
    more = curve.left * tail.value
    # log S has Greenwood's spread; the tail is S × its mean, and falls and rises with the area
    left_error = math.sqrt(float(curve.greenwood[-1])) if math.isfinite(curve.greenwood[-1]) else 1.0
    sampled = math.hypot(spread + more * left_error, more * error)
    low = area + more - math.hypot(z * sampled, curve.left * (tail.value - tail.low))
    high = area + more + math.hypot(z * sampled, curve.left * (tail.high - tail.value))
    return area + more, low, high, more


# ── tokens made so far ────────────────────────────────────────────────────────────────────────────────────
def tokens_from_elapsed(
    now: float,
    started: Column,
    seconds: Column,
    rate: Column,
    running: Column,
    *,
    waited_seconds: float = 0.0,
    resident_tokens: float | None = None,
    prompt_tokens: float | None = None,
) -> MadeSoFar | None:
    """Tokens so far from the time in which a request decoded, on one server; None without samples.

    Between two samples a running request makes rate ÷ running tokens a second; its tokens are the integral
    from its start to now. The error is the standard error of that mean over samples ten apart, at least 2 %
    (what differs between slots of one batch), and is checked against the server's own sum of lengths.

    Args:
        now: seconds, on the clock of `seconds`.
        started: seconds at which each request in flight was sent.
        rate: output tokens per second of the server at `seconds`, NaN where unknown.
        running: its running requests.
        waited_seconds: mean seconds before the first token: no tokens are made in them.
        resident_tokens: the server's sum over running requests of prompt and output tokens.
        prompt_tokens: mean prompt tokens of a request, to be taken off it.
    """
    known = np.isfinite(rate) & np.isfinite(running) & (running > 0)
    if int(known.sum()) < 2 or not len(started):
        return None
    times, each = seconds[known], rate[known] / running[known]
    made = np.concatenate(([0.0], np.cumsum(np.diff(times) * (each[1:] + each[:-1]) / 2)))
    usual = float(np.mean(each))
    tokens = _grown(now, times, made, usual) - _grown(started + waited_seconds, times, made, usual)
    tokens = np.maximum(tokens, 0.0)
    tenths = each[:: max(1, len(each) // 30)]
    error = max(0.02, float(np.std(tenths)) / math.sqrt(len(tenths)) / usual) if usual > 0 else 1.0
    if resident_tokens is None or prompt_tokens is None:
        return MadeSoFar(tokens, error, TokensBy.ELAPSED)
    told = resident_tokens - prompt_tokens * len(tokens)
    if told <= 0 or tokens.sum() <= 0:
        return MadeSoFar(tokens, error, TokensBy.ELAPSED)
    against = float(tokens.sum()) / told
    if abs(against - 1) <= AGREES:
        return MadeSoFar(tokens, max(error, abs(against - 1)), TokensBy.ELAPSED, against)
    return MadeSoFar(tokens / against, AGREES, TokensBy.SCALED, against)


def tokens_from_own_rate(ages: Column, finished_tokens: Column, finished_seconds: Column) -> MadeSoFar | None:
    """Tokens so far where only the job's own answers tell the pace: Σ tokens ÷ Σ seconds of finished ones.

    The error is that of the ratio (delta method), at least 5 %: the time before the first token is in it.
    """
    total = float(finished_seconds.sum())
    if not len(finished_tokens) or total <= 0:
        return None
    pace = float(finished_tokens.sum()) / total
    off = finished_tokens - pace * finished_seconds
    error = math.sqrt(float(np.sum(off**2))) / total / pace if pace > 0 else 1.0
    return MadeSoFar(np.maximum(ages, 0.0) * pace, max(0.05, error), TokensBy.ELAPSED_OWN)


def joined(parts: Sequence[MadeSoFar]) -> MadeSoFar:
    """What several servers' requests made so far: the largest error, and the least sure way of finding it."""
    filled = [part for part in parts if len(part.tokens)]
    if not filled:
        return MadeSoFar(np.empty(0), 0.0, TokensBy.NONE)
    order = list(TokensBy)
    weights = [float(part.tokens.sum()) for part in filled]
    checked = [part.against_server for part in filled if part.against_server is not None]
    return MadeSoFar(
        np.concatenate([part.tokens for part in filled]),
        float(np.average([part.error for part in filled], weights=weights if sum(weights) > 0 else None)),
        max((part.by for part in filled), key=order.index),
        float(np.median(checked)) if checked else None,
    )


def _grown(at: Column | float, times: Column, made: Column, usual: float) -> Column:
    """The integral at a time; before the first and after the last sample the usual pace goes on."""
    where = np.asarray(at, dtype=np.float64)
    inside = np.interp(where, times, made)
    before = np.minimum(where - times[0], 0.0) * usual
    after = np.maximum(where - times[-1], 0.0) * usual
    return np.asarray(inside + before + after)
