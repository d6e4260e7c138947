"""The step model within a diagnosis: beside the floor, corrected by one step, pricing rungs and proposals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.diagnose.baseline import Baseline
from headrace.diagnose.estimate import more_running
from headrace.diagnose.expected import sample_of
from headrace.quantities import Origin, Quantity
from headrace.words import Lever
from tests.unit.diagnose.stories import DENSE, HYBRID, judged, told, view
from tests.unit.perf.machines import shared
from tests.unit.perf.traces import seconds_of

FOLDER = shared()


def _with_step(step_seconds: float, base: dict[str, Any] = HYBRID) -> dict[str, Any]:
    return told(base, observed={"output_tokens_per_s": base["observed"]["running"] / step_seconds})


def test_a_step_within_the_range_leaves_nothing_unexplained() -> None:
    split = judged(HYBRID).decomposition  # 20 running at 430 tok/s: 46.5 ms
    assert split.expected_step is not None
    assert split.unexplained is not None
    low, high = split.expected_step.range
    assert low < split.expected_step.value < high
    assert low < 20 / 430 < high
    assert split.unexplained.value == 0


def test_the_expected_step_unfolds_to_its_operators() -> None:
    """Parts add up; products of matrices read the 51.2 GB of weights of the golden case's arithmetic, and
    rows of activations beside them."""
    step = judged(HYBRID).decomposition.expected_step
    assert step is not None
    assert sum(part.value for part in step.inputs.values()) == pytest.approx(step.value)
    whole = step.inputs["operators"]
    parts = {name: part for name, part in whole.inputs.items() if part.unit == "s"}
    assert sum(part.value for part in parts.values()) == pytest.approx(whole.value)
    read = sum(
        float(part.source.split(" GB")[0].split(", ")[1])
        for name, part in parts.items()
        if name.startswith(("attention projections", "state projections", "feed-forward", "head"))
    )
    assert 51.2 <= read < 51.2 * 1.01


def test_what_is_above_the_range_is_unexplained() -> None:
    usual = judged(HYBRID).decomposition.expected_step
    assert usual is not None
    high = usual.range[1]
    split = judged(_with_step(high + 0.020)).decomposition
    assert split.unexplained is not None
    assert split.unexplained.value == pytest.approx(0.020, abs=1e-6)
    assert split.expected_step is not None
    assert split.expected_step.value == pytest.approx(usual.value)  # what is seen does not move it


def test_a_step_that_does_not_fit_prices_nothing() -> None:
    """A step of a second for 20 requests is no step of this model: the range is then by floor and remainder.

    By hand: f(n) the floor, r = 1 s − f(20); 20 → 40 gives 2 × 1 ÷ (f(40) + 2 r) to 2 × 1 ÷ (f(40) + r).
    """
    seen = view(_with_step(1.0))
    assert seen.expected is not None
    assert not seen.expected.extrapolates
    assert seen.decomposition.calibration is not None
    assert "check model" in seen.decomposition.calibration.reason
    assert seen.floor is not None
    rest = 1.0 - seen.floor.at(20)
    low, _, high = more_running(seen, 40)
    assert low == pytest.approx(max(1.0, 2 / (seen.floor.at(40) + 2 * rest)))
    assert high == pytest.approx(2 / (seen.floor.at(40) + rest))


def test_ends_stay_in_order_where_rounding_would_swap_them() -> None:
    """No step is known, and the cap is four thousand times what runs: all three are the ratio, or nearly."""
    facts = {
        "model": "Qwen/Qwen3-8B",
        "gpu": "RTX PRO 6000 Blackwell",
        "observed": {"running": 254_591, "output_tokens_per_s": 25_872},
    }
    seen = view(facts)
    for running in (254_592, 254_600, 300_000, 1_000_000_000):
        low, middle, high = more_running(seen, running)
        assert low <= middle <= high


def test_one_step_moves_the_model_to_it() -> None:
    """Slower and faster than physics within the prior: the corrected step is near the observed one."""
    usual = view(HYBRID).expected
    assert usual is not None
    for factor in (0.9, 1.15):
        seen = view(_with_step(usual.step.value * factor)).expected
        assert seen is not None
        assert seen.seconds(20) == pytest.approx(usual.step.value * factor, rel=0.06)
        assert abs(seen.seconds(20) / usual.step.value - 1) > abs(factor - 1) / 2


def test_no_more_than_proportional_and_no_less_than_nothing() -> None:
    seen = view(HYBRID)
    before = (1.0, 1.0, 1.0)
    for running in (20, 21, 24, 40, 80, 160, 1000):
        low, middle, high = more_running(seen, running)
        assert 1.0 <= low <= middle <= high <= running / 20 + 1e-9
        assert middle >= before[1]
        before = (low, middle, high)


@pytest.mark.parametrize(
    "facts",
    [
        told(HYBRID, engine="llamacpp", engine_version=None, flags=None),
        told(HYBRID, model=None),
        told(HYBRID, gpu=None),
        told(HYBRID, observed={"kv_usage": None}),  # nobody knows the context
        told(DENSE, flags=DENSE["flags"] + " --cpu-offload-gb 10"),
        told(DENSE, observed={"accept_length": 2.5}),  # drafts whose cost nobody told
    ],
    ids=["no planner", "no model", "no GPU", "no context", "weights on the host", "unknown drafts"],
)
def test_where_the_model_cannot_judge_there_is_no_expected_step(facts: dict[str, Any]) -> None:
    found = judged(facts)
    assert found.decomposition.expected_step is None
    assert found.decomposition.unexplained is None


def test_without_a_rate_the_estimate_is_the_models_own() -> None:
    """Qwen3-8B on an H100: 15.1 GB of weights and 40 × 1,500 tokens × 147,456 B at 3.35 TB/s: 7.2 ms at the
    least, so below 5,600 tok/s at 40 running; twice that time is far beyond what published runs show."""
    facts = told(
        DENSE,
        observed={"output_tokens_per_s": None, "kv_usage": None, "kv_used_tokens": 60_000},
        client={"load": "free"},
    )
    found = judged(facts)
    assert found.decomposition.calibration is None
    rung = found.ladder[0]
    assert rung.limit is not None
    assert rung.limit.value == 40
    assert rung.output is not None
    assert 2800 < rung.output.mid < 5600
    assert rung.output.low < rung.output.mid < rung.output.high


def test_the_overlap_switched_on_is_priced() -> None:
    facts = told(HYBRID, flags=HYBRID["flags"] + " --disable-overlap-schedule")
    on = next(found for found in judged(facts).proposals if found.levers == (Lever.OVERLAP_ON,))
    assert on.gain is not None
    assert 1.0 < on.gain[1] < 1.2
    assert any("overlap of host and GPU is gained" in text for text in on.effects)


_NUMBER = Quantity(0.05, "s", Origin.REPORTED)


def test_a_rate_of_finished_requests_only_is_no_sample() -> None:
    from headrace.quantities import derived

    step = derived(0.05, "s", "running ÷ rate", rate=_NUMBER)
    whole = Baseline({"step_seconds": step})
    assert sample_of(whole, 32, 1500, 0.9) is not None
    part = Baseline({"step_seconds": step}, frozenset({"output_tokens_per_s"}))
    assert sample_of(part, 32, 1500, 0.9) is None
    assert sample_of(Baseline({}), 32, 1500, 0.9) is None


def test_a_sample_is_the_decoding_part_of_a_step_from_rates() -> None:
    from headrace.quantities import derived

    from_rates = Baseline({"step_seconds": derived(0.05, "s", "", rate=_NUMBER)})
    timed = Baseline({"step_seconds": derived(0.05, "s", "", step=_NUMBER)})
    first, second = sample_of(from_rates, 32, 1500, 0.9), sample_of(timed, 32, 1500, 0.9)
    assert first is not None
    assert second is not None
    assert (first.batch, first.context_tokens) == (32, 48_000)
    assert first.seconds == pytest.approx(0.045)
    assert second.seconds == 0.05


TRACES = (
    ("llmservingsim-RTXPRO6000-Llama-3.1-8B", "meta-llama/Llama-3.1-8B", 1),
    ("llmservingsim-RTXPRO6000-Qwen3-32B", "Qwen/Qwen3-32B", 2),
)


@pytest.mark.skipif(FOLDER is None, reason="the public traces are not at hand")
@pytest.mark.parametrize(("trace", "model", "tp"), TRACES)
def test_from_one_second_of_a_real_server_to_the_others(trace: str, model: str, tp: int) -> None:
    """vLLM 0.19 on RTX PRO 6000: one second told, the rate at 1.5 to 30 times the batch foretold."""
    assert FOLDER is not None
    seconds = [s for s in seconds_of(Path(FOLDER, "data", "traces", trace)) if not s.prompt_tokens_per_second]
    inside, off = [], []
    for here in seconds:
        if not 4 <= here.running <= 40:
            continue
        facts = told(
            DENSE,
            model=model,
            gpu="RTX PRO 6000 Blackwell Server",
            gpus=tp,
            tensor_parallel=tp,
            flags=f"--max-num-seqs 128 --tensor-parallel-size {tp}",
            observed={
                "running": here.running,
                "output_tokens_per_s": here.running / here.step_seconds,
                "kv_usage": None,
                "kv_used_tokens": here.context_tokens,
            },
        )
        seen = view(facts)
        for there in seconds:
            longer = math.log(there.context_tokens / there.running * here.running / here.context_tokens)
            if there.running < 1.5 * here.running or abs(longer) > 0.25:
                continue
            low, middle, high = more_running(seen, there.running)
            ratio = there.running / there.step_seconds * here.step_seconds / here.running
            inside.append(low <= ratio <= high)
            off.append(abs(middle / ratio - 1))
    assert len(inside) >= 30
    assert np.median(off) <= 0.09
    assert np.mean(inside) >= 0.75
