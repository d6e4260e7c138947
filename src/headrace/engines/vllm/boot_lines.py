"""vLLM's lines of starting and stopping: version, settings, sizes, memory, graphs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from headrace.engines.log_event import LogEvent, Value
from headrace.engines.log_fields import number, scrub, setting_values, settings
from headrace.engines.log_lines import LogLine
from headrace.engines.log_troubles import event, told

ENGINE = "vllm"
_MAX_SETTINGS = 131_072  # characters

# What decides sizes and pace, and the model's name. None can hold a secret.
SETTINGS: Final = frozenset(
    (
        "model",
        "model_tag",
        "served_model_name",
        "dtype",
        "quantization",
        "load_format",
        "max_model_len",
        "max_seq_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_num_partial_prefills",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "num_gpu_blocks_override",
        "block_size",
        "swap_space",
        "cpu_offload_gb",
        "kv_cache_dtype",
        "mamba_cache_dtype",
        "mamba_ssm_cache_dtype",
        "mamba_cache_mode",
        "mamba_block_size",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "enable_expert_parallel",
        "api_server_count",
        "distributed_executor_backend",
        "disable_custom_all_reduce",
        "enforce_eager",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "use_async_output_proc",
        "async_scheduling",
        "scheduling_policy",
        "num_scheduler_steps",
        "multi_step_stream_outputs",
        "preemption_mode",
        "performance_mode",
        "language_model_only",
        "device_config",
        "max_cudagraph_capture_size",
        "max_seq_len_to_capture",
        "stream_interval",
        "disable_log_stats",
        "shutdown_timeout",
    )
)
_NAMES: Final = frozenset(("model", "model_tag", "served_model_name"))
_SPECULATIVE: Final = frozenset(("method", "num_speculative_tokens", "num_spec_tokens"))

_CAPACITY = re.compile(r"(\w{2,12}) KV cache size: ([\d,]{1,24}) tokens")
_CONCURRENCY = re.compile(
    r"[Mm]aximum concurrency for ([\d,]{1,24}) tokens per request: ([\d.]{1,16})x"
    r"|max concurrency for ([\d,]{1,24}) tokens/request: ([\d.]{1,16})x"
)
_VERSION = re.compile(r"\(v(\d[\w.+-]{0,60})\)|version v?(\d[\w.+-]{0,60})")
_V0_MEMORY = re.compile(
    r"([a-z][a-zA-Z _]{2,60}?)(?: takes?| take|, excluding[^;]{0,80}) \(?([\d.]{1,16}) ?GiB"
)


def parse(line: LogLine) -> LogEvent | None:
    """Returns what a line of the start or the end says, None where it is none of the known."""
    for start, reader in _READERS:
        if line.message.startswith(start):
            return reader(line)
    return None


def _values(line: LogLine, kind: str, pattern: str, words: tuple[str, ...]) -> LogEvent | None:
    """An event whose words are the pattern's groups in order."""
    found = re.search(pattern, line.message[:4000])
    if not found:
        return None
    values: dict[str, Value] = {}
    for word, raw in zip(words, found.groups(), strict=False):
        if raw is None:
            continue
        value = number(raw)
        values[word] = scrub(raw, 64) if value is None else value
    return event(line, ENGINE, kind, values)


def _reader(kind: str, pattern: str, *words: str) -> Callable[[LogLine], LogEvent | None]:
    return lambda line: _values(line, kind, pattern, words)


def _capacity(line: LogLine) -> LogEvent | None:
    values: dict[str, Value] = {}
    if found := _CAPACITY.search(line.message[:400]):
        values["kv_capacity_tokens"] = float(found[2].replace(",", "") or 0)
    if found := _CONCURRENCY.search(line.message[:400]):
        length, times = number(found[1] or found[3]), number(found[2] or found[4])
        if length is not None and times is not None:
            values |= {"max_context": length, "max_concurrency": times}
    return event(line, ENGINE, "capacity", values) if values else None


def _engine_config(line: LogLine) -> LogEvent:
    """`Initializing a V1 LLM engine (v0.13.0) with config: model='…', …`, by allow-list."""
    head, _, text = line.message.partition("with config: ")
    return _settings(line, text, head)


def _arguments(line: LogLine) -> LogEvent:
    """`non-default args: {…}` and V0's `args: Namespace(…)`, by allow-list: both hold the API key."""
    return _settings(line, line.message.partition(": ")[2], "")


def _settings(line: LogLine, text: str, head: str) -> LogEvent:
    text = text[:_MAX_SETTINGS]
    found = settings(text, SETTINGS | {"speculative_config"})
    speculative = found.pop("speculative_config", "None")
    values = setting_values(found, _NAMES)
    if speculative not in ("None", ""):
        for key, value in setting_values(settings(speculative, _SPECULATIVE), frozenset()).items():
            values["speculative_method" if key == "method" else "speculative_tokens"] = value
    if version := _VERSION.search(head):
        values["version"] = version[1] or version[2]
    return event(line, ENGINE, "settings", values)


def _version(line: LogLine) -> LogEvent | None:
    found = _VERSION.search(line.message[:200])
    if not found:
        return None
    return event(line, ENGINE, "boot", {"version": found[1] or found[2]})


def _v0_memory(line: LogLine) -> LogEvent:
    values: dict[str, Value] = {"stage": "profile"}
    for name, raw in _V0_MEMORY.findall(line.message[:2000]):
        value = number(raw)
        if value is not None:
            values[name.strip().replace(" ", "_")[:40] + "_gib"] = value
    return event(line, ENGINE, "memory", values)


