"""SGLang's log lines by shape and version; every number is this file's own."""

from __future__ import annotations

import pytest

from headrace.engines.log_event import KINDS
from headrace.engines.sglang.logs import parse_line

HEADER = "[2026-02-03 04:05:06 TP0] "
# shape → (line, kind, values)
BATCHES = {
    "0.4 decode, a point after batch and a comma at the end": (
        "Decode batch. #running-req: 11, #token: 2048, token usage: 0.31, gen throughput (token/s): 77.25, "
        "#queue-req: 6, ",
        "decode",
        {
            "running": 11,
            "kv_used_tokens": 2048,
            "kv_usage": 0.31,
            "output_tokens_per_s": 77.25,
            "queued": 6,
        },
    ),
    "0.3 prefill with a hit rate": (
        "Prefill batch. #new-seq: 2, #new-token: 900, #cached-token: 100, cache hit rate: 12.50%, "
        "token usage: 0.02, #running-req: 1, #queue-req: 0",
        "prefill",
        {
            "new_requests": 2,
            "new_tokens": 900,
            "cached_tokens": 100,
            "cache_hit_rate": 0.125,
            "kv_usage": 0.02,
            "running": 1,
            "queued": 0,
        },
    ),
    "0.5.5 with speculation": (
        "Decode batch, #running-req: 3, #token: 17, token usage: 0.00, accept len: 2.25, accept rate: "
        "0.42, "
        "cuda graph: False, gen throughput (token/s): 9.50, #queue-req: 1, ",
        "decode",
        {
            "running": 3,
            "kv_used_tokens": 17,
            "kv_usage": 0.0,
            "accept_length": 2.25,
            "accept_rate": 0.42,
            "cuda_graph": 0,
            "output_tokens_per_s": 9.5,
            "queued": 1,
        },
    ),
    "hybrid decode": (
        "Decode batch, #running-req: 21, #full token: 33000, full token usage: 0.44, mamba num: 63, "
        "mamba usage: 0.60, cuda graph: True, gen throughput (token/s): 410.10, #queue-req: 9",
        "decode",
        {
            "running": 21,
            "kv_used_tokens": 33000,
            "kv_usage": 0.44,
            "state_used_slots": 63,
            "state_usage": 0.6,
            "cuda_graph": 1,
            "output_tokens_per_s": 410.1,
            "queued": 9,
        },
    ),
    "hybrid prefill on another accelerator, with the iteration": (
        "Prefill batch [812], #new-seq: 4, #new-token: 4096, #cached-token: 64, full token usage: 0.10, "
        "mamba usage: 0.25, #running-req: 13, #queue-req: 40, #pending-token: 51200, npu graph: False, "
        "input throughput (token/s): 9001.00",
        "prefill",
        {
            "iteration": 812,
            "new_requests": 4,
            "new_tokens": 4096,
            "cached_tokens": 64,
            "kv_usage": 0.1,
            "state_usage": 0.25,
            "running": 13,
            "queued": 40,
            "pending_tokens": 51200,
            "cuda_graph": 0,
            "prefill_tokens_per_s": 9001,
        },
    ),
    "sliding window": (
        "Decode batch, #running-req: 5, #full token: 700, full token usage: 0.07, #swa token: 128, "
        "swa token usage: 0.64, cuda graph: True, gen throughput (token/s): 55.00, #queue-req: 0",
        "decode",
        {
            "running": 5,
            "kv_used_tokens": 700,
            "kv_usage": 0.07,
            "swa_used_tokens": 128,
            "swa_usage": 0.64,
            "cuda_graph": 1,
            "output_tokens_per_s": 55,
            "queued": 0,
        },
    ),
    "prefill-decode disaggregation": (
        "Decode batch, #running-req: 8, #token: 90, token usage: 0.09, pre-allocated usage: 0.11, "
        "#prealloc-req: 3, #transfer-req: 2, #retracted-req: 1, cuda graph: True, "
        "gen throughput (token/s): 80.00, #queue-req: 4, fwd occupancy: 62.50%",
        "decode",
        {
            "running": 8,
            "kv_used_tokens": 90,
            "kv_usage": 0.09,
            "prealloc_usage": 0.11,
            "prealloc": 3,
            "transferring": 2,
            "retracted_waiting": 1,
            "cuda_graph": 1,
            "output_tokens_per_s": 80,
            "queued": 4,
            "forward_share": 0.625,
        },
    ),
}


