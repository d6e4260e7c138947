"""The words of a server's readings: one spelling, unit and scope for facts files, logs and live servers.

A `Scope` says how a reading adds up: what a fleet of eight servers shows is eight times one server's
`running`, but not eight times its `kv_usage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.quantities import Quantity


class Scope(StrEnum):
    """How a reading of several ranks or servers becomes one."""

    SUM = "sum"  # requests, tokens, rates: the whole is the sum of its parts
    MEAN = "mean"  # fractions, latencies, lengths
    EACH = "each"  # the same everywhere: a setting, a size per rank


@dataclass(frozen=True, slots=True)
class Word:
    """One reading: its unit, how it adds up, and what it says. Fractions are 0…1; `yes/no` is 1 or 0."""

    unit: str
    scope: Scope
    meaning: str
    capacity: bool = False  # a size or a limit, kept under `ServerObservation.capacities`


_S, _M, _E = Scope.SUM, Scope.MEAN, Scope.EACH

READINGS: dict[str, Word] = {
    # requests
    "running": Word("requests", _S, "requests in the batch"),
    "queued": Word("requests", _S, "requests waiting in the server"),
    "queue_growing": Word("yes/no", _E, "the queue grows"),
    "queue_share_of_steps": Word("fraction", _M, "share of steps with a queue"),
    "requests_per_s": Word("requests/s", _S, "requests finished per second"),
    "prealloc": Word("requests", _S, "requests with reserved memory, not running yet (PD)"),
    # pools
    "kv_usage": Word("fraction", _M, "tokens held ÷ capacity of the KV pool"),
    "state_usage": Word("fraction", _M, "slots held ÷ slots of the recurrent-state pool"),
    "swa_usage": Word("fraction", _M, "tokens held ÷ capacity of the sliding-window pool"),
    "host_kv_usage": Word("fraction", _M, "tokens held ÷ capacity of the host KV pool"),
    "host_state_usage": Word("fraction", _M, "slots held ÷ slots of the host state pool"),
    "kv_used_tokens": Word("tokens", _S, "tokens held in the KV pool"),
    "state_used_slots": Word("slots", _S, "slots held in the recurrent-state pool"),
    "decode_context_tokens": Word("tokens", _S, "prompt and output tokens of all requests that decode"),
    "preemptions": Word("requests", _S, "requests whose work was thrown away, in the window"),
    "retractions_per_min": Word("requests/min", _S, "requests whose work was thrown away"),
    "vram_growing": Word("yes/no", _E, "the GPU's used memory grows"),
    # rates and times
    "output_tokens_per_s": Word("tokens/s", _S, "tokens generated per second, as the server counts"),
    "prefill_tokens_per_s": Word("tokens/s", _S, "prompt tokens computed per second"),
    "output_tokens_per_s_finished_only": Word(
        "tokens/s", _S, "tokens of finished answers per second: misses what is still being made"
    ),
    "total_tokens_per_s": Word("tokens/s", _S, "prompt and output tokens per second"),
    "output_tokens_per_s_per_gpu": Word("tokens/s", _E, "output tokens per second and GPU"),
    "total_tokens_per_s_per_gpu": Word("tokens/s", _E, "prompt and output tokens per second and GPU"),
    "per_user_tokens_per_s": Word("tokens/s", _M, "output tokens per second of one running request"),
    "latency_s": Word("s", _M, "seconds of a whole request, mean"),
    "ttft_s": Word("s", _M, "seconds to the first token, mean"),
    "ttft_p95_s": Word("s", _M, "seconds to the first token, 95th percentile"),
    "tpot_s": Word("s", _M, "seconds per output token after the first, mean"),
    "itl_s": Word("s", _M, "seconds between two tokens of a request, mean"),
    "itl_p50_s_client": Word("s", _M, "seconds between two tokens at the client, median"),
    "step_ms": Word("ms", _M, "milliseconds of a step"),
    "forward_ms": Word("ms", _M, "milliseconds of a step on the GPU"),
    "host_ms": Word("ms", _M, "milliseconds of a step on the host"),
    "queue_time_s": Word("s", _M, "seconds a request waits in the server, mean"),
    "prefill_share_of_time": Word("fraction", _M, "share of the window spent in prefill steps"),
    # lengths and caches
    "mean_input_tokens": Word("tokens", _M, "prompt tokens of a request, mean"),
    "mean_output_tokens": Word("tokens", _M, "output tokens of a request, mean"),
    "cache_hit_rate": Word("fraction", _M, "prompt tokens taken from the prefix cache ÷ prompt tokens"),
    "accept_length": Word("tokens", _M, "tokens accepted per verification step, the sure one included"),
    "accept_rate": Word("fraction", _M, "draft tokens accepted ÷ draft tokens proposed"),
    "cuda_graph": Word("yes/no", _E, "decode steps run as a captured graph"),
    "cuda_graph_hit_rate": Word("fraction", _M, "share of decode steps that run as a captured graph"),
    # the machine
    "gpu_utilization": Word("fraction", _M, "share of time in which a kernel ran"),
    "gpu_power_w": Word("W", _M, "power drawn per GPU"),
    "gpu_power_limit_w": Word("W", _E, "power limit per GPU"),
    "gpu_temp_c": Word("°C", _M, "temperature per GPU"),
    "sm_clock_mhz": Word("MHz", _M, "clock of the SMs"),
    "sm_clock_mhz_sustained": Word("MHz", _M, "clock of the SMs under lasting load"),
    "sm_clock_mhz_min": Word("MHz", _E, "lowest clock of the SMs seen"),
    "throttle_power_percent": Word("percent", _M, "share of time throttled by power"),
    "throttle_thermal_percent": Word("percent", _M, "share of time throttled by heat"),
    "gpu_memory_used_gib": Word("GiB", _M, "memory in use per GPU"),
    "cpu_busy_cores": Word("cores", _S, "CPU cores busy"),
    # sizes and limits
    "cap": Word("requests", _S, "effective maximum of running requests", True),
    "kv_capacity_tokens": Word("tokens", _S, "size of the KV pool", True),
    "swa_capacity_tokens": Word("tokens", _S, "size of the sliding-window pool", True),
    "state_slots": Word("slots", _S, "size of the recurrent-state pool", True),
    "host_kv_capacity_tokens": Word("tokens", _S, "size of the host KV pool", True),
    "host_state_slots": Word("slots", _S, "size of the host state pool", True),
    "slots_per_request": Word("slots", _E, "state slots reserved per request", True),
    "pool_blocks": Word("blocks", _S, "blocks of the KV pool", True),
    "attention_block_tokens": Word("tokens", _E, "tokens of a KV block", True),
    "kv_pool_gib": Word("GiB", _E, "memory of the KV pool per GPU", True),
    "kv_pool_gb": Word("GB", _E, "memory of the KV pool per GPU, decimal", True),
    "weights_gb": Word("GB", _E, "memory of the weights, all ranks", True),
    "weights_gb_per_rank": Word("GB", _E, "memory of the weights per GPU", True),
    "free_gib": Word("GiB", _E, "memory left free per GPU when the server had started", True),
    "max_context": Word("tokens", _E, "longest request the server takes", True),
    "cuda_graph_max_bs": Word("requests", _E, "largest batch with a captured graph", True),
}
"""Reading word → what it is. All are per server in a `ServerObservation`."""

# above these a number is no reading of one server. Engines run some thousands of requests; the fastest GPUs
# (hardware/data) read some 10^13 bytes per second, and no token takes less than a byte.
_LARGEST = {"fraction": 1.05, "requests": 1e6, "tokens": 1e13, "tokens/s": 1e12, "percent": 105.0}
LARGEST = 1e15


def largest(word: str) -> float:
    """Returns the largest value that a reading or capacity of this word can have, in its unit."""
    return _LARGEST.get(READINGS[word].unit, LARGEST) if word in READINGS else LARGEST


def drop_low_cap(readings: Mapping[str, Quantity], capacities: dict[str, Quantity], notes: list[str]) -> None:
    """Takes a cap away, with a note, that is below what runs: it belongs to another start, or to one rank."""
    running, cap = readings.get("running"), capacities.get("cap")
    if running is not None and cap is not None and running.value > 1.1 * cap.value + 1:
        del capacities["cap"]
        notes.append(
            f"the evidence contradicts itself: {running.value:,.0f} requests run where at most "
            f"{cap.value:,.0f} may ({cap.source}); that cap is not used."
        )


BY_RANK: dict[str, str] = {
    "kv_usage_by_rank": "fraction",
    "prealloc_by_rank": "requests",
    "time_s_by_rank": "s",
    "output_tokens_by_rank": "tokens",
    "longest_output_by_rank": "tokens",
    "running_by_rank": "requests",
    "queued_by_rank": "requests",
    "gpu_utilization_by_rank": "fraction",
    "gpu_power_w_by_rank": "W",
}
"""Readings told per rank, worker or GPU → unit."""

CLIENT: dict[str, str] = {
    "in_flight": "requests",
    "request_rate": "requests/s",
    "completed": "requests",
    "elapsed_s": "s",
    "prompts_total": "requests",
    "mean_input_tokens": "tokens",
    "mean_output_tokens": "tokens",
    "max_tokens": "tokens",
    "shared_prefix_fraction": "fraction",
    "output_tokens_per_s_finished_only": "tokens/s",
    "per_user_tokens_per_s_wall_clock": "tokens/s",
    "prompt_tokens_below": "tokens",
    "mean_output_tokens_finished_only": "tokens",
    "in_flight_tokens": "tokens",
}
"""What the client's side of the same interval says → unit. All over the whole fleet."""
