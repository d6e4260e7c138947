"""Bytes, FLOPs and seconds of operators against sums worked by hand from the models' published shapes."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.models.catalogue import resolve_model
from headrace.perf.load import pairs
from headrace.perf.operators import Operator
from headrace.perf.options import Speculation, StepOptions
from headrace.perf.step_model import StepModel
from tests.unit.perf.machines import card, ideal


def _by_name(found: tuple[Operator, ...]) -> dict[str, Operator]:
    return {operator.name: operator for operator in found}


def test_the_weights_of_a_dense_8b() -> None:
    """Llama 3.1 8B: 32 layers, hidden 4096, 32 heads and 8 kv heads of 128, FFN 14336, vocabulary 128,256."""
    step = StepModel(resolve_model("meta-llama/Llama-3.1-8B"), card(), StepOptions(), ideal()).decode(1, 0)
    found = _by_name(step.operators)
    attention = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096) * 2
    ffn = 32 * 3 * 4096 * 14336 * 2
    head = 128_256 * 4096 * 2
    assert found["attention projections"].bytes == pytest.approx(
        attention, rel=0.001
    )  # + one row of activations
    assert found["feed-forward"].bytes == pytest.approx(ffn, rel=0.001)
    assert found["head"].bytes == pytest.approx(head, rel=0.001)
    assert found["feed-forward"].flops == pytest.approx(2 * ffn / 2)
    # 15.01 GB at 1 TB/s: the input embedding is not read
    assert step.gpu_seconds.mid == pytest.approx((attention + ffn + head) / 1e12, rel=0.002)
    assert found["feed-forward"].roof == "bandwidth"


def test_kv_is_read_at_the_context_there_is() -> None:
    """Llama 3.1 8B keeps 32 × 2 × 8 × 128 × 2 bytes = 131,072 per token."""
    model = resolve_model("meta-llama/Llama-3.1-8B")
    options = StepOptions(kv_dtype_bytes=1.0)
    for settings, each in ((StepOptions(), 131_072), (options, 65_536)):
        attention = _by_name(StepModel(model, card(), settings, ideal()).decode(8, 8000).operators)[
            "attention"
        ]
        queries = 32 * 8 * 32 * (128 + 128) * 2  # read and written beside the KV
        assert attention.bytes == 8000 * each + queries
    assert attention.flops == 32 * 4 * 32 * 128 * 8000  # q·k and p·v of 32 heads of 128


def test_states_of_a_hybrid_are_read_and_written_each_step() -> None:
    """Qwen3.6-27B, bf16 state: 48 layers × (48 × 128 × 128 + 3 × (48 × 128 + 2 × 16 × 128)) × 2 bytes =
    74.8 MiB per request (the engine's own arithmetic gives the same), twice per step."""
    step = StepModel(
        resolve_model("Qwen/Qwen3.6-27B"), card(), StepOptions(state_ssm_bytes=2.0), ideal()
    ).decode(32, 32 * 1568)
    state = 48 * (48 * 128 * 128 + 3 * (48 * 128 + 2 * 16 * 128)) * 2
    assert state / 2**20 == pytest.approx(74.8, abs=0.05)
    assert _by_name(step.operators)["recurrent state"].bytes == pytest.approx(2 * 32 * state, rel=0.03)
    assert _by_name(step.operators)["attention"].bytes == pytest.approx(32 * 1568 * 65_536, rel=0.01)
    assert sum(operator.bytes for operator in step.operators) == pytest.approx(59.5e9, rel=0.02)


def test_a_float32_state_costs_twice_the_bytes() -> None:
    model = resolve_model("Qwen/Qwen3.6-27B")
    moved = [
        _by_name(
            StepModel(model, card(), StepOptions(state_ssm_bytes=width), ideal()).decode(32, 0).operators
        )["recurrent state"].bytes
        for width in (2.0, 4.0)
    ]
    assert moved[1] - moved[0] == pytest.approx(2 * 32 * 48 * 48 * 128 * 128 * 2)


@pytest.mark.parametrize(("tokens", "awake"), [(1, 8.0), (2, 14.52), (32, 98.28), (1000, 128.0)])
def test_experts_that_are_expected_to_wake(tokens: int, awake: float) -> None:
    """Qwen3-30B-A3B: 48 layers, 128 experts of 3 × 2048 × 768, 8 per token: 128 (1 − (15/16)^(T^0.9))."""
    step = StepModel(resolve_model("Qwen/Qwen3-30B-A3B"), card(), StepOptions(), ideal()).decode(tokens, 0)
    experts = _by_name(step.operators)["experts"]
    activations = tokens * 48 * 2 * 8 * (2 * 2048 + 3 * 768)
    assert (experts.bytes - activations) / (48 * 3 * 2048 * 768 * 2) == pytest.approx(awake, rel=1e-3)
    assert experts.flops == tokens * 48 * 2 * 8 * 3 * 2048 * 768


def test_experts_add_bytes_and_flops_where_the_efficiency_says_so() -> None:
    model = resolve_model("Qwen/Qwen3-30B-A3B")
    larger, both = (
        _by_name(StepModel(model, card(), StepOptions(), ideal(adds=adds)).decode(64, 0).operators)["experts"]
        for adds in (False, True)
    )
    assert larger.seconds.mid == pytest.approx(max(larger.bytes / 1e12, larger.flops / 100e12))
    assert both.seconds.mid == pytest.approx(larger.bytes / 1e12 + larger.flops / 100e12)


def test_all_reduces_go_over_the_link() -> None:
    """Two per layer and one after the embedding; a ring sends 2 (n−1)/n of the row: 4096 × 2 bytes."""
    step = StepModel(resolve_model("meta-llama/Llama-3.1-8B"), card(), StepOptions(tp=4), ideal()).decode(
        16, 0
    )
    collective = _by_name(step.operators)["all-reduce"]
    assert collective.launches == 2 * 32 + 1
    assert collective.bytes == pytest.approx(65 * 16 * 4096 * 2 * 2 * 3 / 4)
    assert collective.seconds.mid == pytest.approx(collective.bytes / 10e9)
    assert collective.roof == "link"
    alone = StepModel(resolve_model("meta-llama/Llama-3.1-8B"), card(), StepOptions(), ideal()).decode(16, 0)
    assert "all-reduce" not in _by_name(alone.operators)
    ffn, whole = (_by_name(each.operators)["feed-forward"].flops for each in (step, alone))
    assert ffn == pytest.approx(whole / 4)


def test_a_window_bounds_what_is_read() -> None:
    """gpt-oss-20b: 24 layers, every other one sees 128 tokens; 8 kv heads of 64."""
    found = _by_name(
        StepModel(resolve_model("openai/gpt-oss-20b"), card(), StepOptions(), ideal())
        .decode(4, 4 * 5000)
        .operators
    )
    token = 12 * 2 * 8 * 64 * 2
    assert found["attention"].bytes == pytest.approx(4 * 5000 * token, rel=0.01)
    assert found["window attention"].bytes == pytest.approx(4 * 128 * token, rel=0.5)
    assert found["window attention"].bytes < 0.1 * found["attention"].bytes


def test_latent_attention_reads_one_vector_per_token_on_every_rank() -> None:
    """DeepSeek-V3: 61 layers × (512 + 64) × 2 bytes per token, not divided by tensor parallelism."""
    model = resolve_model("deepseek-ai/DeepSeek-V3")
    for tp in (1, 8):
        device = card(others={"fp8": 200e12})
        found = _by_name(StepModel(model, device, StepOptions(tp=tp), ideal()).decode(4, 80_000).operators)
        assert found["latent attention"].bytes == pytest.approx(80_000 * 61 * 576 * 2, rel=0.02)


def test_pairs_of_a_chunk_with_and_without_a_window() -> None:
    for prior, new, bound in ((0, 50, 1e9), (30, 20, 1e9), (0, 50, 16), (10, 50, 16), (40, 5, 16)):
        counted = sum(min(prior + i, bound) for i in range(1, new + 1))
        got = pairs(np.array([float(prior)]), np.array([float(new)]), np.array([float(bound)]))[0]
        assert got == pytest.approx(counted, abs=new / 2 + 1)  # the sum's integral, half a token each


def test_a_chunk_is_compute_and_its_attention_grows_with_the_square() -> None:
    """Llama 3.1 8B: 2 × 6.98e9 FLOPs per token; causal attention 4 × 32 × 128 per pair and layer."""
    model = resolve_model("meta-llama/Llama-3.1-8B")
    found = _by_name(StepModel(model, card(), StepOptions(), ideal()).prefill(4096).operators)
    layers = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    projections = found["attention projections"].flops + found["feed-forward"].flops
    assert projections == 2 * 4096 * layers
    assert found["attention (prefill)"].flops == pytest.approx(32 * 4 * 32 * 128 * 4096**2 / 2)
    assert found["feed-forward"].roof == "compute"
    assert found["head"].flops == 2 * 128_256 * 4096  # of the last token only


def test_served_dtypes_other_than_the_checkpoints() -> None:
    model = resolve_model("meta-llama/Llama-3.1-8B")
    device = card(others={"fp8": 200e12})
    plain, fp8 = (
        _by_name(StepModel(model, device, StepOptions(weights_dtype=told), ideal()).decode(1, 0).operators)
        for told in (None, "fp8")
    )
    assert fp8["feed-forward"].bytes == pytest.approx(plain["feed-forward"].bytes / 2, rel=0.01)
    assert fp8["head"].bytes == plain["head"].bytes  # heads stay plain
    assert (plain["feed-forward"].dtype, fp8["feed-forward"].dtype) == ("bf16", "fp8")


def test_int4_weights_are_multiplied_in_bf16() -> None:
    model = resolve_model("meta-llama/Llama-3.1-8B")
    found = _by_name(
        StepModel(model, card(), StepOptions(weights_dtype="int4"), ideal()).prefill(8192).operators
    )
    assert found["feed-forward"].seconds.mid == pytest.approx(found["feed-forward"].flops / 100e12)


def test_speculation_computes_all_drafts_and_yields_what_is_accepted() -> None:
    model = resolve_model("meta-llama/Llama-3.1-8B")
    options = StepOptions(speculation=Speculation(draft_tokens=4, accept_length=2.5))
    plain, drafting = (
        StepModel(model, card(), each, ideal()).decode(8, 8000) for each in (StepOptions(), options)
    )
    flops = [_by_name(each.operators)["feed-forward"].flops for each in (plain, drafting)]
    assert flops[1] == 4 * flops[0]
    assert drafting.token_seconds.mid == pytest.approx(drafting.seconds.mid / 2.5)


def test_own_drafting_layers_are_read_once_per_draft() -> None:
    model = resolve_model("Qwen/Qwen3.6-27B")
    options = StepOptions(speculation=Speculation(4, 3.0, draft_passes=3))
    found = _by_name(StepModel(model, card(), options, ideal()).decode(1, 100).operators)
    assert found["draft head"].bytes == pytest.approx(3 * 248_320 * 5120 * 2, rel=0.01)
    assert found["draft layers"].bytes == pytest.approx(3 * model.mtp_parameters * 2, rel=0.01)


def test_shares_add_up_and_ranges_hold_the_middle() -> None:
    step = StepModel(resolve_model("Qwen/Qwen3.6-27B"), card()).decode(32, 50_000)
    assert sum(operator.share for operator in step.operators) == pytest.approx(1.0)
    assert sum(operator.seconds.mid for operator in step.operators) == pytest.approx(step.gpu_seconds.mid)
    for operator in step.operators:
        assert operator.origin
        assert operator.source
        assert operator.achieved_fraction is None or 0.0 < operator.achieved_fraction <= 1.0
