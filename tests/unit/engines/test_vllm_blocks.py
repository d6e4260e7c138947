"""vLLM's block pool: the worked figures of a 27B hybrid, what a request holds, and the printed capacity."""

from __future__ import annotations

import pytest

from headrace.engines.plan import GIB, MemoryPlan
from headrace.models.parse import geometry_from_config
from headrace.words import Constraint
from tests.unit.engines.planning import card
from tests.unit.engines.planning import plan as planned


def plan(flags: str, **options: object) -> MemoryPlan:
    return planned(flags, engine="vllm", **{"version": "0.33.0", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "tokens", "mebibytes"),
    # 16-token kernel alignment, no drafts: 784 tokens and 49 MiB, or 400 and 25
    [("auto", 784, 49), ("bfloat16", 400, 25)],
)
def test_attention_blocks_grow_to_a_state_page(dtype: str, tokens: int, mebibytes: int) -> None:
    found = plan(f"--kv-cache-memory-bytes 26.6GiB --max-num-seqs 64 --mamba-ssm-cache-dtype {dtype}")
    assert found.figure("block_tokens") == tokens
    assert found.figure("block_bytes") == mebibytes << 20


@pytest.mark.parametrize(("gib", "blocks"), [(26.61, 556), (44.94, 939), (48.38, 1011)])
def test_blocks_are_what_fits(gib: float, blocks: int) -> None:
    assert plan(f"--kv-cache-memory-bytes {int(gib * GIB)} --max-num-seqs 64").figure("blocks") == blocks


@pytest.mark.parametrize(
    ("flags", "version", "blocks"),
    [
        ("--no-enable-prefix-caching", "0.33.0", 5),  # 2 of attention + 3 × 1 of states
        ("", "0.33.0", 8),  # align: 2 + 3 × 2; prefix caching is on by default
        ("", "0.20.2", 5),  # and off in 0.20.2
        ("--enable-prefix-caching", "0.20.2", 8),
    ],
)
def test_blocks_of_a_request(flags: str, version: str, blocks: int) -> None:
    found = plan(
        f"--kv-cache-memory-bytes {int(26.61 * GIB)} --max-num-seqs 64 {flags}", version=version, context=1568
    )
    rung = next(rung for rung in found.ladder if rung.constraint is not Constraint.MAX_RUNNING_REQUESTS)
    assert rung.running.value == 555 // blocks
    state_heavy = blocks - 2 > 2
    assert rung.constraint is (Constraint.STATE_POOL if state_heavy else Constraint.KV_POOL)


def test_the_printed_capacity() -> None:
    # 556 blocks, align, 8,192 tokens: 17 blocks a request, 32.71 at once, 267,934 tokens
    found = plan(f"--kv-cache-memory-bytes {int(26.61 * GIB)} --max-num-seqs 64 --max-model-len 8192")
    assert found.figure("max_concurrency") == pytest.approx(32.71, abs=0.005)
    assert found.figure("kv_tokens") == pytest.approx(267_934, rel=1e-4)


def test_a_real_servers_pool() -> None:
    # vLLM 0.32.0 on a CPU (kernel blocks of 128, float32 states), 1 GiB for KV, three GDN layers and one of
    # attention; it printed: block 1152, state page padded by 9.92 %, 3,640 blocks, 931,840 tokens, 455.00x
    config = {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 128,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "decoder_sparse_step": 1,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "vocab_size": 2048,
    }
    found = plan(
        "--kv-cache-memory-bytes 1GiB --max-num-seqs 64 --block-size 128 --mamba-ssm-cache-dtype float32",
        model=geometry_from_config(config, "tiny"),
        version="0.32.0",
    )
    assert found.figure("block_tokens") == 1152
    assert "9.92 %" in found.figures["block_tokens"].source
    assert found.figure("blocks") == 3640
    assert found.figure("kv_tokens") == 931_840
    assert found.figure("max_concurrency") == 455


def test_a_dense_model_has_one_group() -> None:
    found = plan("--kv-cache-memory-bytes 10GiB --max-model-len 4096", model="Qwen/Qwen3-8B")
    # 36 layers × 8 heads × 256 × 2 B × 16 tokens
    assert found.figure("block_bytes") == 36 * 8 * 256 * 2 * 16
    assert found.figure("blocks") == 10 * GIB // (36 * 8 * 256 * 2 * 16)


def test_windows_hold_only_themselves() -> None:
    # gpt-oss-20b: 12 full and 12 window layers of 128 tokens, two groups of 12
    found = plan("--kv-cache-memory-bytes 10GiB", model="openai/gpt-oss-20b", context=16_000)
    assert found.figure("block_bytes") == 12 * 16 * 8 * 128 * 2
    rung = next(rung for rung in found.ladder if rung.constraint is Constraint.KV_POOL)
    blocks = int(found.figure("blocks") or 0)
    assert rung.running.value == (blocks - 1) // (1000 + 8 + 1)


def test_defaults_by_card() -> None:
    small, large = plan("", device=card(23.6), free_gib=22), plan("", device=card(95.6))
    huge = plan("", device=card(180))
    wanted = [("max_num_seqs", 256, 1024, 1024), ("max_num_batched_tokens", 2048, 8192, 16384)]
    for name, *expected in wanted:
        assert [found.settings[name] for found in (small, large, huge)] == expected
    assert plan("", device=card(180), version="0.20.2").settings["max_num_batched_tokens"] == 8192
    assert large.settings["gpu_memory_utilization"] == 0.92


def test_without_a_measured_figure_the_estimate_is_an_assumption() -> None:
    found = plan("--max-num-seqs 64")
    assert any("estimates" in text for text in found.assumptions)
    low, high = next(pool.bytes.range for pool in found.pools if pool.name == "peak activation")
    assert low < high


def test_drafts_cost_state_blocks() -> None:
    flags = (
        "--kv-cache-memory-bytes 26.6GiB --max-num-seqs 64 --no-enable-prefix-caching --speculative-config"
    )
    found = plan(flags + """ '{"method": "mtp", "num_speculative_tokens": 3}'""")
    # three groups of states, each 1 + 3 blocks
    assert found.figure("slots_per_request") == 4
