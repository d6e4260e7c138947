"""SGLang's lines of starting and stopping: settings, memory stages, pools, caps, graphs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from headrace.engines.log_event import LogEvent, Value
from headrace.engines.log_fields import number, pairs, scrub, setting_values, settings
from headrace.engines.log_lines import LogLine
from headrace.engines.log_troubles import event, told
from headrace.engines.sglang.server_info import ALLOWED

ENGINE = "sglang"
_MAX_SETTINGS = 131_072  # characters

# Beside what decides sizes: what decides pace, and the model's name. None can hold a secret.
SETTINGS: Final = frozenset(
    (
        *ALLOWED,
        "model_path",
        "served_model_name",
        "device",
        "dtype",
        "quantization",
        "load_format",
        "model_impl",
        "ep_size",
        "nnodes",
        "max_prefill_tokens",
        "max_queued_requests",
        "prefill_max_requests",
        "schedule_policy",
        "schedule_conservativeness",
        "num_continuous_decode_steps",
        "enable_mixed_chunk",
        "enable_priority_scheduling",
        "disable_cuda_graph",
        "disable_cuda_graph_padding",
        "disable_piecewise_cuda_graph",
        "disable_custom_all_reduce",
        "disable_chunked_prefix_cache",
        "enable_torch_compile",
        "enable_metrics",
        "decode_log_interval",
        "stream_interval",
        "tokenizer_worker_num",
        "detokenizer_worker_num",
        "moe_runner_backend",
        "moe_a2a_backend",
        "prefill_attention_backend",
        "decode_attention_backend",
        "sampling_backend",
        "grammar_backend",
        "linear_attn_backend",
        "load_balance_method",
        "disaggregation_mode",
        "enable_hierarchical_cache",
        "hicache_size",
        "hicache_ratio",
        "enable_unified_memory",
        "language_model_only",
        "mamba_track_interval",
        "enable_deterministic_inference",
        "watchdog_timeout",
    )
)
_NAMES: Final = frozenset(("model_path", "served_model_name"))

_EQUALS = re.compile(r"([a-z_]{2,60})=(-?[\d.]+)")
_MEMORY = re.compile(r"(avail mem|mem usage)=(-?[\d.]+) ?GB")
_ELAPSED = re.compile(r"(?:elapsed=|Time elapsed: )([\d.]+) ?s")
_TYPE = re.compile(r"type=(\w{1,100})")
_SIZES = re.compile(r"([a-z_]{2,60}|#tokens|#swa_tokens|[A-Za-z]{1,20})(?: size)?: ([\d.]+) ?(GB|MB)?")
_BATCHES = re.compile(r"\[([\d, .]{1,20000})")
_CAPPED = re.compile(
    r"max_running_requests is capped to (\d+) by the mamba state cache "
    r"\(max_mamba_cache_size=(\d+), (\d+) state slots per request\)"
)
_REDUCED = re.compile(
    r"max_running_requests was reduced from the requested (\d+) to (\d+)(?: \(per dp worker\))? due to "
    r"the available KV cache"
)
_STAGES: tuple[tuple[str, str], ...] = (
    ("Init torch distributed ends", "distributed_end"),
    ("Memory baseline taken", "baseline"),
    ("Load weight begin", "weights_begin"),
    ("Load weight end", "weights_end"),
    ("Memory pool end", "pools_end"),
    ("Capture ", ""),
)
_CAPTURE = re.compile(r"Capture (.{0,60}?)(?:cuda|CUDA|cpu|npu) [gG]raph (begin|end)")
_GRAPHS = (("draft", "draft_graphs"), ("prefill", "prefill_graphs"), ("piecewise", "prefill_graphs"))
_TOTALS = {
    "max_total_num_tokens": "kv_capacity_tokens",
    "max_running_requests": "cap",
    "context_len": "max_context",
    "available_gpu_mem": "free_gib",
    "available_cpu_mem": "free_gib",
    "chunked_prefill_size": "chunked_prefill_size",
    "max_prefill_tokens": "max_prefill_tokens",
    "full_layer_tokens": "kv_capacity_tokens",
    "swa_layer_tokens": "swa_capacity_tokens",
    "full_max_total_num_tokens": "kv_capacity_tokens",
    "swa_max_total_num_tokens": "swa_capacity_tokens",
}
_PROFILE = {
    "available_gpu_memory": "free_gib",
    "total_gpu_memory": "free_before_weights_gib",
    "rest_memory": "kv_pool_gib",
    "mem_fraction_static": "mem_fraction_static",
    "bytes_per_full_token": "kv_bytes_per_token",
    "available_bytes": "kv_pool_gib",
    "full_token": "kv_capacity_tokens",
}
_ALLOCATED = {
    "max_mamba_cache_size": "state_slots",
    "conv_state": "conv_state_gib",
    "ssm_state": "ssm_state_gib",
    "intermediate_ssm_state_cache": "speculative_ssm_state_gib",
    "intermediate_conv_window_cache": "speculative_conv_state_gib",
    "#tokens": "kv_capacity_tokens",
    "#swa_tokens": "swa_capacity_tokens",
    "K": "k_gib",
    "V": "v_gib",
    "KV": "kv_pool_gib",
}


def parse(line: LogLine) -> LogEvent | None:
    """Returns what a line of the start or the end says, None where it is none of the known."""
    for start, reader in _READERS:
        if line.message.startswith(start):
            return reader(line)
    return None


def _settings(line: LogLine) -> LogEvent:
    """By allow-list, from `server_args=ServerArgs(a='b', …)` and `server_args={'a': 'b', …}`."""
    text = line.message.partition("=")[2][:_MAX_SETTINGS]
    return event(line, ENGINE, "settings", setting_values(settings(text, SETTINGS), _NAMES))


def _memory(line: LogLine) -> LogEvent | None:
    message = line.message
    stage = next(name for start, name in _STAGES if message.startswith(start))
    if stage == "":  # `Capture NAME cuda graph begin`, from 0.5.14
        found = _CAPTURE.match(message)
        if not found:
            return None
        kind = next((kind for word, kind in _GRAPHS if word in found[1].lower()), "graphs")
        stage = f"{kind}_{found[2]}"
    values: dict[str, Value] = {"stage": stage}
    for key, raw in _MEMORY.findall(message):
        value = number(raw)
        if value is not None:
            values["free_gib" if key == "avail mem" else "used_gib"] = value
    elapsed = _ELAPSED.search(message)
    if elapsed and (seconds := number(elapsed[1])) is not None:
        values["seconds"] = seconds
    if stage == "weights_end":
        if "used_gib" in values:
            values["weights_gib"] = values["used_gib"]
        if found := _TYPE.search(message):
            values["architecture"] = found[1][:64]
    if stage.startswith("graphs") and (found := _BATCHES.search(message)):
        sizes = [int(part) for part in found[1].split(",") if part.strip().isdigit() and len(part) < 9]
        if sizes:
            values["cuda_graph_max_bs"] = float(max(sizes))
    return event(line, ENGINE, "memory", values)


def _totals(line: LogLine) -> LogEvent | None:
    """`max_total_num_tokens=…, …`: the one line that has the cap and the KV pool."""
    values = _named(line.message, _TOTALS)
    return event(line, ENGINE, "capacity", values) if values else None


def _profile(line: LogLine) -> LogEvent:
    return event(line, ENGINE, "memory", {"stage": "profile", **_named(line.message, _PROFILE)})


def _named(message: str, words: dict[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for key, raw in _EQUALS.findall(message[:4000]):
        value = number(raw)
        if key in words and value is not None:
            values[words[key]] = value
    return values


def _allocated(line: LogLine) -> LogEvent:
    values: dict[str, Value] = {}
    for key, raw, unit in _SIZES.findall(line.message[:2000]):
        value = number(raw)
        if key in _ALLOCATED and value is not None:
            values[_ALLOCATED[key]] = value / 1024 if unit == "MB" else value
    k, v = values.pop("k_gib", None), values.pop("v_gib", None)
    if isinstance(k, float) and isinstance(v, float):
        values["kv_pool_gib"] = k + v
    dtype = re.search(r"dtype: (?:torch\.)?(\w{1,40})", line.message[:200])
    if dtype:
        values["kv_dtype"] = dtype[1]
    return event(line, ENGINE, "capacity", values)


def _window_pools(line: LogLine) -> LogEvent | None:
    """`SWAKVPool mem usage: 10.2 GB, swa size: N, full size: M`: both pools, in tokens."""
    found = re.search(r"swa size: (\d{1,12}), full size: (\d{1,12})", line.message[:400])
    if not found:
        return None
    values: dict[str, Value] = {"swa_capacity_tokens": float(found[1]), "kv_capacity_tokens": float(found[2])}
    return event(line, ENGINE, "capacity", values)


def _available(line: LogLine) -> LogEvent:
    """The memory that is left for the KV pool; none where less than nothing is."""
    found = re.search(r"is (-?[\d.]{1,16}) ?GB", line.message[:400])
    value = number(found[1]) if found else None
    return event(line, ENGINE, "capacity", {"kv_pool_gib": value} if value is not None and value > 0 else {})


def _reduced_fraction(line: LogLine) -> LogEvent | None:
    found = re.search(r"--mem-fraction-static to ([\d.]{1,16})", line.message[:400])
    value = number(found[1]) if found else None
    return event(line, ENGINE, "settings", {"mem_fraction_static": value}) if value is not None else None


def _post_capture(line: LogLine) -> LogEvent | None:
    """The KV pool as sized anew after the graphs were captured (0.5.17 on)."""
    sized = _allocated(line)
    values = {**sized.values, **_named(line.message, _TOTALS)}
    return event(line, ENGINE, "capacity", values) if values else None


def _window_ring(line: LogLine) -> LogEvent | None:
    found = re.search(r" -> (\d{1,12})", line.message[:400])
    return event(line, ENGINE, "capacity", {"swa_capacity_tokens": float(found[1])}) if found else None


def _host_pool(line: LogLine) -> LogEvent | None:
    """The pools of the hierarchical cache in host memory."""
    values: dict[str, Value] = {}
    if found := re.search(r"host pool: (\d{1,12}) tokens", line.message[:400]):
        values["host_kv_capacity_tokens"] = float(found[1])
    if found := re.search(r"\((\d{1,12}) state slots", line.message[:400]):
        values["host_state_slots"] = float(found[1])
    return event(line, ENGINE, "capacity", values) if values else None


def _unified(line: LogLine) -> LogEvent:
    """One buffer for KV and state (0.5.15 on): its sizes, where the line has them."""
    values = _named(line.message, {**_TOTALS, "max_mamba_cache_size": "state_slots"})
    return event(line, ENGINE, "capacity", values) if values else _boot(line)


def _cap(line: LogLine) -> LogEvent | None:
    if found := _CAPPED.match(line.message):
        capped = event(
            line,
            ENGINE,
            "capacity",
            {"cap": float(found[1]), "state_slots": float(found[2]), "slots_per_request": float(found[3])},
        )
        capped.failure = "cap_by_state_pool"
        return capped
    if found := _REDUCED.match(line.message):
        reduced = event(line, ENGINE, "capacity", {"cap": float(found[2]), "cap_requested": float(found[1])})
        reduced.failure = "cap_by_kv_pool"
        return reduced
    return None


def _graphs(line: LogLine) -> LogEvent:
    found = _BATCHES.search(line.message)
    sizes = (
        [int(part) for part in found[1].split(",") if part.strip().isdigit() and len(part) < 9]
        if found
        else []
    )
    values: dict[str, Value] = {"cuda_graph_max_bs": float(max(sizes))} if sizes else {}
    return event(line, ENGINE, "capacity", values)


def _timings(line: LogLine) -> LogEvent:
    values: dict[str, Value] = {}
    for key, raw in _EQUALS.findall(line.message[:2000]):
        if (value := number(raw)) is not None:
            values[f"{key}_seconds"] = value
    return event(line, ENGINE, "boot", values)


def _boot(line: LogLine) -> LogEvent:
    return told(line, ENGINE, "boot")


def _kv_dtype(line: LogLine) -> LogEvent:
    word = line.message.rpartition(" ")[2].removeprefix("torch.")
    return event(line, ENGINE, "boot", {"kv_dtype": scrub(word, 40)})


def _ready(line: LogLine) -> LogEvent:
    return event(line, ENGINE, "ready")


def _shutdown(line: LogLine) -> LogEvent:
    left = re.search(r"Remaining number of requests (\d{1,12})", line.message[:400])
    values: dict[str, Value] = {"remaining": float(left[1])} if left else {}
    return told(line, ENGINE, "shutdown", values)


def _note(line: LogLine) -> LogEvent:
    return told(line, ENGINE, "note")


def _host_cache(line: LogLine) -> LogEvent:
    values, _ = pairs(
        line.message, {"alloc time": "allocate_seconds", "io time": "io_seconds", "copy time": "copy_seconds"}
    )
    return told(line, ENGINE, "note", values)


_READERS: tuple[tuple[str, Callable[[LogLine], LogEvent | None]], ...] = (
    ("server_args=", _settings),
    ("max_total_num_tokens=", _totals),
    ("max_running_requests ", _cap),
    ("Mamba Cache is allocated", _allocated),
    ("KV Cache is allocated", _allocated),
    ("SWA KV", _allocated),
    ("SWAKVPool mem usage", _window_pools),
    ("The available memory for KV cache", _available),
    ("Automatically reduce --mem-fraction-static", _reduced_fraction),
    ("Max concurrent requests (per dp worker)", _boot),
    ("Memory profiling: ", _profile),
    ("DSv4 memory calculation", _profile),
    ("Use sliding window memory pool", _totals),
    ("Use Sliding window memory pool", _totals),
    ("Post-capture KV sizing", _post_capture),
    ("SWA ring: swa_max", _window_ring),
    ("Allocating ", _host_pool),
    ("[unified-memory-pool]", _unified),
    ("Capture cuda graph bs [", _graphs),
    ("Capture CUDA graph bs [", _graphs),
    *((start, _memory) for start, _ in _STAGES),
    ("Using KV cache dtype", _kv_dtype),
    ("The server is fired up", _ready),
    ("Engine startup timings", _timings),
    ("SIGTERM received", _shutdown),
    ("Gracefully exiting", _shutdown),
    ("Attention backend not specified", _boot),
    ("Linear attention kernel backend", _boot),
    ("GDN kernel dispatcher", _boot),
    ("Using hybrid linear attention backend", _boot),
    ("Using default HuggingFace chat template", _boot),
    ("Tree cache initialized", _boot),
    ("Init Unified Radix Cache", _boot),
    ("Init torch distributed begin", _boot),
    ("Application startup complete", _boot),
    ("Uvicorn running on", _boot),
    ("Started server process", _boot),
    ("Waiting for application", _boot),
    ("Application shutdown complete", _shutdown),
    ("Cache flushed successfully", _note),
    ("Endpoint '", _note),
    ("Downcasting ", _note),
    ("Casting ", _note),
    ("Tokenizer ", _note),
    ("Prefetch operation", _host_cache),
    ("Backup to storage", _note),
)
BEGINNINGS: Final = frozenset(start[:7] for start, _ in _READERS if len(start) >= 7) | {"SWA KV ", "Casting"}
"""The first seven characters of every line read here."""
