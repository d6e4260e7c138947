"""Hidden physics of emulated GPUs: bounded, the same for the same seed, and none without one."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics

import pytest

from headrace.simulate.emulate import EmulatorOptions, StepTimes
from headrace.simulate.emulate.draws import output_tokens
from headrace.simulate.emulate.physics import hidden_law, hidden_times

BOOK = StepTimes()


def test_without_a_seed_everything_is_by_the_book() -> None:
    options = EmulatorOptions()
    assert options.real_times == BOOK
    assert options.length_law == "lognormal"


@pytest.mark.parametrize("seed", range(50))
def test_each_kind_of_work_is_off_within_its_bounds(seed: int) -> None:
    """Operators ± 30 %, bandwidth ± 20 %: memory-bound work from 0.7 ÷ 1.2 to 1.3 ÷ 0.8, compute ± 30 %."""
    found = hidden_times(BOOK, seed)
    assert found == hidden_times(BOOK, seed)
    assert found != BOOK
    for name in ("decode_step_seconds", "decode_seconds_per_context_token", "prefill_step_seconds"):
        assert 0.7 / 1.2 <= getattr(found, name) / getattr(BOOK, name) <= 1.3 / 0.8
    assert 0.7 <= found.prefill_seconds_per_token / BOOK.prefill_seconds_per_token <= 1.3
    hidden = found.decode_seconds_per_request - BOOK.decode_seconds_per_request * 1.3 / 0.8
    assert hidden <= 0.0001
    assert hidden_law(seed) != "lognormal"


def test_seeds_differ() -> None:
    assert len({dataclasses.astuple(hidden_times(BOOK, seed)) for seed in range(50)}) == 50


@pytest.mark.parametrize("law", ["lognormal", "weibull", "two_kinds"])
def test_every_law_keeps_the_mean(law: str) -> None:
    """40,000 draws: the mean to 3 %."""
    draw = random.Random(5)
    lengths = [output_tokens(draw.getrandbits(64), 400.0, 0.6, law) for _ in range(40_000)]
    assert statistics.fmean(lengths) == pytest.approx(400, rel=0.03)


def test_a_weibull_has_the_spread_it_is_asked_for() -> None:
    """The standard deviation of the logarithm, to 5 %; and more short answers than a log-normal."""
    draw = random.Random(6)
    logs = [math.log(output_tokens(draw.getrandbits(64), 4000.0, 0.5, "weibull")) for _ in range(40_000)]
    assert statistics.pstdev(logs) == pytest.approx(0.5, rel=0.05)
    mean, median = statistics.fmean(logs), statistics.median(logs)
    assert mean < median  # skewed to the left, where a log-normal is even
