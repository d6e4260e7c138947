"""Single lines as people posted them, each with the thread or repository it was read in."""

from __future__ import annotations

import pytest

from headrace.engines.log_reader import parse_line

SEEN = {
    "the bracket lost in the paste (sgl-project/sglang#16526)": (
        "2026-01-04 03:36:55 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, "
        "avail mem=29.60 GB, mem usage=31.01 GB.",
        "memory",
        {"weights_gib": 31.01, "free_gib": 29.60},
        {"tp": 0},
    ),
    "a date of another program before vLLM's header (vllm-project/vllm#6206)": (
        "[2024-07-08 15:17:34] INFO 07-08 07:17:34 metrics.py:334] Avg prompt throughput: 6501.4 tokens/s, "
        "Running: 4 reqs, GPU KV cache usage: 15.6%, CPU KV cache usage: 0.0%",
        "stats",
        {"running": 4, "kv_usage": 0.156, "swap_usage": 0},
        {},
    ),
    "a time stamp and a bar before the header (sgl-project/sglang#24589)": (
        "2026-06-09 12:30:37.557 | [2026-06-09 09:30:37] SWAKVPool mem usage: 10.24 GB, swa size: 102292, "
        "full size: 127866",
        "capacity",
        {"swa_capacity_tokens": 102_292, "kv_capacity_tokens": 127_866},
        {},
    ),
    "Ascend's room for the KV pool (sgl-project/sglang#17157)": (
        "[2026-01-15 13:56:49 DP0 TP0] The available memory for KV cache is 17.67 GB.",
        "capacity",
        {"kv_pool_gib": 17.67},
        {"dp": 0, "tp": 0},
    ),
    "the longest request in a batch (sgl-project/sglang#4407)": (
        "[2025-03-14 02:16:14 TP0] Decode batch. #running-req: 509, #token: 180776, largest-len: 0, "
        "#queue-req: 0, ",
        "decode",
        {"running": 509, "kv_used_tokens": 180_776, "longest_request_tokens": 0},
        {"tp": 0},
    ),
    "the fraction that a multimodal model gets (allenai/olmocr#105)": (
        "[2025-03-07 23:50:27 TP0] Automatically reduce --mem-fraction-static to 0.760 because this is a "
        "multimodal model.",
        "settings",
        {"mem_fraction_static": 0.76},
        {"tp": 0},
    ),
    "V0's hit rates on a line of their own (vllm-project/vllm#18674)": (
        "INFO 05-25 06:50:29 [metrics.py:502] Prefix cache hit rate: GPU: 12.50%, CPU: 90.00%",
        "stats",
        {"cache_hit_rate": 0.125, "cpu_cache_hit_rate": 0.9},
        {},
    ),
    "V0's profile, 0.6 (vllm-project/vllm#10517)": (
        "Memory profiling results: total_gpu_memory=23.58GiB non_torch_memory=0.35GiB kv_cache_size=3.81GiB "
        "gpu_memory_utilization=0.90",
        "capacity",
        {"kv_pool_gib": 3.81},
        {},
    ),
    "a KV pool of a stated size (SergiioB/intel-arc-pro-b70-inference-cookbook#4)": (
        "(EngineCore pid=316) INFO 08-21 18:37:44 [gpu_worker.py:492] Initial free memory 31.16 GiB, "
        "reserved 4.25 GiB memory for KV Cache as specified by kv_cache_memory_bytes config and skipped "
        "memory profiling.",
        "capacity",
        {"kv_pool_gib": 4.25},
        {},
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_it_says(name: str) -> None:
    text, kind, values, ranks = SEEN[name]
    found = parse_line(text)
    assert found is not None
    assert found.kind == kind
    assert {word: found.number(word) for word in values} == pytest.approx(values)
    assert dict(found.ranks) == ranks
    assert not found.unknown


FAILURES = {
    # sgl-project/sglang#11648
    "[2025-10-15 11:03:35 DP6 TP6 EP6] Some requests fail to receive KV Cache transfer done signal after "
    "bootstrapping.": ("failure", "transfer_failed"),
    # shun8686/for_debug, a log of SGLang on Ascend
    "[2026-01-12 04:57:32] modelslim quantization is not fully optimized yet. The speed can be slower than "
    "non-quantized models.": ("warning", "kernel_untuned"),
    # fpolica91/triton-example, vllm.log
    "(Worker_TP2 pid=54564) [aiter] shape is M:8192, N:2624, K:6144, not found tuned config in /x.csv, will "
    "use default config!": ("warning", "library_untuned"),
    "(APIServer pid=53764) [aiter] WARNING: NUMA balancing is enabled, which may cause errors.": (
        "warning",
        "numa_balancing",
    ),
    # kolyangg/mlops-assignment, logs/vllm.log
    "(APIServer pid=1288829) WARNING:  Invalid HTTP request received.": ("note", "not_http"),
    # zjpzhao/vllm-qwen3vl-cu118-t4
    "LLVM ERROR: Unsupported rounding mode for conversion.": ("failure", "kernel_build_failed"),
}


@pytest.mark.parametrize("text", FAILURES)
def test_its_failure_is_known(text: str) -> None:
    found = parse_line(text)
    assert found is not None
    assert (found.kind, found.failure) == FAILURES[text]


def test_a_warning_of_a_process_that_vllm_labelled_is_its_own() -> None:
    said = "(APIServer pid=7) WARNING:  something that nobody has met"
    found = parse_line(said)
    assert found is not None
    assert (found.engine, found.kind) == ("vllm", "warning")
    assert parse_line(said.partition(") ")[2]) is None
