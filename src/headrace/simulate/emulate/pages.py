"""What an emulated server says of itself: /v1/models, /server_info, /model_info, /v1/loads, /get_load.

Of the some 330 fields of the real /server_info those are shown that describe the emulated engine, with the
real names and types. Fields that hold keys in a real server are null, as they are there by default.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from headrace.quantities import Origin
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.planned import PlannedServer
from headrace.simulate.emulate.timing import Load

_ARCHITECTURE = "Qwen3_5ForConditionalGeneration"


def models(options: EmulatorOptions, created: int) -> dict[str, Any]:
    """The /v1/models document."""
    return {"object": "list", "data": [model_card(options, created)]}


def model_card(options: EmulatorOptions, created: int) -> dict[str, Any]:
    """One entry of /v1/models."""
    return {
        "id": options.model,
        "object": "model",
        "created": created,
        "owned_by": "sglang",
        "root": options.model,
        "parent": None,
        "max_model_len": options.context_length,
    }


def model_info(options: EmulatorOptions) -> dict[str, Any]:
    """The /model_info document."""
    return {
        "model_path": options.model,
        "tokenizer_path": options.model,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "qwen3_5",
        "architectures": [_ARCHITECTURE],
    }


def server_info(options: EmulatorOptions, port: int, tokens_per_second: float) -> dict[str, Any]:
    """The /server_info document."""
    settings: dict[str, Any] = {
        "model_path": options.model,
        "tokenizer_path": options.model,
        "load_format": "auto",
        "context_length": options.context_length,
        "host": options.host,
        "port": port,
        "dtype": "bfloat16",
        "quantization": None,
        "kv_cache_dtype": "auto",
        "mem_fraction_static": 0.85,
        "max_running_requests": options.cap,
        "max_queued_requests": options.max_queued_requests,
        "max_total_tokens": options.kv_tokens,
        "chunked_prefill_size": 8192,
        "max_prefill_tokens": 16384,
        "schedule_policy": "fcfs",
        "schedule_conservativeness": 1.0,
        "page_size": 1,
        "device": "cuda",
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "pp_max_micro_batch_size": None,
        "stream_interval": 1,
        "random_seed": options.seed,
        "log_level": "info",
        "enable_metrics": True,
        "decode_log_interval": 40,
        "api_key": None,
        "admin_api_key": None,
        "served_model_name": options.model,
        "weight_version": "default",
        "chat_template": None,
        "reasoning_parser": options.reasoning_parser,
        "tool_call_parser": None,
        "enable_cache_report": False,
        "speculative_algorithm": None,
        "max_mamba_cache_size": None,
        "mamba_ssm_dtype": None,
        "mamba_full_memory_ratio": 0.9,
        "mamba_scheduler_strategy": "no_buffer",
        "disable_radix_cache": True,
        "cuda_graph_max_bs": options.cap,
        "disable_cuda_graph": False,
        "disable_overlap_schedule": False,
        "enable_dp_attention": False,
        "allow_auto_truncate": False,
        "disaggregation_mode": "null",
    }
    weights_gib, kv_gib, slots = 51.0, options.pool_tokens * 65_536 / 2**30, None
    if options.server is not None:
        settings |= _planned(options.server, settings)
        weights_gib, kv_gib = options.server.pool_gib("weights"), options.server.pool_gib("KV pool")
        slots = options.server.state_slots
    state = settings | {
        "max_mamba_cache_size": slots,
        "pp_max_micro_batch_size": options.cap,
        "last_gen_throughput": round(tokens_per_second, 2),
        "memory_usage": {
            "weight": round(weights_gib, 2),
            "kvcache": round(kv_gib, 2),
            "token_capacity": options.pool_tokens,
            "graph": 1.0,
        },
        "effective_max_running_requests_per_dp": options.cap,
    }
    return settings | {
        "status": "ready",
        "max_total_num_tokens": options.pool_tokens,
        "max_req_input_len": min(options.context_length, options.pool_tokens) - 6,
        "internal_states": [state],
        "version": options.version,
    }


_RENAMED = {
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
    "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
}
_AS_GIVEN = (
    "mamba_ssm_dtype",
    "kv_cache_dtype",
    "max_mamba_cache_size",
)  # what the server takes itself, it does not show


def _planned(server: PlannedServer, shown: Mapping[str, Any]) -> dict[str, Any]:
    """The shown fields that the launch line settles."""
    found: dict[str, Any] = {}
    for field in (*shown, "swa_full_tokens_ratio", "attention_backend"):
        setting = server.plan.settings.values.get(_RENAMED.get(field, field))
        if setting is None or (field in _AS_GIVEN and setting.origin is Origin.DEFAULT):
            continue
        found[field] = setting.value
    schedule = server.kind.rules.rules
    found["max_prefill_tokens"] = int(schedule["prefill_tokens"])
    return found


def loads(
    options: EmulatorOptions, load: Load, tokens_per_second: float, wall_seconds: float, include: str
) -> dict[str, Any]:
    """The /v1/loads document; `include` as in the query, sections it does not know are left out."""
    sections = set(include.split(","))
    everything = "all" in sections
    rate = round(tokens_per_second, 2)
    server = options.server
    used = load.context_tokens if server is None else round(load.kv_share * options.pool_tokens)
    usage = round(used / options.pool_tokens, 4)
    total = used + load.queued_tokens
    one: dict[str, Any] = {
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.queued,
        "num_used_tokens": used,
        "num_total_tokens": total,
        "max_total_num_tokens": options.pool_tokens,
        "token_usage": usage,
        "gen_throughput": rate,
        "cache_hit_rate": 0.0,
        "utilization": 0.0,
        "max_running_requests": options.cap,
    }
    if everything or "memory" in sections:
        one["memory"] = {
            "weight_gb": 51.0 if server is None else round(server.pool_gib("weights"), 3),
            "kv_cache_gb": round(
                options.pool_tokens * 65_536 / 2**30 if server is None else server.pool_gib("KV pool"), 3
            ),
            "graph_gb": 1,
            "token_capacity": options.pool_tokens,
        }
    if everything or "disagg" in sections:
        one["disaggregation"] = {
            "mode": "null",
            "prefill_bootstrap_queue_reqs": 0,
            "prefill_inflight_queue_reqs": 0,
            "decode_prealloc_queue_reqs": 0,
            "decode_transfer_queue_reqs": 0,
            "decode_retracted_queue_reqs": 0,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        }
    if everything or "queues" in sections:
        one["queues"] = {"waiting": load.queued, "grammar": 0, "paused": 0, "retracted": 0}
    one["num_total_reqs"] = load.running + load.queued
    moment = datetime.datetime.fromtimestamp(wall_seconds, datetime.UTC)
    return {
        "timestamp": moment.isoformat(),
        "version": options.version,
        "dp_rank_count": 1,
        "loads": [one],
        "aggregate": {
            "total_running_reqs": load.running,
            "total_waiting_reqs": load.queued,
            "total_reqs": load.running + load.queued,
            "total_used_tokens": used,
            "total_tokens": total,
            "avg_token_usage": usage,
            "avg_throughput": rate,
            "avg_utilization": 0.0,
        },
    }


def get_load(load: Load, now: float) -> list[dict[str, Any]]:
    """The /get_load document (deprecated in 0.5.12, still served)."""
    return [
        {
            "dp_rank": None,
            "num_reqs": load.running + load.queued,
            "num_waiting_reqs": load.queued,
            "num_tokens": load.context_tokens + load.queued_tokens,
            "num_pending_tokens": load.queued_tokens,
            "ts_tic": now,
        }
    ]
