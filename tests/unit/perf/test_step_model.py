"""The step as a whole: the golden case, host time, captured graphs, straight lines, every built-in model."""

from __future__ import annotations

import time

import numpy as np
import pytest

from headrace.errors import InputError, UsageError
from headrace.hardware.catalogue import resolve
from headrace.models.catalogue import built_in, model_ids, resolve_model
from headrace.perf.options import Speculation, StepOptions
from headrace.perf.step_model import StepModel
from tests.unit.perf.machines import card, ideal


def _golden() -> StepModel:
    """Qwen3.6-27B, bf16 with a bf16 state, on RTX PRO 6000 Blackwell Server under SGLang 0.5.12."""
    options = StepOptions("sglang", (0, 5, 12), state_ssm_bytes=2.0, overlap=True)
    return StepModel(resolve_model("Qwen/Qwen3.6-27B"), resolve("RTX PRO 6000 Blackwell Server"), options)


def test_golden_step_without_any_measurement() -> None:
    """Observed 49 to 51 ms at 32 running with 1,568 tokens each (corrected for the tokens in flight)."""
    step = _golden().decode(32, 32 * 1568).seconds
    assert 0.044 <= step.mid <= 0.052
    assert step.low < 0.049 and step.high > 0.051  # noqa: PT018


def test_golden_twice_the_batch_gives_between_1_3_and_1_85() -> None:
    model = _golden()
    gain = 2 * model.decode_seconds(32, 32 * 1568) / model.decode_seconds(64, 64 * 1568)
    assert 1.3 <= gain <= 1.85


def test_without_overlap_the_hosts_work_adds() -> None:
    """2 ms of scheduling in the test's figures, 0.1 ms per running request."""
    model = resolve_model("meta-llama/Llama-3.1-8B")
    on, off = (
        StepModel(model, card(), StepOptions(overlap=overlap), ideal(per_sequence=1e-4)).decode_seconds(
            16, 16_000
        )
        for overlap in (True, False)
    )
    assert off - on == pytest.approx(0.002 + 16 * 1e-4)


def test_with_overlap_the_host_shows_where_it_is_longer_than_the_gpu() -> None:
    model = resolve_model("meta-llama/Llama-3.1-8B")
    options = StepOptions(overlap=True)
    found = StepModel(model, card(), options, ideal(per_sequence=1e-3)).decode(200, 200)
    assert found.seconds.mid == pytest.approx(0.002 + 200 * 1e-3)
    assert found.host_seconds.mid > 0.0


def test_an_eager_step_takes_at_least_its_launches() -> None:
    """Llama 3.1 8B: 6 launches a layer, head, 3 of sampling: 196 at 10 µs beside 2 ms of work."""
    model = resolve_model("meta-llama/Llama-3.1-8B")
    fast = card(bandwidth=1e15, bf16=1e18)
    graphed, eager = (
        StepModel(model, fast, StepOptions(graphs=graphs, overlap=True), ideal()).decode(1, 1)
        for graphs in ((1, 2, 4), None)
    )
    launches = sum(operator.launches for operator in eager.operators)
    assert launches == 32 * 6 + 1 + 3
    assert eager.seconds.mid == pytest.approx(launches * 1e-5 + 0.002)
    assert graphed.seconds.mid == pytest.approx(0.002, rel=0.01)


def test_a_batch_is_padded_to_the_next_captured_size_and_eager_beyond_the_last() -> None:
    options = StepOptions(graphs=(1, 2, 4, 8, 16))
    assert [options.padded(batch) for batch in (1, 3, 8, 9, 17)] == [1, 4, 8, 16, 17]
    assert [options.is_eager(batch) for batch in (16, 17)] == [False, True]
    step = StepModel(resolve_model("meta-llama/Llama-3.1-8B"), card(), options, ideal())
    by_batch = {batch: step.decode(batch, 8000).operators for batch in (9, 16)}
    flops = {
        batch: sum(o.flops for o in found if o.name == "feed-forward") for batch, found in by_batch.items()
    }
    assert flops[9] == flops[16]


def test_pipeline_stages_share_the_batch() -> None:
    """Each pass has half of the requests: a request's step is a pass of all layers over that half."""
    model = resolve_model("meta-llama/Llama-3.1-8B")
    whole = StepModel(model, card(), StepOptions(), ideal()).decode_seconds(8, 8000)
    halves = StepModel(model, card(), StepOptions(pp=2), ideal()).decode_seconds(16, 16_000)
    assert halves == pytest.approx(whole, rel=0.001)


def test_a_mixed_step_costs_less_than_its_parts_apart() -> None:
    step = StepModel(
        resolve_model("meta-llama/Llama-3.1-8B"), card(), StepOptions(prefill_graphs=True), ideal()
    )
    mixed = float(step.mixed_seconds(32, 32_000, 512)[0])
    decode, prefill = step.decode_seconds(32, 32_000), step.prefill_seconds(512)
    assert max(decode, prefill) < mixed < decode + prefill


