"""llama.cpp's server log lines: sizes, per-slot timings, requests. It has no periodic throughput line."""

from __future__ import annotations

import re

from headrace.engines.failure_entry import Failure, Severity
from headrace.engines.failures import Catalogue
from headrace.engines.log_event import LogEvent, Value
from headrace.engines.log_fields import number
from headrace.engines.log_lines import LogLine, unwrap
from headrace.engines.log_troubles import catalogued, event

ENGINE = "llamacpp"

CATALOGUE = Catalogue(
    (
        Failure(
            "model_load_failed",
            Severity.FAILURE,
            ("error loading model", "failed to load model"),
            "The model file could not be loaded.",
            "The line above it says why: a damaged file, an unknown architecture, or no memory.",
        ),
        Failure(
            "buffer_refused",
            Severity.FAILURE,
            ("failed to allocate buffer", "cudaMalloc failed", "failed to allocate compute buffers"),
            "A buffer for weights, KV cache or computing did not fit.",
            "Lower --ctx-size, --parallel or --n-gpu-layers, or quantise the KV cache.",
        ),
        Failure(
            "context_exceeded",
            Severity.WARNING,
            ("exceeds the available context size", "exceed_context_size_error"),
            "A request was longer than a slot's share of the context (--ctx-size ÷ --parallel).",
            "Raise --ctx-size or lower --parallel.",
        ),
        Failure(
            "no_kv_slot",
            Severity.WARNING,
            ("failed to find free space in the KV cache", "failed to find a memory slot"),
            "A batch found no room in the KV cache and was cut or refused.",
            "Raise --ctx-size, or lower --parallel or the requests' lengths.",
        ),
    )
)
_SLOTS = re.compile(r"n_slots = (\d{1,6})")
_CONTEXT = re.compile(r"n_ctx(?:_slot|_seq)? += (\d{1,12})")
_GENERATED = re.compile(r"n_(?:gen|decoded) = (\d{1,9}), tg = ([\d.]{1,12}) t/s")
_TIMING = re.compile(
    r"(prompt eval|eval|total) time = +([\d.]{1,16}) ms / +(\d{1,9}) (?:tokens|runs)"
    r"(?:.{0,80}?([\d.]{1,16}) tokens per second)?"
)
_REQUEST = re.compile(r"(?:log_server_r: )?(?:done )?request: ([A-Z]{3,7}) ([^\s?]{1,200})\S* \S+ (\d{3})")
_BEGIN = ("srv ", "slot ", "main: ", "prompt eval", "eval time", "total time", "llama_", "common_", "que ")


def parse_line(text: str) -> LogEvent | None:
    """Returns what the line says, None where it says nothing known. Never raises."""
    return parse(unwrap(text))


def parse(line: LogLine) -> LogEvent | None:
    """Returns what an unwrapped line says, None where it says nothing known or another engine printed it."""
    message = line.message.lstrip()
    if line.engine or not message.startswith(_BEGIN):
        return None
    if found := _GENERATED.search(message):
        values: dict[str, Value] = {"output_tokens": float(found[1])}
        if (rate := number(found[2])) is not None:
            values["per_user_tokens_per_s"] = rate
        return event(line, ENGINE, "request", values)
    if found := _TIMING.search(message):
        stage = {"prompt eval": "prefill", "eval": "decode", "total": "total"}[found[1]]
        values = {"stage": stage, "tokens": float(found[3])}
        if (milliseconds := number(found[2])) is not None:
            values["seconds"] = milliseconds / 1e3
        if found[4] and stage == "decode" and (rate := number(found[4])) is not None:
            values["per_user_tokens_per_s"] = rate
        return event(line, ENGINE, "request", values)
    if found := _REQUEST.search(message):
        return event(
            line, ENGINE, "access", {"method": found[1], "path": found[2][:64], "status": float(found[3])}
        )
    sizes: dict[str, Value] = {}
    if found := _SLOTS.search(message):
        sizes["cap"] = float(found[1])
    if found := _CONTEXT.search(message):
        sizes["max_context"] = float(found[1])
    if sizes:
        return event(line, ENGINE, "capacity", sizes)
    if "server is listening on" in message:
        return event(line, ENGINE, "ready")
    entry = CATALOGUE.find(message)
    return None if entry is None else catalogued(line, ENGINE, entry)
