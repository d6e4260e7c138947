"""Reading the free text of a benchmark row: GPU, model and dtype, layout, load, speculation."""

from __future__ import annotations

import pytest

from headrace.forecast.gpu_name import device_of
from headrace.forecast.layout import layout_of
from headrace.forecast.load import Batch, ClosedLoop, Decoding, OpenLoop, Saturated, load_of, speculation_of
from headrace.forecast.model_name import form_of, model_of
from headrace.forecast.reason import CannotJudge
from headrace.forecast.row import Row, number, read_row


def row(**cells: object) -> Row:
    return read_row({key: str(value) for key, value in cells.items()})


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1024", 1024.0),
        ("1,024.5", 1024.5),
        (" 7 ", 7.0),
        ("1e3", 1000.0),
        ("8xH100", None),
        ("nan", None),
        ("1e400", None),
        ("", None),
        (None, None),
        (True, None),
    ],
)
def test_a_cell_is_a_number_only_as_a_whole(cell: object, value: float | None) -> None:
    assert number(cell) == value


# ── GPU ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("told", "device"),
    [
        ("H100 (form not stated)", "H100 SXM"),
        ("A100 (form/memory not stated)", "A100 SXM 40GB"),  # the smaller: what fits it fits both
        ("GH200", "GH200 96GB"),
        ("RTX PRO 6000 Blackwell (edition not stated)", "RTX PRO 6000 Blackwell Server"),
        ("A100 PCIe 80GB", "A100 PCIe 80GB"),
    ],
)
def test_a_gpu_without_its_form_is_the_usual_server_card(told: str, device: str) -> None:
    assert device_of(told).name == device


def test_one_gpu_of_a_card_with_two_dies_is_one_die() -> None:
    die = device_of("MI250")  # 128 GB and 3.2 TB/s are the card's (amd.com)
    assert die.memory_bytes_per_second is not None
    assert die.memory_bytes_per_second.value == pytest.approx(1.6e12, rel=0.05)
    assert die.memory_bytes.value == pytest.approx(64 * 2**30, rel=0.05)


@pytest.mark.parametrize("told", ["", "(not stated)", "Apple M9 Max", "SN40L", "x" * 5000])
def test_an_unknown_gpu_is_a_reason(told: str) -> None:
    with pytest.raises(CannotJudge):
        device_of(told)


# ── model and dtype ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("name", "dtype", "gigabytes"),
    [
        # parameters as their makers state them: 8.03, 70.6, 6.74, 7.62, 72.7, 7.25, 684 billion
        ("meta-llama/Meta-Llama-3-8B", "", 16.06),
        ("meta-llama/Llama-3.1-8B-Instruct", "FP16", 16.06),
        ("meta-llama/Llama-3.1-70B", "bf16", 141.1),
        ("meta-llama/Llama-2-7b-chat-hf", "", 13.48),
        ("Qwen/Qwen2-7B", "", 15.23),
        ("Qwen/Qwen2-72B", "", 145.4),
        ("mistralai/Mistral-7B-Instruct-v0.3", "", 14.5),
        ("Qwen/Qwen1.5-7B", "", 15.44),  # 7.72 billion
        ("01-ai/Yi-6B-Chat", "", 12.12),  # 6.06 billion
        ("BAAI/Aquila-7B", "", 14.59),  # LLaMA's 6.48 billion in layers, 100,008 words twice
        # llama.cpp prints these file sizes itself: 7.54 GiB for Qwen2.5-Coder-7B-Q8_0
        ("ggml-org/Qwen2.5-Coder-7B-Q8_0-GGUF", "Q8_0 (7.54 GiB)", 8.10),
    ],
)
def test_the_weights_of_a_named_model_have_their_published_size(
    name: str, dtype: str, gigabytes: float
) -> None:
    assert model_of(name, dtype).weight_bytes(1, vision=False).value / 1e9 == pytest.approx(
        gigabytes, rel=0.02
    )


@pytest.mark.parametrize(
    ("name", "dtype", "method"),
    [
        ("MiniMaxAI/MiniMax-M2.5", "fp4", "nvfp4"),
        ("MiniMaxAI/MiniMax-M2.5", "", "fp8"),  # published in fp8
        ("Qwen/Qwen3.5-397B-A17B", "fp8", "fp8"),
        ("QuantTrio/Qwen3.5-397B-A17B-AWQ", "AWQ int4", "awq"),
        ("deepseek-ai/DeepSeek-R1-0528", "", "fp8"),
        ("openai/gpt-oss-120b", "fp8", "mxfp4"),  # published in MXFP4 alone: fp8 are its activations
        ("google/gemma-4-31B-it", "", None),  # only the NVFP4 sibling is built in
        ("moonshotai/Kimi-K2.5", "int4", "int4"),
        ("zhipuai/GLM-5", "fp8", "fp8"),
    ],
)
def test_the_stored_form_is_the_tables_or_the_checkpoints(name: str, dtype: str, method: str | None) -> None:
    assert model_of(name, dtype).quantisation.method == method


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("", ""), ("MoE models (preview)", ""), ("acme/Unheard-7B", "fp8"), ("Qwen/Qwen3-8B", "ternary")],
)
def test_an_unknown_model_or_dtype_is_a_reason(name: str, dtype: str) -> None:
    with pytest.raises(CannotJudge):
        model_of(name, dtype)


