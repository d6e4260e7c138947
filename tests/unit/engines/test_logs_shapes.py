"""Lines of a shape met before are read in one go, and say what the long way says."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines import log_reader
from headrace.engines.log_event import LogEvent
from headrace.engines.log_reader import LogReader

NUMBERS = st.one_of(
    st.integers(0, 10**16).map(str),
    st.floats(0, 1e6).map(lambda value: f"{value:.2f}"),
    st.sampled_from(["0", "-1", "nan", "1,234", "1e3", "", "0.5 x", "99.9%"]),
)
SWITCHES = st.sampled_from(["True", "False", "maybe"])
STAMPS = st.sampled_from(["2026-03-04 05:06:07", "2026-02-30 05:06:07", "2026-12-31 23:59:59.123"])
RANKS = st.sampled_from(["", " TP0", " DP1 TP2", " DP3 PP1 TP2 EP4", " nonsense"])
PROCESSES = st.sampled_from(
    ["", "(APIServer pid=7) ", "(EngineCore_DP1 pid=12) ", "(Ray pid=9, ip=10.0.0.1) "]
)


@st.composite
def sglang_lines(draw: st.DrawFn) -> str:
    header = f"[{draw(STAMPS)}{draw(RANKS)}] "
    if draw(st.booleans()):
        return (
            f"{header}Decode batch, #running-req: {draw(NUMBERS)}, #token: {draw(NUMBERS)}, token usage: "
            f"{draw(NUMBERS)}, cuda graph: {draw(SWITCHES)}, gen throughput (token/s): {draw(NUMBERS)}, "
            f"#queue-req: {draw(NUMBERS)}"
        )
    path = draw(st.sampled_from(["/generate", "/v1/completions?key=abcdefgh", "/%s", "/" + "a" * 300]))
    status = draw(st.sampled_from(["200 OK", "503 Oh", "2"]))
    return f'{header}INFO:     10.0.0.1:5 - "POST {path} HTTP/1.1" {status}'


@st.composite
def vllm_lines(draw: st.DrawFn) -> str:
    level = draw(st.sampled_from(["INFO", "WARNING"]))
    header = f"{draw(PROCESSES)}{level} 0{draw(st.integers(1, 9))}-04 05:06:07 [loggers.py:12] "
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return (
            f"{header}Engine {draw(st.integers(0, 12)):03d}: "
            f"Avg prompt throughput: {draw(NUMBERS)} tokens/s, Running: {draw(NUMBERS)} reqs, "
            f"GPU KV cache usage: {draw(NUMBERS)}%"
        )
    if kind == 1:
        return (
            f"{header}SpecDecoding metrics: Mean acceptance length: {draw(NUMBERS)}, "
            f"Per-position acceptance rate: {draw(NUMBERS)}, {draw(NUMBERS)}, Avg Draft acceptance rate: 5.1%"
        )
    return f'{draw(PROCESSES)}INFO:     10.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK'


def docker(line: str) -> str:
    record = {"log": line + "\n", "stream": "stderr", "time": "2026-03-04T05:06:08.123456789Z"}
    return json.dumps(record, separators=(",", ":"))


WRAPPINGS: list[Callable[[str], str]] = [
    str,
    docker,
    lambda line: f"2026-03-04T05:06:08.5+02:00 stdout F {line}",
    lambda line: f"[pod/llm-0/server] 2026-03-04T05:06:08.5Z {line}",
    lambda line: f"\x1b[32m{line[:30]}\x1b[0m{line[30:]}",
]


class LongWay(LogReader):
    """Knows no shapes."""

    def _met(self, text: str) -> LogEvent | None:
        return None


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.lists(sglang_lines(), min_size=2, max_size=12), st.lists(vllm_lines(), min_size=2, max_size=12)
    ),
    st.lists(st.sampled_from(WRAPPINGS), min_size=1, max_size=3),
)
def test_both_ways_say_the_same(lines: list[str], wrappings: list[Callable[[str], str]]) -> None:
    # every line twice: what is learned from the first is used on the second
    text = [wrappings[at % len(wrappings)](line) for at, line in enumerate(lines + lines)]
    data = "\n".join(text).encode()
    quick, long = LogReader(io.BytesIO(data)), LongWay(io.BytesIO(data))
    assert list(quick) == list(long)
    assert (quick.lines, quick.understood, quick.kinds, quick.engines) == (
        long.lines,
        long.understood,
        long.kinds,
        long.engines,
    )


@pytest.mark.parametrize("wrap", WRAPPINGS, ids=["plain", "docker", "cri", "kubectl", "colour"])
@pytest.mark.parametrize(
    "line",
    [
        "[2026-03-04 05:06:07 DP0 TP1] Prefill batch, #new-seq: 3, #new-token: 41, #cached-token: 0, "
        "full token usage: 0.40, #running-req: 9, #queue-req: 4, npu graph: False, "
        "input throughput (token/s): 5.33",
        '[2026-03-04 05:06:07] INFO:     127.0.0.1:9 - "POST /generate HTTP/1.1" 200 OK',
        "INFO 03-04 05:06:07 [loggers.py:9] Engine 001: Avg prompt throughput: 0.0 tokens/s, "
        "Running: 8 reqs, GPU KV cache usage: 95.9%",
    ],
    ids=["prefill", "access", "stats"],
)
def test_a_second_line_of_a_shape_is_not_taken_apart(
    line: str, wrap: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogReader(io.BytesIO())
    first = log.parse(wrap(line))
    assert first is not None
    monkeypatch.setattr(log_reader, "unwrap", None)
    assert log.parse(wrap(line)) == first


def test_values_that_are_read_when_asked_for_are_a_mapping() -> None:
    log = LogReader(io.BytesIO())
    line = "[2026-03-04 05:06:07] Decode batch, #running-req: 8, token usage: 0.50, cuda graph: True"
    log.parse(line)
    event = log.parse(line)
    assert event is not None
    assert dict(event.values) == {"running": 8.0, "kv_usage": 0.5, "cuda_graph": 1.0}
    assert event.number("queued") is None
    assert "queued" not in event.values
    assert len(event.values) == 3
