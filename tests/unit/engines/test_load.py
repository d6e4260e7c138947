"""Load readers on bodies of the shapes that the engines answer; on real captures where they are at hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headrace.engines.any_load import AnyEngineLoad
from headrace.engines.load import Load, sums_of

SGLANG_LOADS = {
    "timestamp": "2026-01-01T00:00:00+00:00",
    "version": "0.5.12",
    "dp_rank_count": 2,
    "loads": [
        {"num_running_reqs": 30, "num_waiting_reqs": 2, "max_running_requests": 37, "token_usage": 0.2},
        {"num_running_reqs": 31, "num_waiting_reqs": 0, "max_running_requests": 37, "token_usage": 0.2},
    ],
}
VLLM_METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 4.0
vllm:num_requests_running{engine="1",model_name="a b"} 5.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a b"} 28.0
vllm:num_requests_waiting{engine="1",model_name="a b"} NaN
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 28.0
"""
LLAMA_METRICS = "llamacpp:requests_processing 4\nllamacpp:requests_deferred 26\nllamacpp:n_decode_total 100\n"


def read(bodies: dict[str, str]) -> Load | None:
    """What is read of a server that answers just these paths, the second time round too."""

    async def fetch(path: str) -> bytes | None:
        body = bodies.get(path.split("?")[0])
        return None if body is None else body.encode()

    async def twice() -> Load | None:
        reader = AnyEngineLoad()
        first = await reader.read(fetch)
        assert await reader.read(fetch) == first
        return first

    return asyncio.run(twice())


def test_sglang_ranks_are_summed_and_its_effective_cap_taken() -> None:
    assert read({"/v1/loads": json.dumps(SGLANG_LOADS)}) == Load(
        "sglang 0.5.12", cap=74, running=61, queued=2
    )


def test_old_sglang_has_its_cap_in_the_internal_states() -> None:
    info = {
        "version": "0.5.7",
        "max_running_requests": 64,
        "internal_states": [{"effective_max_running_requests_per_dp": 19}],
    }
    metrics = 'sglang:num_running_reqs{tp_rank="0"} 19.0\nsglang:num_queue_reqs{tp_rank="0"} 13.0\n'
    bodies = {"/get_server_info": json.dumps(info), "/metrics": metrics}
    assert read(bodies) == Load("sglang 0.5.7", cap=19, running=19, queued=13)


def test_old_sglang_without_metrics_still_tells_its_cap() -> None:
    info = {"version": "0.5.7", "internal_states": [{"effective_max_running_requests_per_dp": 19}]}
    assert read({"/get_server_info": json.dumps(info)}) == Load("sglang 0.5.7", cap=19)


def test_vllm_sums_its_engines_and_exports_no_cap() -> None:
    assert read({"/metrics": VLLM_METRICS}) == Load("vllm", cap=None, running=9, queued=28)


def test_llama_cpp_has_its_slots_as_cap() -> None:
    bodies = {"/props": '{"total_slots": 4}', "/metrics": LLAMA_METRICS}
    assert read(bodies) == Load("llama.cpp", cap=4, running=4, queued=26)


@pytest.mark.parametrize("body", ["", "{}", "<html>", '{"status":"ok"}', "vllm:num_requests_running{"])
def test_a_server_of_no_known_engine_tells_nothing(body: str) -> None:
    assert read(dict.fromkeys(("/v1/loads", "/metrics", "/props"), body)) is None


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("m 1", 1.0),
        ("m 1.5e3 1712345678", 1500.0),
        ('m{a="x y}"} 2', 2.0),
        ('m{a="1"} NaN', None),
        ("m", None),
        ("mm 3", None),
        ("# m 3", None),
    ],
)
def test_lines_of_an_exposition(line: str, value: float | None) -> None:
    assert sums_of(line.encode(), {"m": "m"}) == ({} if value is None else {"m": value})


def test_captures_of_real_engines(shared: Path) -> None:
    """Each capture was taken under load; the numbers stand in the files named here."""
    captures = shared / "captures"
    sglang = (captures / "sglang/0.5.12-llama/v1_loads.json").read_text()
    assert read({"/v1/loads": sglang}) == Load("sglang 0.5.12", cap=16, running=0, queued=0)
    llama = {
        "/props": (captures / "llamacpp_quiet/props.json").read_text(),
        "/metrics": (captures / "llamacpp_quiet/metrics_during_1.txt").read_text(),
    }
    assert read(llama) == Load("llama.cpp", cap=4, running=4, queued=26)
    assert read({"/metrics": (captures / "vllm/metrics_before.txt").read_text()}) == Load("vllm", None, 0, 0)
