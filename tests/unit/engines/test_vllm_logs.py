"""vLLM's log lines, V0 and V1, by shape and version; every number is this file's own."""

from __future__ import annotations

import pytest

from headrace.engines.vllm.logs import parse_line

HEADER = "(APIServer pid=41) INFO 02-03 04:05:06 [loggers.py:99] "
# shape → (message, values, ranks)
STATISTICS = {
    "V1": (
        "Engine 003: Avg prompt throughput: 512.5 tokens/s, Avg generation throughput: 1024.0 tokens/s, "
        "Running: 48 reqs, Waiting: 7 reqs, GPU KV cache usage: 62.5%, Prefix cache hit rate: 25.0%",
        {
            "prefill_tokens_per_s": 512.5,
            "output_tokens_per_s": 1024,
            "running": 48,
            "queued": 7,
            "kv_usage": 0.625,
            "cache_hit_rate": 0.25,
        },
        {"engine": 3},
    ),
    "V1 with preemptions, deferred and other caches": (
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 10.0 tokens/s, "
        "Running: 4 reqs, Waiting: 30 reqs, Deferred: 2 reqs, Preemptions: 5, GPU KV cache usage: 99.5%, "
        "External prefix cache hit rate: 10.0%, MM cache hit rate: 50.0%",
        {
            "prefill_tokens_per_s": 0,
            "output_tokens_per_s": 10,
            "running": 4,
            "queued": 30,
            "deferred": 2,
            "preemptions": 5,
            "kv_usage": 0.995,
            "external_cache_hit_rate": 0.1,
            "multimodal_cache_hit_rate": 0.5,
        },
        {"engine": 0},
    ),
    "V1 on a CPU": (
        "Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, "
        "Running: 3 reqs, Waiting: 4 reqs, CPU KV cache usage: 12.5%, Prefix cache hit rate: 0.0%",
        {
            "prefill_tokens_per_s": 1,
            "output_tokens_per_s": 2,
            "running": 3,
            "queued": 4,
            "kv_usage": 0.125,
            "cache_hit_rate": 0,
        },
        {"engine": 0},
    ),
    "V0": (
        "Avg prompt throughput: 6.5 tokens/s, Avg generation throughput: 70.0 tokens/s, Running: 9 reqs, "
        "Swapped: 1 reqs, Pending: 13 reqs, GPU KV cache usage: 87.5%, CPU KV cache usage: 2.5%.",
        {
            "prefill_tokens_per_s": 6.5,
            "output_tokens_per_s": 70,
            "running": 9,
            "swapped": 1,
            "queued": 13,
            "kv_usage": 0.875,
            "swap_usage": 0.025,
        },
        {},
    ),
    "several engines in one line": (
        "4 Engines Aggregated: Avg prompt throughput: 8.0 tokens/s, Avg generation throughput: 16.0 "
        "tokens/s, "
        "Running: 32 reqs, Waiting: 64 reqs, GPU KV cache usage: 50.0%, Prefix cache hit rate: 5.0%",
        {
            "engines": 4,
            "prefill_tokens_per_s": 8,
            "output_tokens_per_s": 16,
            "running": 32,
            "queued": 64,
            "kv_usage": 0.5,
            "cache_hit_rate": 0.05,
        },
        {},
    ),
    "one step": (
        "Engine 001: Iteration(55): 2 context requests, 640 context tokens, 14 generation requests, "
        "15 generation tokens, iteration elapsed time: 21.50 ms, GPU KV cache usage: 40.0%",
        {
            "iteration": 55,
            "prefill_requests": 2,
            "new_tokens": 640,
            "running": 14,
            "output_tokens": 15,
            "step_ms": 21.5,
            "kv_usage": 0.4,
        },
        {"engine": 1},
    ),
}


@pytest.mark.parametrize("shape", STATISTICS)
def test_a_statistics_line_is_read_by_key(shape: str) -> None:
    text, values, ranks = STATISTICS[shape]
    found = parse_line(HEADER + text)
    assert found is not None
    assert (found.kind, found.engine, dict(found.ranks)) == ("stats", "vllm", ranks)
    assert found.values == pytest.approx(values)
    assert not found.unknown


def test_the_year_that_is_not_written_is_2000() -> None:
    found = parse_line(HEADER + STATISTICS["V1"][0])
    assert found is not None
    assert found.time_seconds == 949550706  # date -u -d "2000-02-03 04:05:06" +%s