@pytest.mark.parametrize("shape", BATCHES)
def test_a_batch_line_is_read_by_key(shape: str) -> None:
    text, kind, values = BATCHES[shape]
    found = parse_line(HEADER + text)
    assert found is not None
    assert (found.kind, found.engine, dict(found.ranks)) == (kind, "sglang", {"tp": 0})
    assert found.values == pytest.approx(values)
    assert not found.unknown
    assert found.time_seconds == 1770091506  # date -u -d "2026-02-03 04:05:06" +%s


def test_an_unknown_key_is_kept_as_written_and_a_secret_in_it_is_not() -> None:
    found = parse_line(
        "Decode batch, #running-req: 2, moon phase: waning 3, api_key: hush-hush, #queue-req: 0"
    )
    assert found is not None
    assert found.values == {"running": 2, "queued": 0}
    assert found.unknown["moon phase"] == "waning 3"
    assert "hush" not in str(found)


def test_a_value_that_is_no_number_is_not_made_one() -> None:
    found = parse_line(
        "Decode batch, #running-req: nan, #token: inf, token usage: -inf, #queue-req: many, x: 1"
    )
    assert found is None or not {"running", "kv_used_tokens", "kv_usage", "queued"} & set(found.values)


def test_the_line_with_cap_and_pool() -> None:
    found = parse_line(
        "[2026-02-03 04:05:06 DP3 TP0] max_total_num_tokens=123456, chunked_prefill_size=4096, "
        "max_prefill_tokens=16384, max_running_requests=29, context_len=9000, available_gpu_mem=7.25 GB"
    )
    assert found is not None
    assert (found.kind, dict(found.ranks)) == ("capacity", {"dp": 3, "tp": 0})
    assert found.values == {
        "kv_capacity_tokens": 123456,
        "chunked_prefill_size": 4096,
        "max_prefill_tokens": 16384,
        "cap": 29,
        "max_context": 9000,
        "free_gib": 7.25,
    }


