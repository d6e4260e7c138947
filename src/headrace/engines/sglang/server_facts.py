"""What an observation takes from SGLang's /server_info: by allow-list, as the answer holds keys and paths.

`server_info` reads the same answer for the planner; this adds what a running server tells of itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.engines.sglang.server_info import ALLOWED, ServerInfo, read_server_info
from headrace.errors import InputError

SETTINGS = (
    *ALLOWED,
    "decode_log_interval",
    "device",
    "disable_cuda_graph",
    "disaggregation_mode",
    "dtype",
    "enable_hierarchical_cache",
    "enable_metrics",
    "enable_mixed_chunk",
    "enable_priority_scheduling",
    "enable_torch_compile",
    "ep_size",
    "grammar_backend",
    "load_balance_method",
    "max_prefill_tokens",
    "max_queued_requests",
    "moe_a2a_backend",
    "moe_runner_backend",
    "nnodes",
    "num_continuous_decode_steps",
    "prefill_max_requests",
    "quantization",
    "schedule_conservativeness",
    "schedule_policy",
    "sampling_backend",
    "skip_tokenizer_init",
    "stream_interval",
    "tokenizer_worker_num",
    "detokenizer_worker_num",
)
"""Fields of server_args that are kept: none of them can hold a secret or a path."""
_GB_PER_GIB = 2**30 / 1e9
_PLAIN = re.compile(r"[A-Za-z0-9_.,:+-]{1,64}$")
_MODEL = re.compile(r"[A-Za-z0-9_.:+/@~-]{1,300}$")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a running server tells of itself.

    Attributes:
        info: version, the settings as a launch line, sizes for the planner.
        model: id or path, without anything that could be a user or a key.
        settings: allow-listed, by the engine's names.
        ranks: schedulers (data-parallel ranks).
        capacities: `cap`, `state_slots`, `kv_capacity_tokens` over all ranks, `weights_gb_per_rank`,
            `kv_pool_gib`.
        gauges: `output_tokens_per_s` and `accept_length`, as of the last log interval; stale when idle.
    """

    info: ServerInfo
    model: str | None = None
    settings: Mapping[str, str | float | bool] = field(default_factory=dict)
    ranks: int = 1
    capacities: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)


def read_server_facts(document: Any) -> ServerFacts | None:
    """Returns what an answer of /server_info says; None where it is none of SGLang's."""
    try:
        info = read_server_info(document)
    except InputError:
        return None
    states = [state for state in _list(document.get("internal_states")) if isinstance(state, Mapping)]
    if "internal_states" not in document and "max_total_num_tokens" not in document:
        return None
    ranks = max(1, len(states))
    capacities: dict[str, float] = {}
    kv = _number(document.get("max_total_num_tokens"))
    if kv:
        capacities["kv_capacity_tokens"] = kv * ranks
    for name, word in (
        ("effective_max_running_requests_per_dp", "cap"),
        ("max_mamba_cache_size", "state_slots"),
    ):
        values = [_number(state.get(name)) for state in states]
        if values and all(values):
            capacities[word] = sum(value or 0.0 for value in values)
    first = states[0] if states else {}
    memory = first.get("memory_usage")
    if isinstance(memory, Mapping):
        for name, word in (("weight", "weights_gb_per_rank"), ("kvcache", "kv_pool_gib")):
            size = _number(memory.get(name))  # what SGLang calls GB is GiB
            if size:
                capacities[word] = size * _GB_PER_GIB if word.startswith("weights_gb") else size
    longest = _number(document.get("max_req_input_len"))
    if longest and not document.get("context_length"):
        capacities["max_context"] = longest
    if context := _number(document.get("context_length")):
        capacities["max_context"] = context
    rates = [_number(state.get("last_gen_throughput")) for state in states]
    gauges = {"output_tokens_per_s": sum(rate or 0.0 for rate in rates)} if any(rates) else {}
    accepted = [value for state in states if (value := _number(state.get("avg_spec_accept_length")))]
    if accepted:
        gauges["accept_length"] = sum(accepted) / len(accepted)
    settings: dict[str, str | float | bool] = {}
    for name in SETTINGS:
        for source in (first, document):
            value = source.get(name)
            if isinstance(value, bool | int | float) or (isinstance(value, str) and _PLAIN.match(value)):
                settings[name] = value
                break
    model = document.get("model_path")
    plain = model if isinstance(model, str) and _MODEL.match(model) and "://" not in model else None
    return ServerFacts(info, plain, settings, ranks, capacities, gauges)


def _list(value: object) -> list[Any]:
    return value[:4096] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return float(value)
