"""No line, whatever it is, makes the parsers raise, and no number that comes out is not finite."""

from __future__ import annotations

import io
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.log_event import KINDS, LogEvent
from headrace.engines.log_reader import LogReader, parse_line

PIECES = st.sampled_from(
    [
        "[2026-03-04 05:06:07 DP1 TP2] ",
        "[2026-03-04 05:06:07.123] ",
        "INFO 03-04 05:06:07 [loggers.py:12] ",
        "ERROR 03-04 05:06:07 [core.py:1] ",
        "WARNING:  ",
        "(RayWorker pid=12, ip=10.0.0.1) ",
        "2026-03-04T05:06:07.5Z stdout P ",
        "2026-03-04T05:06:07.5Z stdout F ",
        "Mar 04 05:06:07 node llm[7]: ",
        '{"log":"',
        '\\n","stream":"stderr","time":"2026-03-04T05:06:07Z"}',
        "engine-1  | ",
        "\x1b[31m",
        "\r",
        "Decode batch",
        "Prefill batch",
        ", ",
        ". ",
        "#running-req: ",
        "full token usage: ",
        "mamba num: ",
        "#new_token_ratio: ",
        "gen throughput (token/s): ",
        "Engine 000: ",
        "Avg prompt throughput: ",
        "Running: ",
        "GPU KV cache usage: ",
        "GPU KV cache size: ",
        "SpecDecoding metrics: ",
        "server_args=ServerArgs(",
        "server_args={",
        "non-default args: {",
        "Initializing a V1 LLM engine (v0.1.2) with config: ",
        "'max_num_seqs': ",
        "tp_size=",
        "max_total_num_tokens=",
        "Mamba Cache is allocated. ",
        "Capture cuda graph end. ",
        "Load weight end. ",
        "mem usage=",
        "KV cache pool is full. Retract requests. ",
        "Traceback (most recent call last):",
        '  File "x", line 1, in f',
        "RuntimeError: ",
        "CUDA out of memory",
        "slot print_timing: eval time = ",
        "n_gen = ",
        "1e999",
        "-1",
        "nan",
        "99.9%",
        "1,000,000 tokens",
        "True",
        "None",
        "()",
        "]",
        "}",
        "'",
        '"',
        "\\",
        " GB",
        " reqs",
        " -> ",
        "\n",
    ]
)
LINES = st.lists(st.one_of(PIECES, st.text(max_size=12)), max_size=14).map("".join)


def check(event: LogEvent) -> None:
    assert event.kind in KINDS
    assert event.engine in ("", "sglang", "vllm", "llamacpp")
    assert len(event.text) <= 400
    assert event.time_seconds is None or math.isfinite(event.time_seconds)
    for value in event.values.values():
        assert len(value) <= 200 if isinstance(value, str) else math.isfinite(value)
    for key, raw in event.unknown.items():
        assert len(key) <= 64
        assert len(raw) <= 64


@settings(max_examples=150, deadline=None)
@given(LINES)
def test_a_line_of_pieces(text: str) -> None:
    found = parse_line(text)
    if found is not None:
        check(found)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=8), st.sampled_from([None, "sglang", "vllm", "llamacpp"]))
def test_a_log_of_such_lines(texts: list[str], engine: str | None) -> None:
    for event in LogReader(io.BytesIO("\n".join(texts).encode()), engine):
        check(event)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_bytes_of_any_kind(data: bytes) -> None:
    for event in LogReader(io.BytesIO(b"x" + data)):
        check(event)
