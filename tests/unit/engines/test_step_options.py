"""What the step model is told of a planned server: widths, ranks, overlap, captured sizes, drafts."""

from __future__ import annotations

import pytest

from headrace.engines import step_options
from headrace.engines.sglang.step_options import captured_sizes as sglang_sizes
from headrace.engines.vllm.step_options import captured_sizes as vllm_sizes
from headrace.perf.options import StepOptions
from tests.unit.engines.planning import GOLDEN, card, plan


def _sglang(flags: str, version: str = "0.5.12", **more: object) -> StepOptions:
    return step_options(plan(flags, version=version, **more))  # type: ignore[arg-type]


def _vllm(flags: str, version: str = "0.33.0", **more: object) -> StepOptions:
    return step_options(plan(flags, engine="vllm", version=version, **more))  # type: ignore[arg-type]


def test_golden() -> None:
    found = _sglang(f"{GOLDEN} --mamba-ssm-dtype bfloat16")
    assert (found.engine, found.engine_version) == ("sglang", (0, 5, 12))
    assert (found.state_ssm_bytes, found.state_conv_bytes, found.kv_dtype_bytes) == (2.0, 2.0, 2.0)
    assert found.overlap
    assert found.chunk_tokens == 8192
    assert not found.mixes_prefill
    assert not found.prefill_graphs  # a multimodal architecture has none
    assert found.graphs is not None
    assert found.graphs[-1] == 256  # the engine's choice for a 96 GB card, tp < 4


def test_no_buffer_with_the_radix_cache_on_loses_the_overlap() -> None:
    lossy = GOLDEN.replace("extra_buffer", "no_buffer")
    assert not _sglang(lossy).overlap
    assert _sglang(lossy + " --disable-radix-cache").overlap


def test_sglangs_captured_sizes_are_those_its_log_prints() -> None:
    """1, 2, 4, 8, 12, 16 … 256 by 8, … 496 by 16, then by 32, and the largest (facts on engines §2.5)."""
    assert sglang_sizes(24) == (1, 2, 4, 8, 12, 16, 24)
    sizes = sglang_sizes(576)
    assert [size for size in sizes if size >= 240] == [240, 248, 256, *range(272, 512, 16), 512, 544, 576]
    assert sglang_sizes(20) == (1, 2, 4, 8, 12, 16, 20)
    assert sglang_sizes(48, drafts=4) == (*range(1, 9), *range(10, 33, 2), 40, 44, 48)


def test_vllms_captured_sizes() -> None:
    """1, 2, 4, 8 … 248 by 8, then by 16 (facts on engines §4)."""
    sizes = vllm_sizes(512)
    assert sizes[:5] == (1, 2, 4, 8, 16)
    assert [size for size in sizes if size >= 240] == [240, 248, *range(256, 513, 16)]


@pytest.mark.parametrize(
    ("flags", "graphs"),
    [
        ("--disable-cuda-graph", None),
        ("--cuda-graph-bs 8 1 4", (1, 4, 8)),
        ("--cuda-graph-max-bs 4", (1, 2, 4)),
    ],
)
def test_sglang_graphs_as_written(flags: str, graphs: tuple[int, ...] | None) -> None:
    assert _sglang(flags).graphs == graphs


def test_vllm_graphs_as_written() -> None:
    assert _vllm("--enforce-eager", model="Qwen/Qwen3-8B").graphs is None
    assert _vllm("--cudagraph-capture-sizes 4 1 2", model="Qwen/Qwen3-8B").graphs == (1, 2, 4)
    most = _vllm("--max-num-seqs 100", model="Qwen/Qwen3-8B").graphs
    assert most is not None
    assert most[-1] == 200  # twice the sequences


def test_speculation_is_priced_with_what_is_accepted() -> None:
    flags = "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1"
    found = step_options(plan(flags), accept_length=2.8).speculation
    assert found is not None
    assert (found.draft_tokens, found.accept_length, found.draft_passes) == (4, 2.8, 3)
    untold = step_options(plan(flags)).speculation
    assert untold is not None
    assert untold.accept_length == 1.0
    vllm = step_options(
        plan(
            '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 2}\'',
            engine="vllm",
            version="0.33.0",
        ),
        accept_length=2.5,
    ).speculation
    assert vllm is not None
    assert (vllm.draft_tokens, vllm.accept_length, vllm.draft_passes) == (3, 2.5, 2)


def test_ranks() -> None:
    moe = "Qwen/Qwen3-30B-A3B"
    found = _sglang("--tp 8 --dp 4 --enable-dp-attention --ep-size 8", model=moe, weights_gib=None)
    assert (found.tp, found.dp, found.ep, found.attention_tp) == (8, 4, 8, 2)
    shared = _vllm("--tensor-parallel-size 2 --data-parallel-size 4 --enable-expert-parallel", model=moe)
    assert (shared.tp, shared.dp, shared.ep, shared.attention_tp) == (8, 4, 8, 2)
    replicas = _vllm("--tensor-parallel-size 2 --data-parallel-size 4", model="Qwen/Qwen3-8B")
    assert (replicas.tp, replicas.dp) == (2, 1)


def test_dtypes() -> None:
    assert _sglang("--kv-cache-dtype fp8_e4m3").kv_dtype_bytes == 1.0
    assert _sglang("--quantization fp8").weights_dtype == "fp8"
    assert _sglang("--quantization modelopt_fp4").weights_dtype == "nvfp4"
    assert _sglang("").weights_dtype is None
    assert _vllm("--kv-cache-dtype fp8", model="Qwen/Qwen3-8B").kv_dtype_bytes == 1.0


def test_vllm_takes_prompts_along_and_overlaps_unless_told_otherwise() -> None:
    found = _vllm("", model="Qwen/Qwen3-8B", device=card(79.6, capability=9.0))
    assert found.mixes_prefill
    assert found.overlap
    assert found.prefill_graphs
    assert not _vllm("--no-async-scheduling", model="Qwen/Qwen3-8B").overlap
    assert not _vllm("--pipeline-parallel-size 2", model="Qwen/Qwen3-8B").overlap
