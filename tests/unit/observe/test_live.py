"""Looks at recorded and invented servers: what is measured, what is stale, what is hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.quantities import Origin
from tests.unit.observe.recorded import Recorded, watch, watched

SECRET = "sk-planted-secret-1234567890"


def sglang_info(**more: Any) -> bytes:
    states = [{"effective_max_running_requests_per_dp": 40, "last_gen_throughput": 900.0, "api_key": SECRET}]
    document = {
        "version": "0.5.12", "model_path": "m", "tp_size": 2, "dp_size": 1, "pp_size": 1, "api_key": SECRET,
        "max_total_num_tokens": 50_000, "internal_states": states, "device": "cuda", **more,
    }  # fmt: skip
    return json.dumps(document).encode()


def sglang_loads(running: int = 30, queued: int = 5) -> bytes:
    rank = {"num_running_reqs": running, "num_waiting_reqs": queued, "token_usage": 0.4,
            "max_total_num_tokens": 50_000, "max_running_requests": 40}  # fmt: skip
    return json.dumps({"version": "0.5.12", "loads": [rank]}).encode()


def page(tokens: float, running: float = 30, **more: float) -> bytes:
    lines = {
        "sglang:num_running_reqs": running,
        "sglang:num_queue_reqs": 5,
        "sglang:full_token_usage": 0.4,
        "sglang:token_usage": 0.9,
        "sglang:mamba_usage": 0.9,
        "sglang:gen_throughput": 123.0,
        'sglang:realtime_tokens_total{mode="decode"}': tokens,
        **more,
    }
    return "\n".join(f"{name} {value}" for name, value in lines.items()).encode()


def test_a_rate_is_measured_from_the_counter_not_taken_from_the_gauge() -> None:
    # one page is read to find the engine; then one per look, 1 s apart (30 looks in 30 s)
    pages = [page(0), *(page(1000.0 * second) for second in range(40))]
    seen = watch({"/metrics": pages, "/server_info": [sglang_info()], "/v1/loads": [sglang_loads()]}, 30)
    rate = seen.readings["output_tokens_per_s"]
    assert rate.value == pytest.approx(1000)
    assert rate.origin is Origin.MEASURED
    assert "realtime_tokens_total" in rate.source
    assert seen.value("kv_usage") == 0.4
    assert seen.value("state_usage") == 0.9
    assert (seen.value("running"), seen.value("queued"), seen.value("cap")) == (30, 5, 40)
    assert (seen.engine, seen.engine_version, seen.gpus, seen.tensor_parallel) == ("sglang", "0.5.12", 2, 2)
    assert seen.window is not None
    assert seen.window.samples == 31
    assert len(seen.columns["running"]) == len(seen.seconds) == 31


def test_one_look_gives_what_the_gauges_say() -> None:
    seen = watch({"/metrics": [page(5000)], "/server_info": [sglang_info()], "/v1/loads": [sglang_loads()]})
    assert seen.value("output_tokens_per_s") == 123
    assert seen.readings["output_tokens_per_s"].origin is Origin.REPORTED
    assert "requests_per_s" not in seen.readings


def test_without_metrics_the_load_and_the_last_throughput_are_read() -> None:
    seen = watch({"/server_info": [sglang_info()], "/v1/loads": [sglang_loads()]}, 10)
    assert (seen.value("running"), seen.value("output_tokens_per_s")) == (30, 900)
    assert any("--enable-metrics" in text for text in seen.missing)


def test_the_gpu_is_named_where_the_server_names_it() -> None:
    named = json.loads(sglang_loads()) | {"accelerator": "NVIDIA H200"}
    seen = watch({"/server_info": [sglang_info()], "/v1/loads": [json.dumps(named).encode()]})
    assert seen.gpu == "NVIDIA H200"
    assert not any(text.startswith("the GPU") for text in seen.missing)
    for odd in (None, 5, f"api_key={SECRET} \n"):
        body = json.dumps(named | {"accelerator": odd}).encode()
        seen = watch({"/server_info": [sglang_info()], "/v1/loads": [body]})
        assert seen.gpu is None
        assert any(text.startswith("the GPU") for text in seen.missing)


def test_the_last_throughput_of_an_idle_server_is_not_read() -> None:
    seen = watch({"/server_info": [sglang_info()], "/v1/loads": [sglang_loads(0, 0)]}, 10)
    assert seen.value("running") == 0
    assert "output_tokens_per_s" not in seen.readings


def test_gauges_left_over_from_earlier_work_are_not_read() -> None:
    seen = watch({"/metrics": [page(5000)], "/get_server_info": [sglang_info(version="0.5.3")]}, 30)
    assert not seen.readings
    assert any("left over from earlier work" in note for note in seen.notes)


def test_a_cap_that_the_version_does_not_tell_is_missing() -> None:
    old = sglang_info(version="0.5.3", internal_states=[{}])
    seen = watch(
        {
            "/metrics": [page(5000)],
            "/get_server_info": [old],
            "/get_load": [b'[{"num_reqs": 9, "num_waiting_reqs": 2}]'],
        }
    )
    assert (seen.value("running"), seen.value("queued")) == (7, 2)
    assert any(text.startswith("the cap") for text in seen.missing)


def test_a_stuck_server_makes_no_tokens() -> None:
    seen = watch(
        {"/metrics": [page(5000)], "/server_info": [sglang_info()], "/v1/loads": [sglang_loads()]}, 30
    )
    assert seen.value("running") == 30  # /v1/loads is fresh
    assert seen.value("output_tokens_per_s") == 0
    assert any("no token was made" in note for note in seen.notes)


def test_a_restart_is_told_and_not_counted() -> None:
    counts = [*range(0, 10_000, 1000), *range(0, 30_000, 1000)]
    pages = [page(0), *(page(float(count)) for count in counts)]
    seen = watch({"/metrics": pages, "/server_info": [sglang_info()], "/v1/loads": [sglang_loads()]}, 30)
    assert seen.value("output_tokens_per_s") == pytest.approx(1000)
    assert seen.event("restart") is not None


def test_a_server_that_stops_answering_is_told() -> None:
    seen = watch(
        {
            "/metrics": [page(0), page(0), page(9), None],
            "/server_info": [sglang_info()],
            "/v1/loads": [sglang_loads(), None],
        },
        10,
    )
    assert any("looks got no answer" in note for note in seen.notes)


def test_nothing_is_asked_that_costs_the_server_work() -> None:
    server = Recorded({"/metrics": [page(0)], "/server_info": [sglang_info()], "/v1/loads": [sglang_loads()]})
    watched(server, 60)
    assert set(server.asked) == {"/metrics", "/server_info", "/v1/loads"}
    assert server.asked["/server_info"] == 1
    assert server.asked["/metrics"] <= 33


def test_no_secret_of_the_server_is_kept() -> None:
    seen = watch({"/metrics": [page(5000)], "/server_info": [sglang_info()], "/v1/loads": [sglang_loads()]})
    assert SECRET not in json.dumps(seen.to_json())
    assert SECRET not in repr(seen)


def test_vllm() -> None:
    def scrape(second: int) -> bytes:
        return (
            'vllm:num_requests_running{engine="0",model_name="m"} 20\nvllm:num_requests_waiting 3\n'
            f"vllm:kv_cache_usage_perc 0.97\nvllm:generation_tokens_total {500 * second}\n"
            f"vllm:num_preemptions_total {second}\nvllm:iteration_tokens_total_count {25 * second}\n"
            f"vllm:prefix_cache_queries_total {100 * second}\nvllm:prefix_cache_hits_total {25 * second}\n"
            f"vllm:time_to_first_token_seconds_sum {3 * second}\n"
            f"vllm:time_to_first_token_seconds_count {2 * second}\n"
            f"vllm:spec_decode_num_drafts_total {10 * second}\n"
            f"vllm:spec_decode_num_draft_tokens_total {30 * second}\n"
            f"vllm:spec_decode_num_accepted_tokens_total {15 * second}\n"
        ).encode()  # fmt: skip

    models = b'{"data": [{"id": "served", "root": "org/model", "owned_by": "vllm", "max_model_len": 4096}]}'
    pages = [scrape(0), scrape(0), *(scrape(second) for second in range(40))]
    seen = watch({"/metrics": pages, "/version": [b'{"version":"0.30.1"}'], "/v1/models": [models]}, 30)
    assert (seen.engine, seen.engine_version, seen.model) == ("vllm", "0.30.1", "org/model")
    expected = {
        "running": 20, "queued": 3, "kv_usage": 0.97, "output_tokens_per_s": 500, "retractions_per_min": 60,
        "cache_hit_rate": 0.25, "ttft_s": 1.5, "step_ms": 40, "accept_length": 2.5, "accept_rate": 0.5,
        "max_context": 4096,
    }  # fmt: skip
    assert {word: seen.value(word) for word in expected} == pytest.approx(expected)
    assert "cap" not in seen.capacities
    assert any("--flags" in text for text in seen.missing)


def test_llamacpp_with_and_without_metrics() -> None:
    props = (
        b'{"total_slots": 4, "model_path": "m.gguf", "build_info": "b7000-abc", '
        b'"default_generation_settings": {"n_ctx": 2048}}'
    )
    slots = json.dumps([{"is_processing": True, "prompt": SECRET}, {"is_processing": False}] * 2).encode()
    bare = watch({"/props": [props], "/slots": [slots]}, 5)
    assert (bare.engine, bare.engine_version) == ("llamacpp", "b7000-abc")
    assert (bare.value("cap"), bare.value("running"), bare.value("max_context")) == (4, 2, 2048)
    assert SECRET not in repr(bare)
    full = watch(
        {"/props": [props], "/metrics": [b"llamacpp:requests_processing 3\nllamacpp:requests_deferred 7"]}
    )
    assert (full.value("running"), full.value("queued")) == (3, 7)


HTML = b"<!DOCTYPE html><html><body>Bad gateway</body></html>"


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {
            "/metrics": [HTML],
            "/server_info": [HTML],
            "/v1/loads": [HTML],
            "/props": [HTML],
            "/version": [HTML],
        },
        {"/server_info": [b"[]"], "/version": [b"{}"], "/v1/models": [b'{"data": [5]}']},
    ],
)
def test_no_engine_is_told_as_unknown(pages: dict[str, list[bytes]]) -> None:
    seen = watch(pages)
    assert seen.engine is None
    assert not seen.readings
    assert seen.missing


def test_a_billion_running_requests_are_no_reading() -> None:
    loads = sglang_loads(10**9, 10**9)
    seen = watch({"/server_info": [sglang_info()], "/v1/loads": [loads]}, 5)
    assert (seen.value("running"), seen.value("queued")) == (None, None)
    assert any("readings of running are below 0 or above 1e+06" in note for note in seen.notes)
    assert any(text.startswith("running and queued") for text in seen.missing)


BODIES = st.sampled_from(
    [None, b"", HTML, b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 5000, page(5),
     page(float("nan"), float("inf")), page(-5, -1), page(7, 1e9), sglang_info(), sglang_loads(),
     sglang_info(internal_states=[1, None, {}]),
     sglang_info(version=None, max_total_num_tokens="x"), b'{"loads": [{"num_running_reqs": 1e308}]}',
     b'{"total_slots": 4}', b'{"version": "9"}', b"vllm:num_requests_running 0", b"llamacpp:n_decode_total 0"]
)  # fmt: skip
PATHS = ("/metrics", "/server_info", "/get_server_info", "/v1/loads", "/get_load", "/props", "/slots",
         "/version", "/v1/models")  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(PATHS), st.lists(BODIES, min_size=1, max_size=4)))
def test_no_server_crashes_the_collector_and_no_reading_is_no_number(
    pages: dict[str, list[bytes | None]],
) -> None:
    seen = watch(pages, 3)
    json.dumps(seen.to_json(), allow_nan=False)
    for quantity in (*seen.readings.values(), *seen.capacities.values()):
        assert 0 <= quantity.value < 1e16
    assert seen.readings or seen.missing


def captured(shared: Path, name: str) -> dict[str, list[bytes]]:
    folder = shared / "captures/sglang" / name
    metrics = [path.read_bytes() for path in sorted(folder.glob("metrics_during_?.txt"))]
    loads = [path.read_bytes() for path in sorted(folder.glob("loads_during_?.json"))]
    return {
        "/metrics": [metrics[0], *metrics],
        "/v1/loads": loads,
        "/server_info": [(folder / "server_info.json").read_bytes()],
    }


@pytest.mark.parametrize(
    ("name", "version", "cap", "slots"),
    [
        ("0.5.12-qwen3next-extra_buffer", "0.5.12", 10, 40),
        ("0.5.12-qwen3next-smallmamba", "0.5.12", 8, 24),
        ("0.5.12-llama", "0.5.12", 16, None),
        ("0.5.12-llama-dp2", "0.5.12", 16, None),
        ("0.5.23-qwen3next", "0.5.23", 8, 24),
        ("0.5.23-llama", "0.5.23", 16, None),
    ],
)
def test_recorded_sglang_servers(shared: Path, name: str, version: str, cap: int, slots: int | None) -> None:
    seen = watch(captured(shared, name), 0.5)
    assert (seen.engine, seen.engine_version) == ("sglang", version)
    assert seen.value("cap") == cap
    assert seen.value("state_slots") == slots
    running = seen.value("running")
    assert running is not None
    assert 0 < running <= cap
    assert ("state_usage" in seen.readings) == (slots is not None)


def test_a_recorded_full_state_pool(shared: Path) -> None:
    seen = watch(captured(shared, "0.5.12-qwen3next-extra_buffer"))
    # 10 running of a cap of 10, more waiting; 4 slots reserved per request of which 2 to 3 are held
    assert (seen.value("running"), seen.value("cap")) == (10, 10)
    assert (seen.value("queued") or 0) > 20
    assert 0.5 <= (seen.value("state_usage") or 0) <= 0.75
    assert (seen.value("kv_usage") or 1) < 0.2