def _boot(line: LogLine) -> LogEvent:
    return told(line, ENGINE, "boot")


def _note(line: LogLine) -> LogEvent:
    return told(line, ENGINE, "note")


def _shutdown(line: LogLine) -> LogEvent:
    return told(line, ENGINE, "shutdown")


def _stopping(line: LogLine) -> LogEvent | None:
    return None if line.level in ("WARNING", "ERROR") else _shutdown(line)


def _ready(line: LogLine) -> LogEvent:
    return event(line, ENGINE, "ready")


_NUMBER = r"([\d.,]{1,24})"
_SIZED = r"([\d.]{1,16}) ?Gi?B"
_READERS: tuple[tuple[str, Callable[[LogLine], LogEvent | None]], ...] = (
    ("GPU KV cache size", _capacity),
    ("CPU KV cache size", _capacity),
    ("XPU KV cache size", _capacity),
    ("TPU KV cache size", _capacity),
    ("Maximum concurrency", _capacity),
    ("Available KV cache memory", _reader("capacity", rf": {_SIZED}", "kv_pool_gib")),
    (
        "# GPU blocks",
        _reader(
            "capacity",
            r"# GPU blocks: (\d{1,12})(?:, # CPU blocks: (\d{1,12}))?",
            "pool_blocks",
            "swap_blocks",
        ),
    ),
    (
        "# cuda blocks",
        _reader(
            "capacity",
            r"# cuda blocks: (\d{1,12})(?:, # CPU blocks: (\d{1,12}))?",
            "pool_blocks",
            "swap_blocks",
        ),
    ),
    ("Overriding num_gpu_blocks", _reader("capacity", r"override=(\d{1,12})", "pool_blocks")),
    ("Setting attention block size", _reader("capacity", r"to (\d{1,9}) tokens", "attention_block_tokens")),
    ("Padding mamba page size", _reader("capacity", rf"by {_NUMBER}", "state_page_padding_percent")),
    ("Mamba cache mode is set", _reader("boot", r"to '(\w{1,20})'", "mamba_cache_mode")),
    (
        "Explicitly set (",
        _reader("capacity", r"\(([\d.]{1,16})/([\d.]{1,16})\) GiB", "kv_pool_gib", "total_gib"),
    ),
    (
        "Chunked prefill is enabled",
        _reader("settings", r"max_num_batched_tokens=(\d{1,12})", "max_num_batched_tokens"),
    ),
    (
        "Model loading took",
        _reader("memory", rf"took {_SIZED}(?: memory)? and {_NUMBER}", "weights_gib", "seconds"),
    ),
    ("Loading model weights took", _reader("memory", rf"took {_SIZED}", "weights_gib")),
    ("Loading weights took", _reader("boot", rf"took {_NUMBER}", "load_weights_seconds")),
    (
        "Graph capturing finished",
        _reader("memory", rf"in {_NUMBER} secs?, took {_SIZED}", "seconds", "used_gib"),
    ),
    ("Estimated CUDA graph memory", _reader("memory", rf": {_SIZED}", "graphs_estimated_gib")),
    (
        "CUDA graph pool memory",
        _reader("memory", rf": {_SIZED} \(actual\), {_SIZED}", "used_gib", "graphs_estimated_gib"),
    ),
    (
        "Memory profiling results",
        _reader("capacity", r"kv_cache_size=([\d.]{1,16})GiB", "kv_pool_gib"),
    ),
    ("Initial free memory", _reader("capacity", rf"reserved {_SIZED} memory for KV", "kv_pool_gib")),
    ("Memory profiling takes", _v0_memory),
    ("the current vLLM instance", _v0_memory),
    ("model weights take", _v0_memory),
    ("init engine (profile", _reader("boot", rf"took {_NUMBER} ?s", "init_seconds")),
    ("torch.compile t", _reader("boot", rf"t(?:akes|ook) {_NUMBER} s", "compile_seconds")),
    ("Dynamo bytecode transform", _reader("boot", rf": {_NUMBER} s", "dynamo_seconds")),
    ("Compiling a graph for", _reader("boot", rf"takes {_NUMBER} s", "compile_seconds")),
    ("Resolved architecture", _reader("boot", r": (\w{1,100})", "architecture")),
    ("Using max model len", _reader("settings", r"len (\d{1,12})", "max_model_len")),
    ("Auto-fit max_model_len", _reader("capacity", r"(?:to|length|=) ?(\d{1,12})", "max_context")),
    ("Initializing an LLM engine", _engine_config),
    ("Initializing a V", _engine_config),
    ("Initializing the V", _engine_config),
    ("non-default args", _arguments),
    ("args: Namespace", _arguments),
    ("vLLM API server version", _version),
    ("vLLM version", _version),
    ("Using AttentionBackendEnum", _boot),
    ("Using Flash", _boot),
    ("Automatically detected platform", _boot),
    ("Starting vLLM API server", _boot),
    ("Starting to load model", _boot),
    ("Application startup complete", _ready),
    ("Started server process", _boot),
    ("Waiting for application startup", _boot),
    ("Waiting for application shutdown", _shutdown),
    ("Application shutdown complete", _shutdown),
    ("Finished server process", _shutdown),
    ("Shutting down", _shutdown),
    ("Uvicorn running on", _boot),
    ("Route: ", _note),
    ("kv cache group sizes", _note),
    ("Kernel JIT monitor activated", _note),
    ("[shutdown]", _stopping),
    ("Parent process exited", _shutdown),
)
BEGINNINGS: Final = frozenset(start[:7] for start, _ in _READERS)
"""The first seven characters of every line read here."""
