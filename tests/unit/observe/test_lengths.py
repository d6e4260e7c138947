"""Censored lengths against closed-form truth: slots that are filled again, from an empty start to 280 s.

32 running on each of 8 servers, 50 ms a step: a slot makes 5,600 tokens in 280 s. Gamma lengths of mean 2,600
and spread 0.3 have shape 1 ÷ 0.3² and that mean by definition; spread 1.0 is the exponential (gamma of shape
1) or the log-normal of sigma² = ln 2. Shares between 592 and 746 of 1,000 of the true rate come of the
simulation itself, which is the whole of the process: no expected value here is headrace's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from headrace.observe.lengths import (
    MadeSoFar,
    TokensBy,
    joined,
    lengths,
    lengths_by_source,
    tokens_from_elapsed,
    tokens_from_own_rate,
)
from headrace.observe.observation import Column
from headrace.observe.survival import survival

SLOTS, TOKENS, MEAN = 256, 5600.0, 2600.0
SEEDS = 100
Draw = Callable[[np.random.Generator, int], Column]


def gamma(spread: float) -> Draw:
    return lambda random, count: random.gamma(1 / spread**2, MEAN * spread**2, count)


def log_normal(random: np.random.Generator, count: int) -> Column:
    sigma = math.sqrt(math.log(2))
    return random.lognormal(math.log(MEAN) - sigma**2 / 2, sigma, count)


KINDS: dict[str, Draw] = {"narrow": gamma(0.3), "exponential": gamma(1.0), "log-normal": log_normal}


def run(draw: Draw, seed: int) -> tuple[Column, Column]:
    """(lengths of ended requests, tokens so far of those in flight) after 5,600 tokens per slot."""
    random = np.random.default_rng(seed)
    drawn = draw(random, SLOTS * 400).reshape(SLOTS, 400)
    ends = np.cumsum(drawn, axis=1)
    assert (ends[:, -1] > TOKENS).all()
    done = ends <= TOKENS
    last = np.where(done, ends, 0).max(axis=1)
    return drawn[done], TOKENS - last


def counted(tokens: Column) -> MadeSoFar:
    return MadeSoFar(tokens, 0.0, TokensBy.STREAMED)


@cache
def covered(kind: str, level: float) -> tuple[int, float, float, float]:
    """Seeds of 100 whose interval covers the truth; naive mean, naive rate and estimate, each ÷ truth."""
    hits, naive, rate, value = 0, 0.0, 0.0, 0.0
    for seed in range(SEEDS):
        finished, running = run(KINDS[kind], seed)
        found = lengths(finished, counted(running), level=level)
        assert found is not None
        hits += found.mean.low <= MEAN <= found.mean.high
        naive += found.naive_mean / MEAN / SEEDS
        rate += finished.sum() / (SLOTS * TOKENS) / SEEDS
        value += found.mean.value / MEAN / SEEDS
    return hits, naive, rate, value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("level", "least", "most"), [(0.8, 70, 90), (0.95, 88, 100)])
def test_intervals_cover_the_truth_at_their_nominal_rate(
    kind: str, level: float, least: int, most: int
) -> None:
    # a binomial of 100 at 0.8 lies in 70 … 90 with 99 %, one at 0.95 above 88 with 99 %
    hits, _, _, value = covered(kind, level)
    assert least <= hits <= most
    assert value == pytest.approx(1, abs=0.01)


def test_the_naive_figures_are_as_wrong_as_they_are_known_to_be() -> None:
    _, mean, rate, _ = covered("narrow", 0.8)
    assert 0.90 <= mean <= 0.97
    assert rate < 0.85
    for heavy in ("exponential", "log-normal"):
        _, mean, rate, _ = covered(heavy, 0.8)
        assert mean < 0.85
        assert rate < 0.85


def test_the_curve_is_kaplan_and_meiers() -> None:
    # the 6-MP arm of Freireich et al. 1963, the standard example: S(6) = 0.857, S(10) = 0.753, S(23) = 0.448,
    # standard errors 0.0764, 0.0963, 0.1346 (Kalbfleisch and Prentice, table 1.2)
    ended = np.array([6, 6, 6, 7, 10, 13, 16, 22, 23], float)
    censored = np.array([6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35], float)
    curve = survival(ended, censored)
    assert curve is not None
    told = dict(zip(curve.tokens.tolist(), curve.surviving.tolist(), strict=True))
    assert [round(told[week], 3) for week in (6, 10, 23)] == [0.857, 0.753, 0.448]
    errors = curve.surviving * np.sqrt(curve.greenwood)
    assert errors[[0, 2, 6]] == pytest.approx([0.0764, 0.0963, 0.1346], abs=1e-4)
    median = curve.quantile(0.5, 0.95)
    assert median is not None
    assert median.value == 23
    assert curve.quantile(0.9) is None


def test_all_ended_is_the_plain_mean() -> None:
    ends = np.arange(1.0, 101.0)
    found = lengths(ends, counted(np.empty(0)))
    assert found is not None
    assert found.mean.value == pytest.approx(50.5)
    assert found.naive_mean == 50.5
    assert found.by is TokensBy.NONE
    # standard error of a mean: 28.866 (n) ÷ 10, × 1.2816; Greenwood's is that × √(n ÷ (n − 1))
    assert found.mean.high - found.mean.value == pytest.approx(1.2816 * 2.901, rel=1e-3)


def test_requests_met_midway_are_weighed_by_what_was_missed() -> None:
    # watched from a moment on at which all slots have long been mixed: those present are the long ones
    # (length-biased, mean 2,600 × (1 + 0.3²)); with the tokens they had then, the curve is right again
    random = np.random.default_rng(3)
    drawn = gamma(0.3)(random, 4000 * 40).reshape(4000, 40)
    ends = np.cumsum(drawn, axis=1)
    begin, until = 40_000.0, 42_600.0
    seen = (ends > begin) & (ends - drawn < until)
    entered = np.maximum(begin - (ends - drawn), 0)[seen]
    over = np.minimum(drawn, until - (ends - drawn))[seen]
    done = (ends <= until)[seen]
    order = np.concatenate((np.flatnonzero(done), np.flatnonzero(~done)))
    curve = survival(over[done], over[~done], entered[order])
    biased = survival(over[done], over[~done])
    assert curve is not None
    assert biased is not None
    assert curve.quantile(0.5).value == pytest.approx(2522, rel=0.02)  # type: ignore[union-attr]
    assert biased.area() > 1.05 * MEAN


def test_max_tokens_bounds_the_tail() -> None:
    limit = 6000.0
    finished, running = run(KINDS["exponential"], 5)
    found = lengths(np.minimum(finished, limit), counted(running), limit)
    free = lengths(finished, counted(running))
    assert found is not None
    assert free is not None
    assert free.beyond > 0.05
    truth = MEAN * (1 - math.exp(-limit / MEAN))  # mean of min(X, limit) of an exponential
    assert found.mean.low < truth < found.mean.high <= limit
    assert found.beyond_tokens < free.beyond_tokens


def test_too_few_finished_is_no_estimate() -> None:
    assert lengths(np.full(9, 100.0), counted(np.full(200, 500.0))) is None
    assert lengths_by_source({"seen": np.full(20, 9.0), "new": np.empty(0)}, {}, {})["new"] is None


def test_tokens_so_far_are_the_integral_of_the_rate_of_one_request() -> None:
    # 32 running at 640 tok/s, later at 1,280: 20 then 40 tokens per second and request
    seconds = np.arange(0.0, 101.0)
    rate = np.where(seconds < 50, 640.0, 1280.0)
    running = np.full(101, 32.0)
    made = tokens_from_elapsed(100.0, np.array([0.0, 50.0, 90.0]), seconds, rate, running)
    assert made is not None
    assert made.tokens == pytest.approx([3000, 2000, 400], rel=0.01)
    assert made.by is TokensBy.ELAPSED
    waited = tokens_from_elapsed(100.0, np.array([90.0]), seconds, rate, running, waited_seconds=5.0)
    assert waited is not None
    assert waited.tokens == pytest.approx([200])


@pytest.mark.parametrize(
    ("resident", "by", "total"), [(2700.0, TokensBy.ELAPSED, 2400.0), (4300.0, TokensBy.SCALED, 4000.0)]
)
def test_the_servers_own_sum_checks_them(resident: float, by: TokensBy, total: float) -> None:
    seconds = np.arange(0.0, 101.0)
    flat = np.full(101, 32.0)
    made = tokens_from_elapsed(
        100.0, np.array([40.0, 40.0]), seconds, flat * 20, flat, resident_tokens=resident, prompt_tokens=150.0
    )  # 2 × 60 s × 20 tok/s = 2,400 tokens; the server holds 2,700 − 2 × 150 = 2,400 or 4,000
    assert made is not None
    assert made.by is by
    assert made.tokens.sum() == pytest.approx(total)
    assert made.against_server == pytest.approx(2400 / (resident - 300))


def test_without_a_server_the_jobs_own_answers_tell_the_pace() -> None:
    made = tokens_from_own_rate(np.array([10.0, 20.0]), np.array([100.0, 210.0]), np.array([5.0, 10.0]))
    assert made is not None
    assert made.tokens == pytest.approx([206.7, 413.3], abs=0.1)  # 310 tokens in 15 s
    assert made.by is TokensBy.ELAPSED_OWN
    assert made.error >= 0.05
    assert joined([made, counted(np.array([1.0]))]).by is TokensBy.ELAPSED_OWN
    assert joined([]).by is TokensBy.NONE


def test_an_error_of_the_tokens_widens_the_interval() -> None:
    finished, running = run(KINDS["narrow"], 1)
    sure = lengths(finished, counted(running))
    unsure = lengths(finished, MadeSoFar(running, 0.2, TokensBy.ELAPSED))
    assert sure is not None
    assert unsure is not None
    assert unsure.mean.value == pytest.approx(sure.mean.value)
    assert unsure.mean.high - unsure.mean.low > 1.2 * (sure.mean.high - sure.mean.low)
