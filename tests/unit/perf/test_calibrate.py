"""Calibration finds what was put in, keeps to physics where it cannot tell, and refuses what does not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.hardware.catalogue import resolve
from headrace.models.catalogue import resolve_model
from headrace.perf.calibrate import Sample
from headrace.perf.options import StepOptions
from headrace.perf.step_model import StepModel
from tests.unit.perf.machines import card

STEP = StepModel(
    resolve_model("meta-llama/Llama-3.1-8B"),
    resolve("RTX PRO 6000 Blackwell Server"),
    StepOptions("vllm", (0, 19, 0), overlap=True),
)


def _samples(
    factor: float, extra: float, each: float, batches: np.ndarray, noise: float = 0.0
) -> list[Sample]:
    scatter = np.random.default_rng(7)
    return [
        Sample(
            batch,
            1500 * batch,
            (factor * STEP.decode_seconds(batch, 1500 * batch) + extra + each * batch)
            * float(np.exp(noise * scatter.standard_normal())),
        )
        for batch in batches
    ]


@settings(max_examples=15, deadline=None)
@given(
    factor=st.floats(0.85, 1.25),
    extra=st.floats(0.0, 0.003),
    each=st.floats(0.0, 3e-5),
    noise=st.floats(0, 0.03),
)
def test_a_slower_machine_is_found_and_extrapolated(
    factor: float, extra: float, each: float, noise: float
) -> None:
    found = STEP.calibrate(_samples(factor, extra, each, np.arange(1.0, 65.0), noise))
    assert found.correction is not None, found.reason
    fitted = STEP.corrected(found.correction)
    for batch in (16, 64, 128):
        truth = factor * STEP.decode_seconds(batch, 1500 * batch) + extra + each * batch
        assert fitted.decode_seconds(batch, 1500 * batch) == pytest.approx(truth, rel=0.05)
        estimate = fitted.decode_estimate(batch, 1500 * batch)
        assert estimate.low < truth < estimate.high


def test_one_sample_moves_the_whole_curve_and_narrows_its_range() -> None:
    found = STEP.calibrate(_samples(1.2, 0.0, 0.0, np.array([32.0])))
    assert found.correction is not None
    before, after = (
        STEP.decode_estimate(100, 150_000),
        STEP.corrected(found.correction).decode_estimate(100, 150_000),
    )
    assert after.mid == pytest.approx(1.2 * before.mid, rel=0.06)
    assert math.log(after.high / after.low) < 0.7 * math.log(before.high / before.low)
    assert "per_request_seconds" not in found.told_apart


def test_samples_at_one_batch_cannot_tell_fixed_time_from_bandwidth() -> None:
    """Thirty samples at the same batch are one point of the curve."""
    found = STEP.calibrate(_samples(1.0, 0.002, 0.0, np.full(30, 64.0), 0.01))
    assert found.correction is not None
    assert found.told_apart == ("roof_factor",)
    fixed = found.intervals["fixed_factor"]
    assert fixed.low < 1.0 < fixed.high


def test_a_few_wild_samples_do_not_move_it() -> None:
    clean = _samples(1.1, 0.001, 0.0, np.arange(1.0, 65.0), 0.01)
    wild = [
        Sample(s.batch, s.context_tokens, 6 * s.seconds) if i % 10 == 0 else s for i, s in enumerate(clean)
    ]
    first, second = (STEP.corrected(STEP.calibrate(each).correction) for each in (clean, wild))
    assert second.decode_seconds(64, 96_000) == pytest.approx(first.decode_seconds(64, 96_000), rel=0.05)


def test_steps_of_another_machine_are_refused_with_the_reason() -> None:
    found = STEP.calibrate(_samples(12.0, 0.0, 0.0, np.arange(1.0, 65.0)))
    assert found.correction is None
    assert "times what physics has" in found.reason


def test_a_busy_machines_steps_scatter_and_are_taken_all_the_same() -> None:
    """15 % each way, forty at every batch: their middle is the curve."""
    batches = np.repeat([1.0, 2.0, 3.0, 4.0], 40)
    found = STEP.calibrate(_samples(1.2, 0.002, 0.0, batches, 0.2))
    assert found.correction is not None, found.reason
    truth = 1.2 * STEP.decode_seconds(16, 24_000) + 0.002
    assert STEP.corrected(found.correction).decode_seconds(16, 24_000) == pytest.approx(truth, rel=0.1)


def test_steps_that_follow_no_curve_are_refused_with_the_reason() -> None:
    scatter = np.random.default_rng(3)
    wild = [
        Sample(batch, 1500 * batch, float(scatter.uniform(0.005, 0.08))) for batch in np.arange(1.0, 65.0)
    ]
    found = STEP.calibrate(wild)
    assert found.correction is None
    assert "half of the" in found.reason


@pytest.mark.parametrize("each", [1e-4, 2e-3, 5e-3])
def test_a_machine_that_nobody_measured_and_that_takes_its_requests_one_by_one(each: float) -> None:
    """A CPU, described by hand: from 1 to 4 running, the rate at 16 is found within a tenth."""
    options = StepOptions("sglang", (0, 5, 12), overlap=False, graphs=None)
    slow = StepModel(resolve_model("Qwen/Qwen3-0.6B"), card(bandwidth=10e9, bf16=0.2e12), options)
    truth = {n: 1.4 * slow.decode_seconds(n, 500 * n) + 0.004 + each * n for n in (1, 2, 3, 4, 16)}
    found = slow.calibrate([Sample(n, 500 * n, truth[n]) for n in (1, 2, 3, 4)])
    assert found.correction is not None, found.reason
    assert slow.corrected(found.correction).decode_seconds(16, 8000) == pytest.approx(truth[16], rel=0.1)


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([], "no sample"),
        ([Sample(8, 8000, 0.0)], "positive"),
        ([Sample(8, 8000, float("nan"))], "positive"),
        ([Sample(float("nan"), 8000, 0.02)], "not a number"),
    ],
)
def test_nothing_to_go_by(samples: list[Sample], why: str) -> None:
    found = STEP.calibrate(samples)
    assert found.correction is None
    assert why in found.reason


def test_samples_with_prompts_are_used() -> None:
    """Half of the steps take 500 prompt tokens along; the mean is between both kinds."""
    mixed = float(STEP.mixed_seconds(32, 48_000, 500)[0])
    plain = STEP.decode_seconds(32, 48_000)
    found = STEP.calibrate([Sample(32, 48_000, (mixed + plain) / 2, prompt_tokens=250, chunk_tokens=500)])
    assert found.residual_before == pytest.approx(0.0, abs=0.01)
