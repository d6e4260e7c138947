"""SGLang's log lines, 0.4 to 0.5.23: batches, the start, pools, retractions, failures.

A batch line is `key: value` pairs and is read by key: the order and the set of keys differ by version, pool
type and parallelism, and a key that nobody knows is kept. The separator after "batch" is `.` up to 0.5.3 and
`,` from 0.5.5; `[1234]` between them is the iteration (SGLANG_LOG_FORWARD_ITERS).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headrace.engines.log_event import NOTHING, LogEvent, Value
from headrace.engines.log_fields import number, pairs
from headrace.engines.log_lines import LogLine, bare_ranks, unwrap
from headrace.engines.log_shapes import Family
from headrace.engines.log_troubles import access, event, trouble
from headrace.engines.sglang import boot_lines
from headrace.engines.sglang.failures import CATALOGUE

ENGINE = "sglang"
_ANYWHERE = 200  # characters in which a batch line may begin

BATCH_WORDS: Mapping[str, str] = {
    "#running-req": "running",
    "#queue-req": "queued",
    "#token": "kv_used_tokens",
    "token usage": "kv_usage",
    "#full token": "kv_used_tokens",
    "full token usage": "kv_usage",
    "#gpu token": "kv_used_tokens",
    "gpu token usage": "kv_usage",
    "#cpu token": "host_kv_used_tokens",
    "cpu token usage": "host_kv_usage",
    "#swa token": "swa_used_tokens",
    "swa token usage": "swa_usage",
    "mamba num": "state_used_slots",
    "mamba usage": "state_usage",
    "accept len": "accept_length",
    "accept rate": "accept_rate",
    "cap len": "accept_length_cap",
    "block accept len": "accept_length_block",
    "pre-allocated usage": "prealloc_usage",
    "#prealloc-req": "prealloc",
    "#transfer-req": "transferring",
    "#host-receive-req": "host_receiving",
    "#retracted-req": "retracted_waiting",
    "#bootstrap-req": "bootstrapping",
    "#unbootstrapped-req": "bootstrapping",
    "#inflight-req": "transferring",
    "#transferring-req": "transferring",
    "#optimistic-req": "optimistic",
    "waiting-image-req": "waiting_images",
    "cuda graph": "cuda_graph",
    "cpu graph": "cuda_graph",
    "npu graph": "cuda_graph",
    "musa graph": "cuda_graph",
    "xpu graph": "cuda_graph",
    "hip graph": "cuda_graph",
    "gen throughput (token/s)": "output_tokens_per_s",
    "input throughput (token/s)": "prefill_tokens_per_s",
    "#new-seq": "new_requests",
    "#new-token": "new_tokens",
    "#cached-token": "cached_tokens",
    "cache hit rate": "cache_hit_rate",
    "#pending-token": "pending_tokens",
    "#replay-token": "replayed_tokens",
    "largest-len": "longest_request_tokens",
    "#cache_miss": "compiled_steps",
    "est. decode TFLOPS/s (per GPU)": "decode_tflops_per_gpu",
    "est. prefill TFLOPS/s (per GPU)": "prefill_tflops_per_gpu",
    "est. read BW (GB/s per GPU)": "read_gb_per_s_per_gpu",
    "est. write BW (GB/s per GPU)": "write_gb_per_s_per_gpu",
    "fwd occupancy": "forward_share",
    "fwd+idle occupancy": "forward_idle_share",
}
"""Key of a batch line → word of the event. `cuda_graph` of a prefill line is about the piecewise graph."""

FAMILIES = tuple(
    Family(ENGINE, kind, re.compile(f"{kind.title()} batch[.,] "), BATCH_WORDS)
    for kind in ("decode", "prefill")
)
_BATCH = re.compile(r"(Decode|Prefill) batch(?: \[(\d{1,12})\])?[.,]? ?")
_RETRACTED: Mapping[str, str] = {
    "#retracted_reqs": "retracted",
    "#aborted_retracted_reqs": "aborted",
    "#new_tokens_gained": "tokens_gained",
    "#mamba_num_gained": "state_slots_gained",
    "#new_token_ratio": "new_token_ratio",
}
_KNOWN_TIMES = re.compile(
    r"(input_len|cached_input_len|output_len|queue_duration|forward_duration)=(-?[\d.]+)"
)
_TIME_WORDS = {
    "input_len": ("prompt_tokens", 1.0),
    "cached_input_len": ("cached_tokens", 1.0),
    "output_len": ("output_tokens", 1.0),
    "queue_duration": ("queue_seconds", 1e-3),
    "forward_duration": ("forward_seconds", 1e-3),
}


def parse_line(text: str) -> LogEvent | None:
    """Returns what the line says, None where it says nothing known. Never raises."""
    return parse(unwrap(text))


def parse(line: LogLine) -> LogEvent | None:
    """Returns what an unwrapped line says, None where it says nothing known or another engine printed it."""
    if line.engine == "vllm":
        return None
    message = line.message
    handler = _HANDLERS.get(message[:7])
    if handler is not None:
        found = handler(line)
        if found is not None:
            return found
    if " batch" in message[:_ANYWHERE]:  # behind a prefix nobody knows
        within = _BATCH.search(message, 0, _ANYWHERE)
        if within and "#" in message[within.end() : within.end() + 2]:
            line.ranks = line.ranks or bare_ranks(message[: within.start()])
            line.message = message[within.start() :]
            return _batch(line)
    if line.level == "INFO" and line.engine:
        return access(line, ENGINE)
    found = trouble(line, ENGINE, CATALOGUE)
    if found is not None and line.engine != ENGINE and not found.failure and found.kind != "traceback":
        return None  # a warning of nobody knows which program
    return found


def _batch(line: LogLine) -> LogEvent | None:
    found = _BATCH.match(line.message)
    if not found:
        return None
    values, unknown = pairs(line.message[found.end() :].rstrip("., "), BATCH_WORDS)
    if not values:
        return None
    if found[2]:
        values["iteration"] = float(found[2])
    batch = event(line, ENGINE, found[1].lower(), values)
    batch.unknown = unknown or NOTHING
    return batch


def _retraction(line: LogLine) -> LogEvent | None:
    if not line.message.startswith(("KV cache pool is full. Retract", "Testing retraction")):
        return boot_lines.parse(line)
    values, unknown = pairs(line.message[line.message.find("#") :], _RETRACTED)
    retraction = event(line, ENGINE, "retraction", values)
    ratio = line.message.rpartition(" -> ")[2]
    if "new_token_ratio" in values and (after := number(ratio)) is not None:
        values["new_token_ratio"] = after
    retraction.unknown = unknown or NOTHING
    retraction.failure = "kv_pool_full"
    return retraction


def _request(line: LogLine) -> LogEvent | None:
    values: dict[str, Value] = {}
    for name, raw in _KNOWN_TIMES.findall(line.message[:2000]):
        word, unit = _TIME_WORDS[name]
        try:
            values[word] = float(raw) * unit
        except ValueError:
            continue
    return event(line, ENGINE, "request", values)


def _unsaid(line: LogLine) -> LogEvent | None:
    """A request as it came or went (--log-requests): it holds the prompt, of which nothing is kept."""
    return (
        event(line, ENGINE, "note") if line.message.startswith(("Receive: ", "Finish: ", "Finish ")) else None
    )


def _metric(line: LogLine) -> LogEvent | None:
    if not line.message.startswith(("sglang:", "sglang_", "# HELP sglang", "# TYPE sglang")):
        return None
    return event(line, ENGINE, "metric")


_HANDLERS: dict[str, Callable[[LogLine], LogEvent | None]] = {
    "Decode ": _batch,
    "Prefill": _batch,
    "KV cach": _retraction,
    "Testing": _retraction,
    "ReqTime": _request,
    "Req Tim": _request,
    "Receive": _unsaid,
    "Finish:": _unsaid,
    "Finish ": _unsaid,
    "sglang:": _metric,
    "sglang_": _metric,
    "# HELP ": _metric,
    "# TYPE ": _metric,
    **dict.fromkeys(boot_lines.BEGINNINGS, boot_lines.parse),
}
"""The first seven characters of a message → what reads it."""