def test_speculation() -> None:
    found = parse_line(
        "(APIServer pid=41) INFO 02-03 04:05:06 [metrics.py:9] SpecDecoding metrics: Mean acceptance "
        "length: 2.75, "
        "Accepted throughput: 12.50 tokens/s, Drafted throughput: 20.00 tokens/s, Accepted: 125 tokens, "
        "Drafted: 200 tokens, Per-position acceptance rate: 0.900, 0.350, Avg Draft acceptance rate: 62.5%"
    )
    assert found is not None
    assert found.kind == "speculation"
    assert found.values == pytest.approx(
        {
            "accept_length": 2.75,
            "accepted_tokens_per_s": 12.5,
            "drafted_tokens_per_s": 20,
            "accepted_tokens": 125,
            "drafted_tokens": 200,
            "accept_rate_first": 0.9,
            "accept_rate": 0.625,
        }
    )


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("GPU KV cache size: 123,456 tokens", "capacity", {"kv_capacity_tokens": 123456}),
        (
            "Maximum concurrency for 4,096 tokens per request: 30.14x",
            "capacity",
            {"max_context": 4096, "max_concurrency": 30.14},
        ),
        (
            "GPU KV cache size: 123,456 tokens, Maximum concurrency for 4,096 tokens per request: 30.14x",
            "capacity",
            {"kv_capacity_tokens": 123456, "max_context": 4096, "max_concurrency": 30.14},
        ),
        ("# GPU blocks: 3210, # CPU blocks: 512", "capacity", {"pool_blocks": 3210, "swap_blocks": 512}),
        ("Available KV cache memory: 21.75 GiB", "capacity", {"kv_pool_gib": 21.75}),
        (
            "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba "
            "page size.",
            "capacity",
            {"attention_block_tokens": 544},
        ),
        (
            "Model loading took 14.9888 GiB memory and 3.250000 seconds",
            "memory",
            {"weights_gib": 14.9888, "seconds": 3.25},
        ),
        (
            "Graph capturing finished in 12 secs, took 0.75 GiB",
            "memory",
            {"seconds": 12, "used_gib": 0.75},
        ),
        (
            "Chunked prefill is enabled with max_num_batched_tokens=2048.",
            "settings",
            {"max_num_batched_tokens": 2048},
        ),
        ("vLLM API server version 0.15.2", "boot", {"version": "0.15.2"}),
        ("Resolved architecture: FancyForCausalLM", "boot", {"architecture": "FancyForCausalLM"}),
    ],
)
def test_a_line_of_the_start(text: str, kind: str, values: dict[str, float | str]) -> None:
    found = parse_line("(EngineCore_DP0 pid=1) INFO 02-03 04:05:06 [core.py:9] " + text)
    assert found is not None
    assert found.kind == kind
    assert found.values == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "non-default args: {'model_tag': 'org/m', 'api_key': ['sk-very-secret-thing'], "
            "'max_num_seqs': 24, "
            "'gpu_memory_utilization': 0.88, 'enforce_eager': True, "
            "'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 2, 'model': 'draft'}}",
            {
                "model_tag": "org/m",
                "max_num_seqs": 24,
                "gpu_memory_utilization": 0.88,
                "enforce_eager": 1,
                "speculative_method": "mtp",
                "speculative_tokens": 2,
            },
        ),
        (
            "args: Namespace(host=None, port=8000, api_key='sk-very-secret-thing', model='org/m', "
            "swap_space=4.0)",
            {"model": "org/m", "swap_space": 4},
        ),
        (
            "Initializing a V1 LLM engine (v0.15.2) with config: model='org/m', speculative_config="
            "SpeculativeConfig(method='eagle', model='draft', num_spec_tokens=3), dtype=torch.bfloat16, "
            "max_seq_len=5000, tensor_parallel_size=2, kv_cache_dtype=fp8, "
            "compilation_config={'max_num_seqs': 7, 'mode': <Mode.NONE: 0>}, enable_prefix_caching=False",
            {
                "model": "org/m",
                "speculative_method": "eagle",
                "speculative_tokens": 3,
                "dtype": "torch.bfloat16",
                "max_seq_len": 5000,
                "tensor_parallel_size": 2,
                "kv_cache_dtype": "fp8",
                "enable_prefix_caching": 0,
                "version": "0.15.2",
            },
        ),
    ],
)
def test_settings_by_allow_list_never_a_key(text: str, values: dict[str, float | str]) -> None:
    found = parse_line("(APIServer pid=1) INFO 02-03 04:05:06 [utils.py:9] " + text)
    assert found is not None
    assert found.kind == "settings"
    assert found.values == values
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("text", "kind", "failure", "values"),
    [
        (
            "ValueError: max_num_seqs (300) exceeds available Mamba cache blocks (211). Each decode "
            "sequence …",
            "failure",
            "state_blocks_too_few",
            {"max_num_seqs": 300, "pool_blocks": 211},
        ),
        (
            "ValueError: To serve at least one request with the model's max seq len (9000), (3.50 GiB "
            "KV cache is "
            "needed, which is larger than the available KV cache memory (2.25 GiB). Based on the available "
            "memory, the estimated maximum model length is 5700. Try increasing …",
            "failure",
            "context_does_not_fit",
            {"max_model_len": 9000, "needed_gib": 3.5, "kv_pool_gib": 2.25, "longest": 5700},
        ),
        (
            "ValueError: Free memory on device cuda:0 (10.25/79.50 GiB) on startup is less than "
            "desired GPU "
            "memory utilization (0.9, 71.55 GiB). Decrease …",
            "failure",
            "memory_taken_by_others",
            {"free_gib": 10.25, "total_gib": 79.5},
        ),
        (
            "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            "failure",
            "engine_dead",
            {},
        ),
        (
            "No available shared memory broadcast block found in 60 seconds. This typically happens …",
            "warning",
            "worker_waits",
            {"seconds": 60},
        ),
    ],
)
def test_a_warning_or_crash_has_its_id(text: str, kind: str, failure: str, values: dict[str, float]) -> None:
    found = parse_line("(EngineCore pid=1) ERROR 02-03 04:05:06 [core.py:9] " + text)
    assert found is not None
    assert (found.kind, found.failure) == (kind, failure)
    assert found.values == pytest.approx(values)


