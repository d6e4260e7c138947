"""What SGLang and vLLM refuse at start, by version, and that the way out is said."""

from __future__ import annotations

import pytest

from tests.unit.engines.planning import card, plan

BASE = "--mem-fraction-static 0.85 --max-running-requests 64"
# (version, flags, words of the refusal); each refusal was seen from the engine's own parser or sizing code
REFUSED = [
    ("0.5.12", "--mamba-scheduler-strategy extra_buffer --disable-radix-cache", "no_buffer"),
    ("0.5.23", "--mamba-radix-cache-strategy no_buffer", "--disable-overlap-schedule"),
    ("0.5.14", "--mamba-scheduler-strategy no_buffer", "--disable-overlap-schedule"),
    ("0.5.23", "--mamba-scheduler-strategy extra_buffer", "--mamba-radix-cache-strategy"),
    ("0.5.12", "--mamba-radix-cache-strategy extra_buffer", "--mamba-scheduler-strategy"),
    ("0.5.6", "--mamba-scheduler-strategy extra_buffer", "0.5.7"),
    ("0.5.20", "--cuda-graph-max-bs 256", "--cuda-graph-max-bs-decode"),
    ("0.5.20", "--disable-piecewise-cuda-graph", "--cuda-graph-backend-prefill=disabled"),
    ("0.5.12", "--max-runing-requests 8", "--max-running-requests"),
    ("0.5.12", "--mamba-scheduler-strategy bogus", "auto, no_buffer, extra_buffer"),
    ("0.5.12", "--mamba-scheduler-strategy extra_buffer_lazy", "auto, no_buffer, extra_buffer"),
    ("0.5.23", "--mamba-radix-cache-strategy extra_buffer_lazy --disable-overlap-schedule", "extra_buffer"),
    (
        "0.5.23",
        "--disable-overlap-schedule --page-size 64 --mamba-radix-cache-strategy no_buffer",
        "page size 1",
    ),
    ("0.5.12", "--mamba-scheduler-strategy extra_buffer --page-size 48", "256"),
    ("0.5.12", "--speculative-algorithm NEXTN", "extra_buffer"),
    ("0.5.12", "--context-length 9999999", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
    ("0.5.12", "--tp-size 4 --dp-size 3 --enable-dp-attention", "divide"),
    ("0.5.12", "--max-running-requests many", "whole number"),
]


@pytest.mark.parametrize(("version", "flags", "words"), REFUSED)
def test_sglang_refuses(version: str, flags: str, words: str) -> None:
    found = plan(f"{BASE} {flags}", version=version)
    assert not found.would_start
    assert words in " ".join(found.refusals)
    assert found.cap is None
    assert found.ladder == ()


ACCEPTED = [
    ("0.5.12", "--mamba-scheduler-strategy no_buffer"),  # it switches the overlap off itself
    ("0.5.12", "--mamba-scheduler-strategy no_buffer --disable-radix-cache"),
    ("0.5.23", "--disable-radix-cache --mamba-radix-cache-strategy extra_buffer"),  # ignored, not refused
    ("0.5.19", "--mamba-scheduler-strategy extra_buffer"),  # an alias still
    ("0.5.12", "--tp 2"),  # argparse takes an unambiguous beginning
    ("0.5.12", "--mem-fraction-static=0.9"),
    ("0.5.23", "--attn-dp-size 1"),
]


@pytest.mark.parametrize(("version", "flags"), ACCEPTED)
def test_sglang_accepts(version: str, flags: str) -> None:
    assert plan(f"{BASE} {flags}", version=version).refusals == ()


def test_what_is_forced_is_warned_of() -> None:
    found = plan(f"{BASE} --mamba-scheduler-strategy no_buffer --page-size 16")
    texts = " ".join(notice.text for notice in found.settings.notices)
    assert "overlap scheduler is switched off" in texts
    assert "--page-size 16 becomes 1" in texts
    assert found.settings["page_size"] == 1


def test_extra_buffers_came_to_mamba2_models_later() -> None:
    flags = f"{BASE} --mamba-scheduler-strategy extra_buffer"
    model = "nvidia/Nemotron-H-56B-Base-8K"
    assert "0.5.14" in plan(flags, model=model, free_gib=178, weights_gib=105).refusals[0]
    assert plan(flags, model=model, version="0.5.14", free_gib=178, weights_gib=105).would_start


@pytest.mark.parametrize("version", ["0.5.12", "0.5.23"])
def test_no_memory_for_kv_is_a_refusal(version: str) -> None:
    found = plan("--mem-fraction-static 0.5", version=version)
    assert not found.would_start
    assert "--mem-fraction-static" in found.refusals[-1]


def test_vllm_refuses_more_sequences_than_state_blocks() -> None:
    found = plan(
        "--kv-cache-memory-bytes 20GiB --max-num-seqs 1024 --max-model-len 8192",
        engine="vllm",
        version="0.33.0",
    )
    # a block is 49 MiB: 417 of them
    assert "--max-num-seqs 417" in found.refusals[0]
    eager = "--kv-cache-memory-bytes 20GiB --max-num-seqs 1024 --max-model-len 8192 --enforce-eager"
    assert plan(eager, engine="vllm", version="0.33.0").would_start


def test_vllm_refuses_a_context_that_does_not_fit_once() -> None:
    found = plan(
        "--kv-cache-memory-bytes 1GiB",
        engine="vllm",
        version="0.33.0",
        model="Qwen/Qwen3-32B",
        device=card(23.6),
    )
    assert "--max-model-len" in found.refusals[0]


@pytest.mark.parametrize(
    ("version", "flags", "words"),
    [
        ("0.33.0", "--mamba-cache-mode all --enable-prefix-caching", "align"),
        ("0.33.0", "--max-num-sequences 4", "--max-num-seqs"),
        ("0.33.0", "--speculative-config notjson", "JSON"),
        ("0.20.2", "--gpu-memory-utilization 1.4", "fraction"),
    ],
)
def test_vllm_refuses(version: str, flags: str, words: str) -> None:
    found = plan(f"--kv-cache-memory-bytes 20GiB --max-num-seqs 64 {flags}", engine="vllm", version=version)
    assert words in " ".join(found.refusals)