@pytest.mark.parametrize(
    ("text", "values", "failure"),
    [
        (
            "max_running_requests is capped to 17 by the mamba state cache (max_mamba_cache_size=85, "
            "5 state slots per request). To raise it: increase --mamba-full-memory-ratio or …",
            {"cap": 17, "state_slots": 85, "slots_per_request": 5},
            "cap_by_state_pool",
        ),
        (
            "max_running_requests was reduced from the requested 90 to 41 (per dp worker) due to the "
            "available KV cache capacity.",
            {"cap": 41, "cap_requested": 90},
            "cap_by_kv_pool",
        ),
        (
            "Mamba Cache is allocated. max_mamba_cache_size: 77, conv_state size: 0.25GB, "
            "ssm_state size: 6.50GB intermediate_ssm_state_cache size: 1.50GB "
            "intermediate_conv_window_cache size: 512.00MB ",
            {
                "state_slots": 77,
                "conv_state_gib": 0.25,
                "ssm_state_gib": 6.5,
                "speculative_ssm_state_gib": 1.5,
                "speculative_conv_state_gib": 0.5,
            },
            "",
        ),
        (
            "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 4321, K size: 1.25 GB, V "
            "size: 1.50 GB",
            {"kv_capacity_tokens": 4321, "kv_pool_gib": 2.75, "kv_dtype": "float8_e4m3fn"},
            "",
        ),
        (
            "KV Cache is allocated. #tokens: 99, KV size: 3.25 GB",
            {"kv_capacity_tokens": 99, "kv_pool_gib": 3.25},
            "",
        ),
        (
            "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 1234, "
            "KV size: 5.50 GB, avail mem=2.25 GB",
            {"kv_capacity_tokens": 1234, "kv_pool_gib": 5.5, "kv_dtype": "bfloat16"},
            "",
        ),
        (
            "Use sliding window memory pool. full_layer_tokens=800, swa_layer_tokens=640",
            {"kv_capacity_tokens": 800, "swa_capacity_tokens": 640},
            "",
        ),
        (
            "SWA ring: swa_max_total_num_tokens 900 -> 700 (fixed per-request SWA ring capacity).",
            {"swa_capacity_tokens": 700},
            "",
        ),
        (
            "Allocating KV hierarchical KV host pool: 5000 tokens, 6.00 GB host memory.",
            {"host_kv_capacity_tokens": 5000},
            "",
        ),
        (
            "[unified-memory-pool]   total_bytes=9, max_total_num_tokens=70, max_mamba_cache_size=6, "
            "max_num_reqs=5, speculative_num_draft_tokens=None",
            {"kv_capacity_tokens": 70, "state_slots": 6},
            "",
        ),
    ],
)
def test_a_size_line(text: str, values: dict[str, float | str], failure: str) -> None:
    found = parse_line(HEADER + text)
    assert found is not None
    assert (found.kind, found.failure) == ("capacity", failure)
    assert found.values == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "Load weight end. elapsed=8.50 s, type=FancyForCausalLM, avail mem=11.5 GB, mem usage=60.25 GB.",
            {
                "stage": "weights_end",
                "seconds": 8.5,
                "architecture": "FancyForCausalLM",
                "free_gib": 11.5,
                "used_gib": 60.25,
                "weights_gib": 60.25,
            },
        ),
        (
            "Load weight end. type=FancyForCausalLM, dtype=torch.bfloat16, avail mem=3.00 GB, mem "
            "usage=4.00 GB.",
            {
                "stage": "weights_end",
                "architecture": "FancyForCausalLM",
                "free_gib": 3,
                "used_gib": 4,
                "weights_gib": 4,
            },
        ),
        (
            "Capture cuda graph end. Time elapsed: 6.25 s. mem usage=0.75 GB. avail mem=9.50 GB.",
            {"stage": "graphs_end", "seconds": 6.25, "used_gib": 0.75, "free_gib": 9.5},
        ),
        (
            "Capture target_decode cuda graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 48], "
            "avail mem=9.75 GB",
            {"stage": "graphs_begin", "cuda_graph_max_bs": 48, "free_gib": 9.75},
        ),
        ("Memory pool end. avail mem=5.25 GB", {"stage": "pools_end", "free_gib": 5.25}),
        (
            "Init torch distributed ends. elapsed=2.50 s, mem usage=0.50 GB",
            {"stage": "distributed_end", "seconds": 2.5, "used_gib": 0.5},
        ),
    ],
)
def test_a_memory_line_says_its_stage(text: str, values: dict[str, float | str]) -> None:
    found = parse_line(HEADER + text)
    assert found is not None
    assert found.kind == "memory"
    assert found.values == pytest.approx(values)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "KV cache pool is full. Retract requests. #retracted_reqs: 3, #aborted_retracted_reqs: 1, "
            "#new_token_ratio: 0.2000 -> 0.6500",
            {"retracted": 3, "aborted": 1, "new_token_ratio": 0.65},
        ),
        (
            "KV cache pool is full. Retract requests. #retracted_reqs: 5, #new_tokens_gained: 700, "
            "#mamba_num_gained: 15, #new_token_ratio: 0.1000 -> 0.3000",
            {"retracted": 5, "tokens_gained": 700, "state_slots_gained": 15, "new_token_ratio": 0.3},
        ),
    ],
)
def test_a_retraction(text: str, values: dict[str, float]) -> None:
    found = parse_line(HEADER + text)
    assert found is not None
    assert (found.kind, found.failure) == ("retraction", "kv_pool_full")
    assert found.values == pytest.approx(values)


SECRETS = ("sk-very-secret-thing", "hunter2hunter2", "/home/someone/private.pem")