@pytest.mark.parametrize("batch", [1, 32, 300])
def test_the_line_is_the_model_where_it_says_it_holds(batch: int) -> None:
    step = _golden()
    line = step.affine(batch)
    assert line.deviation <= 0.01
    for context in np.linspace(line.from_tokens, line.to_tokens, 7):
        assert line.seconds(context) == pytest.approx(step.decode_seconds(batch, context), rel=0.01)


def test_a_window_ends_the_line() -> None:
    """gpt-oss-20b sees 128 tokens in half of its layers: the line of long contexts begins there."""
    step = StepModel(resolve_model("openai/gpt-oss-20b"), resolve("H100 SXM"), StepOptions())
    line = step.affine(8)
    assert line.from_tokens == 8 * 128
    assert line.deviation <= 0.01
    short = step.affine(8, near_context_tokens=100)
    assert short.to_tokens == 8 * 128
    assert short.seconds_per_context_token > line.seconds_per_context_token


def test_lines_hold_for_every_built_in_model() -> None:
    """Large batches of small models wait for the host at short contexts: their line begins where it ends."""
    device = resolve("B200 SXM")
    batches = np.array([1.0, 8.0, 64.0, 512.0, 1024.0])
    for name in model_ids():
        model = built_in(name)
        table = StepModel(model, device, StepOptions("sglang", (0, 5, 20), tp=4)).affine_table(batches)
        assert table.deviation.max() <= 0.01, name
        assert np.all(table.from_tokens < table.to_tokens), name


def test_lines_of_all_batches_and_one_estimate_are_quick() -> None:
    """50 ms for batches 1 to 1,024, 10 ms for one estimate; the best of five, as the machine is shared."""
    step = _golden()
    step.decode_seconds(1, 1)
    lines, one = [], []
    for _ in range(5):
        start = time.perf_counter()
        table = step.affine_table(np.arange(1.0, 1025.0))
        lines.append(time.perf_counter() - start)
        start = time.perf_counter()
        step.decode(32, 50_000)
        one.append(time.perf_counter() - start)
    assert table.deviation.max() <= 0.01
    assert min(lines) < 0.050
    assert min(one) < 0.010


def test_every_built_in_model_has_a_step_that_grows_with_the_load() -> None:
    device = resolve("B200 SXM")
    for name in model_ids():
        model = built_in(name)
        step = StepModel(model, device, StepOptions(tp=4))
        batches = np.array([1.0, 4.0, 32.0, 256.0])
        seconds = step.decode_seconds_of(batches, 2000 * batches)
        assert np.all(np.isfinite(seconds)), name
        assert np.all(np.diff(seconds) > 0.0), name
        longer = step.decode_seconds_of(batches, 8000 * batches)
        assert np.all(longer >= seconds), name
        prompts = [step.prefill_seconds(tokens) for tokens in (64, 1024, 8192)]
        assert prompts == sorted(prompts), name
        estimate = step.decode_estimate(32, 64_000)
        assert estimate.low < estimate.mid < estimate.high, name


def test_weights_of_a_step_are_those_of_the_geometry() -> None:
    """Two ways to count: the geometry's own sum of parts read per step, and the operators' bytes."""
    for name in (
        "meta-llama/Llama-3.1-8B",
        "Qwen/Qwen3-30B-A3B",
        "Qwen/Qwen3.6-27B",
        "deepseek-ai/DeepSeek-V3",
    ):
        model = resolve_model(name)
        device = card(others={"fp8": 200e12})
        found = StepModel(model, device, StepOptions(), ideal()).decode(1, 1).operators
        read = sum(o.bytes for o in found if o.name not in ("recurrent state", "elementwise", "sampling"))
        assert read == pytest.approx(model.weight_bytes_read_per_step(1).value, rel=0.02), name


def test_a_name_that_fits_several_devices_has_the_range_of_all() -> None:
    """H100 is SXM (3.35 TB/s), PCIe (2.0) or NVL (3.9); the edition told, the range is narrower."""
    model = resolve_model("Qwen/Qwen3-32B")
    any_of, told = (StepModel(model, resolve(name)).decode_estimate(8, 8000) for name in ("H100", "H100 SXM"))
    assert any_of.high / any_of.low > 1.3 * told.high / told.low
    assert any_of.low < told.mid < any_of.high


def test_no_bandwidth_no_step() -> None:
    with pytest.raises(InputError, match="bandwidth is not known"):
        StepModel(resolve_model("Qwen/Qwen3-8B"), card(bandwidth=None))


def test_options_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="between 1 and"):
        Speculation(draft_tokens=4, accept_length=5.0)
    with pytest.raises(UsageError, match="attention ranks"):
        StepOptions(tp=4, dp=3)
    with pytest.raises(UsageError, match="whole number from 1"):
        StepOptions(tp=0)