def test_a_dtype_cell_names_a_form() -> None:
    assert form_of("NVFP4 via Marlin W4A16 fallback") == "nvfp4"
    assert form_of("fp16/bf16 (16 bit)") == "plain"
    assert form_of("UNSET") is None


# ── layout ────────────────────────────────────────────────────────────────────────────────────────────────
AIC = "github:ai-dynamo/aiconfigurator@095f58a:silicon_sample.csv"


def test_a_multiplied_layout_is_read_as_its_factors() -> None:
    found = layout_of(row(n_gpus=16, tp=16, ep=4, source=AIC))
    assert (found.tp, found.ep, found.gpus) == (4, 4, 4)
    found = layout_of(row(n_gpus=64, tp=64, ep=8, source=AIC))
    assert (found.tp, found.ep) == (8, 8)
    assert layout_of(row(n_gpus=16, tp=16, source="another")).tp == 16


def test_without_tp_all_gpus_are_one_group() -> None:
    assert layout_of(row(n_gpus=4)).tp == 4
    assert layout_of(row(n_gpus=8, pp=2)).tp == 4


@pytest.mark.parametrize("cells", [{}, {"tp": 6}, {"tp": 72, "n_gpus": 72}, {"n_gpus": 3}])
def test_a_layout_that_is_not_clear_is_a_reason(cells: dict[str, int]) -> None:
    with pytest.raises(CannotJudge):
        layout_of(row(**cells))


# ── load ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_kinds_of_load() -> None:
    lengths = {"input_len": 1024, "output_len": 256}
    closed = row(load_kind="closed_loop_concurrency", concurrency=32, **lengths)
    assert load_of(closed) == ClosedLoop(32, 1024, 256)
    assert load_of(row(concurrency=32, **lengths)) == ClosedLoop(32, 1024, 256)
    assert load_of(row(load_kind="offline_static_batch", batch_size=16, **lengths)) == Batch(16, 1024, 256)
    full = row(load_kind="offline_max_throughput_inf_rate", **lengths)
    assert load_of(full) == Saturated(1024, 256)
    assert load_of(row(load_kind="open_loop_rate", request_rate=2, **lengths)) == OpenLoop(2, 1024, 256)
    assert load_of(row(load_kind="sustained_decode", concurrency=8, context_len=0)) == Decoding(8, 1.0)


@pytest.mark.parametrize(
    "cells",
    [
        {"load_kind": "closed_loop_concurrency", "concurrency": 8},
        {"load_kind": "closed_loop_concurrency", "input_len": 10, "output_len": 10},
        {"load_kind": "single_prefill", "concurrency": 1, "input_len": 8192},
        {"load_kind": "mlperf_offline", "output_len": 300},
        {"load_kind": "offline_static_batch", "batch_size": 16, "input_len": 1024, "output_len": 1},
        {"concurrency": 1e9, "input_len": 10, "output_len": 10},
    ],
)
def test_a_load_that_is_not_stated_is_a_reason(cells: dict[str, object]) -> None:
    with pytest.raises(CannotJudge):
        load_of(row(**cells))


def test_a_shared_context_is_read_from_memory_once_and_then_from_the_cache() -> None:
    told = row(
        load_kind="sustained_decode", concurrency=8, context_len=1000, notes="context already prefilled"
    )
    found = load_of(told)
    assert isinstance(found, Decoding)
    assert found.shares_context
    # one reading at the memory's rate, seven at 2.4 times that, shared among eight requests
    assert found.tokens_read == pytest.approx(1000 * (1 + 7 / 2.4) / 8)


def test_speculation_counts_only_with_what_it_yields() -> None:
    assert speculation_of(row(spec_decode="none")) is None
    assert speculation_of(row()) is None
    found = speculation_of(row(spec_decode="MTP, 4 draft tokens, accept length 3.31"))
    assert found is not None
    assert (found.draft_tokens, found.accept_length, found.draft_passes) == (4, 3.31, 3)
    for told in ("mtp num_speculative_tokens=2", "NEXTN", "MTP, 2 draft tokens, accept length 9"):
        with pytest.raises(CannotJudge):
            speculation_of(row(spec_decode=told))