@pytest.mark.parametrize(
    "text",
    [
        "server_args=ServerArgs(model_path='org/model-9B', api_key='sk-very-secret-thing', "
        "admin_api_key='hunter2hunter2', ssl_keyfile='/home/someone/private.pem', "
        "mem_fraction_static=0.77, "
        "tp_size=2, disable_radix_cache=True, quantization=None, cuda_graph_bs=[1, 2, 4], "
        "log_level='mem_fraction_static=0.11', "
        "preferred_sampling_params={'dp_size': 9, 'note': \"max_running_requests=5)\"}, "
        "max_running_requests=33)",
        "server_args={'model_path': 'org/model-9B', 'api_key': 'sk-very-secret-thing', "
        "'admin_api_key': 'hunter2hunter2', 'ssl_keyfile': '/home/someone/private.pem', "
        "'mem_fraction_static': 0.77, 'tp_size': 2, 'disable_radix_cache': True, 'quantization': None, "
        "'log_level': 'mem_fraction_static=0.11', 'json': {'dp_size': 9}, 'max_running_requests': 33}",
    ],
    ids=["record", "dictionary"],
)
def test_settings_by_allow_list_never_a_key(text: str) -> None:
    found = parse_line(HEADER + text)
    assert found is not None
    assert found.kind == "settings"
    assert found.values == {
        "model_path": "org/model-9B",
        "mem_fraction_static": 0.77,
        "tp_size": 2,
        "disable_radix_cache": 1,
        "max_running_requests": 33,
    }
    assert not any(secret in str(found) for secret in SECRETS)


def test_a_settings_line_that_was_cut_gives_what_it_has() -> None:
    found = parse_line(HEADER + "server_args=ServerArgs(model_path='org/m', tp_size=4, chat_template='half")
    assert found is not None
    assert found.values["tp_size"] == 4


def test_the_end_of_a_request() -> None:
    found = parse_line(
        HEADER + "ReqTimeStats(rid=abc, input_len=40, cached_input_len=8, output_len=16, type=unified): "
        "queue_duration=12.50ms, forward_duration=250.00ms, entry_time=1.0"
    )
    assert found is not None
    assert found.kind == "request"
    assert found.values == pytest.approx(
        {
            "prompt_tokens": 40,
            "cached_tokens": 8,
            "output_tokens": 16,
            "queue_seconds": 0.0125,
            "forward_seconds": 0.25,
        }
    )


@pytest.mark.parametrize("verb", ["Receive: obj=GenerateReqInput(", "Finish: obj=GenerateReqInput("])
def test_nothing_of_a_logged_prompt_is_kept(verb: str) -> None:
    found = parse_line(HEADER + verb + "text='my diary, CUDA out of memory', rid='1')")
    assert found is not None
    assert found.kind == "note"
    assert "diary" not in str(found)


@pytest.mark.parametrize(
    ("text", "kind", "failure"),
    [
        (
            "Disabling overlap schedule since mamba no_buffer is not compatible with overlap schedule, "
            "try to use --disable-radix-cache if overlap schedule is necessary",
            "warning",
            "overlap_disabled",
        ),
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: mem_fraction_static=0.5",
            "failure",
            "memory_fraction_too_small",
        ),
        ("AssertionError: Not enough space for mamba cache, try to …", "failure", "state_pool_no_room"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total "
            "capacity of 80 GiB of which 1.25 GiB is free.",
            "failure",
            "gpu_out_of_memory",
        ),
        ("retract_decode: aborted last request 77 due to OOM", "failure", "out_of_memory_after_retraction"),
        (
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
            "tic start time: 1. last_heartbeat time: 2",
            "failure",
            "detokenizer_silent",
        ),
        (
            "Cache not flushed because there are pending requests. #queue-req: 4, #running-req: 9",
            "warning",
            "flush_refused",
        ),
        ("Scheduler hit an exception: Traceback (most recent call last):", "failure", "scheduler_crashed"),
        ("The request queue is full.", "warning", "queue_full"),
        ("KeyError: 'lost'", "failure", "exception"),
    ],
)
def test_a_warning_or_crash_has_its_id(text: str, kind: str, failure: str) -> None:
    found = parse_line(HEADER + text)
    assert found is not None
    assert (found.kind, found.failure) == (kind, failure)
    assert found.kind in KINDS


def test_a_catalogued_text_gives_its_numbers() -> None:
    found = parse_line(
        HEADER + "Cache not flushed because there are pending requests. #queue-req: 4, #running-req: 9"
    )
    assert found is not None
    assert found.values == {"queued": 4, "running": 9}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "hello",
        "Decode batch",
        "Prefill batch, ",
        "INFO 01-02 03:04:05 [a.py:1] Decode batch, #token: 1",
    ],
)
def test_what_says_nothing_is_nothing(text: str) -> None:
    assert parse_line(text) is None