def test_a_preemption_of_v0() -> None:
    found = parse_line(
        "WARNING 02-03 04:05:06 scheduler.py:1057] Sequence group 7 is preempted by "
        "PreemptionMode.RECOMPUTE mode "
        "because there is not enough KV cache space. This can affect … total_num_cumulative_preemption=51"
    )
    assert found is not None
    assert (found.kind, found.failure) == ("retraction", "no_kv_space_preemption")
    assert found.values == {"mode": "RECOMPUTE", "preemptions": 51}


def test_an_uncatalogued_warning_is_kept_without_an_id_and_scrubbed() -> None:
    found = parse_line("WARNING 02-03 04:05:06 [x.py:1] the flux is low, see https://me:pass@host/x?a=1")
    assert found is not None
    assert (found.kind, found.failure) == ("warning", "")
    assert found.text == "the flux is low, see https://[redacted]@host/x?a=1"


@pytest.mark.parametrize(
    "text",
    [
        "(Worker pid=1) ERROR 02-03 04:05:06 [m.py:9] Traceback (most recent call last):",
        '(Worker pid=1) ERROR 02-03 04:05:06 [m.py:9]   File "/x/y.py", line 3, in f',
        "(Worker pid=1) ERROR 02-03 04:05:06 [m.py:9]     raise RuntimeError('CUDA out of memory')",
        "(Worker pid=1) ERROR 02-03 04:05:06 [m.py:9]            ^^^^^^^^^",
    ],
)
def test_a_line_of_a_trace_is_no_failure_of_its_own(text: str) -> None:
    found = parse_line(text)
    assert found is not None
    assert found.kind == "traceback"


@pytest.mark.parametrize(
    "text",
    [
        "INFO 02-03 04:05:06 [logger.py:43] Received request cmpl-1: prompt: 'my diary', params: "
        "SamplingParams(…)",
        "ERROR 02-03 04:05:06 [dump_input.py:9] Dumping input data for V1 LLM engine: my diary",
    ],
)
def test_nothing_of_a_logged_prompt_is_kept(text: str) -> None:
    found = parse_line(text)
    assert found is not None
    assert "diary" not in str(found)


@pytest.mark.parametrize(
    "text",
    ["", "Engine 000: ", "Running on fumes", "[2026-02-03 04:05:06] Avg prompt throughput: 1.0 tokens/s"],
)
def test_what_says_nothing_is_nothing(text: str) -> None:
    assert parse_line(text) is None
