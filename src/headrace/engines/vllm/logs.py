"""vLLM's log lines, V0 and V1: the statistics of an interval, the start, sizes, failures.

The statistics line is `key: value` pairs and is read by key: V0 has Swapped, Pending and a CPU cache, V1 an
engine number, a hit rate and, by version, deferred requests, preemptions and caches of other kinds. The KV
cache is named after its device ("GPU KV cache usage", "CPU KV cache usage"): on the CPU back end that is the
one pool, beside a "GPU" one it is V0's swap space.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headrace.engines.log_event import NOTHING, LogEvent, Value
from headrace.engines.log_fields import number, pairs
from headrace.engines.log_lines import LogLine, unwrap
from headrace.engines.log_shapes import Family
from headrace.engines.log_troubles import access, event, trouble
from headrace.engines.vllm import boot_lines
from headrace.engines.vllm.failures import CATALOGUE

ENGINE = "vllm"
_ANYWHERE = 200  # characters in which a statistics line may begin

STATS_WORDS: Mapping[str, str] = {
    "Avg prompt throughput": "prefill_tokens_per_s",
    "Avg generation throughput": "output_tokens_per_s",
    "Running": "running",
    "Waiting": "queued",
    "Pending": "queued",
    "Swapped": "swapped",
    "Deferred": "deferred",
    "Preemptions": "preemptions",
    "KV fetch": "kv_fetch_waiting",
    "GPU KV cache usage": "kv_usage",
    "CPU KV cache usage": "cpu_kv_usage",
    "Prefix cache hit rate": "cache_hit_rate",
    "GPU prefix cache hit rate": "cache_hit_rate",
    "CPU prefix cache hit rate": "cpu_cache_hit_rate",
    "External prefix cache hit rate": "external_cache_hit_rate",
    "MM cache hit rate": "multimodal_cache_hit_rate",
    "Corrupted": "corrupted",
}
"""Key of a statistics line → word of the event. Rates are averages since the line before; percent is 0…1."""

_SPECULATION: Mapping[str, str] = {
    "Mean acceptance length": "accept_length",
    "Accepted throughput": "accepted_tokens_per_s",
    "Drafted throughput": "drafted_tokens_per_s",
    "Accepted": "accepted_tokens",
    "Drafted": "drafted_tokens",
    "Per-position acceptance rate": "accept_rate_first",
    "Avg Draft acceptance rate": "accept_rate",
    # V0
    "Draft acceptance rate": "accept_rate",
    "System efficiency": "speculation_efficiency",
    "Number of speculative tokens": "draft_tokens_per_step",
    "Number of accepted tokens": "accepted_tokens",
    "Number of draft tokens": "drafted_tokens",
    "Number of emitted tokens": "emitted_tokens",
}
FAMILIES = (
    Family(ENGINE, "stats", re.compile(r"Engine (\d{1,6}): "), STATS_WORDS),
    Family(ENGINE, "stats", re.compile(""), STATS_WORDS),
    Family(ENGINE, "speculation", re.compile("SpecDecoding metrics: "), _SPECULATION),
)
_ENGINE_NUMBER = re.compile(r"Engine (\d{1,6}): ")
_AGGREGATED = re.compile(r"(\d{1,6}) Engines Aggregated: ")
_ITERATION = re.compile(
    r"Iteration\((\d{1,12})\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, "
    r"(\d+) generation tokens, iteration elapsed time: ([\d.]+) ms"
)
_BLOCKS = re.compile(r"vllm cache_config_info with initialization after num_gpu_blocks is: (\d{1,12})")


def parse_line(text: str) -> LogEvent | None:
    """Returns what the line says, None where it says nothing known. Never raises."""
    return parse(unwrap(text))


def parse(line: LogLine) -> LogEvent | None:
    """Returns what an unwrapped line says, None where it says nothing known or another engine printed it."""
    if line.engine == "sglang":
        return None
    message = line.message
    handler = _HANDLERS.get(message[:7])
    if handler is not None:
        found = handler(line)
        if found is not None:
            return found
    if message.startswith("vllm:"):
        return _metric(line)
    if line.level == "INFO" and line.engine == "" and (found := access(line, ENGINE)) is not None:
        return found
    if " Engines Aggregated: " in message[:30] and (aggregated := _AGGREGATED.match(message)):
        found = _averages(line, message[aggregated.end() :])
        if found is not None:
            found.values = {**found.values, "engines": float(aggregated[1])}
        return found
    at = message.find("Avg prompt throughput: ", 0, _ANYWHERE)
    if at > 0:  # behind a prefix nobody knows
        said = _averages(line, message[at:])
        if said is not None and (number_found := _ENGINE_NUMBER.search(message, 0, at)):
            said.ranks = {**said.ranks, "engine": int(number_found[1])}
        return said
    found = trouble(line, ENGINE, CATALOGUE)
    if found is None:
        return None
    if ENGINE not in (line.engine, line.process) and not found.failure and found.kind != "traceback":
        return None  # a warning of nobody knows which program
    if found.failure == "no_kv_space_preemption":
        found.kind = "retraction"
    elif found.failure == "batch_dump":
        found.text = ""  # it holds prompts
    return found


def _engine(line: LogLine) -> LogEvent | None:
    message = line.message
    found = _ENGINE_NUMBER.match(message)
    if not found:
        return boot_lines.parse(line)
    rest = message[found.end() :]
    said: LogEvent | None
    if rest.startswith("Iteration("):
        said = _iteration(line, rest)
    elif blocks := _BLOCKS.match(rest):
        said = event(line, ENGINE, "capacity", {"pool_blocks": float(blocks[1])})
    else:
        said = _averages(line, rest)
    if said is not None:
        said.ranks = {**said.ranks, "engine": int(found[1])}
    return said


def _stats(line: LogLine) -> LogEvent | None:
    return _averages(line, line.message)


def _averages(line: LogLine, message: str) -> LogEvent | None:
    values, unknown = pairs(message.rstrip("., "), STATS_WORDS)
    if not values:
        return None
    if "cpu_kv_usage" in values:
        on_cpu = values.pop("cpu_kv_usage")
        values["swap_usage" if "kv_usage" in values else "kv_usage"] = on_cpu
    for key in [key for key in unknown if key.endswith(" KV cache usage")]:  # XPU, TPU, HPU
        usage = number(unknown.pop(key))
        if usage is not None and "kv_usage" not in values:
            values["kv_usage"] = usage
    stats = event(line, ENGINE, "stats", values)
    stats.unknown = unknown or NOTHING
    return stats


def _iteration(line: LogLine, message: str) -> LogEvent | None:
    found = _ITERATION.match(message)
    if not found:
        return None
    values: dict[str, Value] = {
        "iteration": float(found[1]),
        "prefill_requests": float(found[2]),
        "new_tokens": float(found[3]),
        "running": float(found[4]),
        "output_tokens": float(found[5]),
    }
    elapsed = number(found[6])
    if elapsed is not None:
        values["step_ms"] = elapsed
    usage = number(message.rpartition("KV cache usage: ")[2])
    if usage is not None:
        values["kv_usage"] = usage
    return event(line, ENGINE, "stats", values)


def _speculation(line: LogLine) -> LogEvent | None:
    _, _, rest = line.message.partition(": ")
    values, unknown = pairs(rest.rstrip(". "), _SPECULATION)
    if not values:
        return None
    speculation = event(line, ENGINE, "speculation", values)
    speculation.unknown = unknown or NOTHING
    return speculation


def _hit_rates(line: LogLine) -> LogEvent | None:
    """V0's line of its own: `Prefix cache hit rate: GPU: 12.00%, CPU: 0.00%`."""
    found = re.match(r"Prefix cache hit rate: GPU: ([\d.]{1,16}%)(?:, CPU: ([\d.]{1,16}%))?", line.message)
    if not found:
        return None
    words = ("cache_hit_rate", "cpu_cache_hit_rate")
    values: dict[str, Value] = {
        word: value
        for word, raw in zip(words, found.groups(), strict=True)
        if raw and (value := number(raw)) is not None
    }
    return event(line, ENGINE, "stats", values)


def _unsaid(line: LogLine) -> LogEvent | None:
    """A request as it came or went: it may hold the prompt, of which nothing is kept."""
    known = ("Received request", "Added request", "Generated response", "Finished request")
    return event(line, ENGINE, "note") if line.message.startswith(known) else None


def _metric(line: LogLine) -> LogEvent | None:
    if not line.message.startswith(("vllm:", "# HELP vllm", "# TYPE vllm")):
        return None
    return event(line, ENGINE, "metric")


_HANDLERS: dict[str, Callable[[LogLine], LogEvent | None]] = {
    **dict.fromkeys(boot_lines.BEGINNINGS, boot_lines.parse),
    "Engine ": _engine,
    "Avg pro": _stats,
    "Running": _stats,
    "Prefix ": _hit_rates,
    "SpecDec": _speculation,
    "Specula": _speculation,
    "Receive": _unsaid,
    "Added r": _unsaid,
    "Generat": _unsaid,
    "Finishe": _unsaid,
    "# HELP ": _metric,
    "# TYPE ": _metric,
}
"""The first seven characters of a message → what reads it."""
