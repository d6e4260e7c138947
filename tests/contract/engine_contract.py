"""What headrace relies on in an engine's answers: the same checks for the emulated and for the real servers.

Each function of CHECKS takes an engine (its URL, model, kind and cap) and asserts. Kinds are `sglang`
and `vllm` (the emulated fleet speaks either dialect) and `llamacpp`; where they differ, the difference is
written down here. Nothing is asserted about the text itself: the emulated one is filler and the small models
babble.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_SECONDS = 120


class Engine(Protocol):
    """A server that answers."""

    @property
    def url(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def cap(self) -> int: ...


@dataclass(frozen=True)
class Answer:
    status: int
    content_type: str
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The decoded events of a stream, which must end with DONE."""
        lines = [line for line in self.text.split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines), lines[:3]
        assert lines[-1] == "data: [DONE]", lines[-1]
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def ask(engine: Engine, path: str, body: dict[str, Any] | bytes | None = None) -> Answer:
    """GET without a body, POST with one; errors of the server are answers."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(engine.url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            return Answer(response.status, response.headers.get_content_type(), response.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers.get_content_type(), error.read().decode())


def chat(engine: Engine, content: str = "hello world", **fields: Any) -> Answer:
    body = {"model": engine.model, "messages": [{"role": "user", "content": content}], **fields}
    return ask(engine, "/v1/chat/completions", body)


def has(document: Any, shape: dict[str, Any], where: str = "answer") -> None:
    """Asserts that fields are there with their types; None among the types means that null is allowed."""
    assert isinstance(document, dict), f"{where} is {type(document).__name__}"
    for name, types in shape.items():
        assert name in document, f"{where} has no {name}; it has {sorted(document)}"
        value = document[name]
        if isinstance(types, dict):
            has(value, types, f"{where}.{name}")
            continue
        allowed = types if isinstance(types, tuple) else (types,)
        fits = (value is None and None in allowed) or isinstance(
            value, tuple(kind for kind in allowed if kind is not None)
        )
        assert fits, f"{where}.{name} is {value!r}"


def check_chat(engine: Engine) -> None:
    answer = chat(engine, max_tokens=12, ignore_eos=True)
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.text
    document = answer.document
    has(document, {"id": str, "object": str, "created": int, "model": str, "choices": list, "usage": dict})
    assert document["object"] == "chat.completion"
    (choice,) = document["choices"]
    has(choice, {"index": int, "finish_reason": str, "message": {"role": str, "content": (str, None)}})
    assert (choice["index"], choice["message"]["role"]) == (0, "assistant")
    assert choice["finish_reason"] == "length"
    check_usage(document["usage"], completion_tokens=12)
    if engine.kind == "sglang":
        has(
            choice,
            {
                "logprobs": (dict, None),
                "matched_stop": (int, str, None),
                "message": {"reasoning_content": (str, None), "tool_calls": (list, None)},
            },
        )
        has(document, {"metadata": {"weight_version": str}})
        has(document["usage"], {"reasoning_tokens": int, "prompt_tokens_details": (dict, None)})


def check_usage(usage: Any, completion_tokens: int | None = None) -> None:
    has(usage, {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int})
    assert usage["prompt_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    if completion_tokens is not None:
        assert usage["completion_tokens"] == completion_tokens


def check_chat_stream(engine: Engine) -> None:
    answer = chat(engine, max_tokens=6, ignore_eos=True, stream=True, stream_options={"include_usage": True})
    assert (answer.status, answer.content_type) == (200, "text/event-stream"), answer.text
    *chunks, last = answer.events
    for chunk in chunks:
        has(chunk, {"id": str, "object": str, "created": int, "model": str, "choices": list})
        assert chunk["object"] == "chat.completion.chunk"
        (choice,) = chunk["choices"]
        has(choice, {"index": int, "delta": dict, "finish_reason": (str, None)})
        if engine.kind == "sglang":
            has(choice, {"logprobs": (dict, None), "matched_stop": (int, str, None)})
            assert "reasoning_content" in choice["delta"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert last["choices"] == []
    check_usage(last["usage"], completion_tokens=6)


def check_completions(engine: Engine) -> None:
    body = {"model": engine.model, "prompt": "hello world", "max_tokens": 8, "ignore_eos": True}
    answer = ask(engine, "/v1/completions", body)
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.text
    document = answer.document
    has(document, {"id": str, "object": str, "created": int, "model": str, "choices": list, "usage": dict})
    assert document["object"] == "text_completion"
    (choice,) = document["choices"]
    has(choice, {"index": int, "text": str, "finish_reason": str})
    assert choice["finish_reason"] == "length"
    check_usage(document["usage"], completion_tokens=8)


def check_completions_stream(engine: Engine) -> None:
    body = {
        "model": engine.model,
        "prompt": "hello world",
        "max_tokens": 5,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    *chunks, last = ask(engine, "/v1/completions", body).events
    if engine.kind == "llamacpp":  # its usage comes with the last choice, not after it
        chunks.append(last)
    for chunk in chunks:
        has(chunk, {"id": str, "object": str, "created": int, "model": str, "choices": list})
        assert chunk["object"] == "text_completion"
        (choice,) = chunk["choices"]
        has(choice, {"index": int, "text": str, "finish_reason": (str, None)})
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    check_usage(last["usage"], completion_tokens=5)


GENERATED = {
    "text": str,
    "output_ids": list,
    "meta_info": {
        "id": str,
        "finish_reason": (dict, None),
        "prompt_tokens": int,
        "completion_tokens": int,
        "cached_tokens": int,
        "cached_tokens_details": (dict, None),
        "weight_version": str,
        "num_retractions": int,
        "queue_time": float,
        "reasoning_tokens": int,
        "dp_rank": (int, None),
    },
}


def check_generate(engine: Engine) -> None:
    if engine.kind != "sglang":
        return
    body = {"text": "the quick brown fox", "sampling_params": {"max_new_tokens": 7, "ignore_eos": True}}
    answer = ask(engine, "/generate", body)
    assert (answer.status, answer.content_type) == (200, "application/json"), answer.text
    has(answer.document, GENERATED)
    about = answer.document["meta_info"]
    has(
        about,
        {
            "e2e_latency": float,
            "request_received_ts": float,
            "api_server_dispatch_finish_ts": float,
            "request_finished_ts": float,
            "response_sent_to_client_ts": float,
            "decode_throughput": float,
        },
    )
    assert about["finish_reason"] == {"type": "length", "length": 7}
    assert len(answer.document["output_ids"]) == about["completion_tokens"] == 7
    assert all(isinstance(one, int) for one in answer.document["output_ids"])

    *before, last = ask(engine, "/generate", body | {"stream": True}).events
    for event in (*before, last):
        has(event, GENERATED)
    assert [event["meta_info"]["finish_reason"] for event in before] == [None] * len(before)
    assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 7}
    counts = [len(event["output_ids"]) for event in (*before, last)]
    assert counts == sorted(counts)
    assert counts[-1] == 7

    two = ask(engine, "/generate", body | {"text": ["one", "two"]}).document
    assert isinstance(two, list)
    assert len(two) == 2


def check_models(engine: Engine) -> None:
    document = ask(engine, "/v1/models").document
    has(document, {"object": str, "data": list})
    card = document["data"][0]
    has(card, {"id": str, "object": str, "created": int, "owned_by": str})
    assert card["id"] == engine.model
    if engine.kind in ("sglang", "vllm"):
        has(card, {"root": str, "parent": (str, None), "max_model_len": int})


def check_health(engine: Engine) -> None:
    assert ask(engine, "/health").status == 200


def check_loads(engine: Engine) -> None:
    if engine.kind != "sglang":
        return
    document = ask(engine, "/v1/loads").document
    has(document, {"timestamp": str, "version": str, "dp_rank_count": int, "loads": list})
    core = {
        "num_running_reqs": int,
        "num_waiting_reqs": int,
        "num_used_tokens": int,
        "num_total_tokens": int,
        "max_total_num_tokens": int,
        "token_usage": float,
        "gen_throughput": float,
        "cache_hit_rate": float,
        "utilization": float,
        "max_running_requests": int,
        "num_total_reqs": int,
    }
    (one,) = document["loads"]
    has(
        one,
        core
        | {
            "memory": {
                "weight_gb": float,
                "kv_cache_gb": float,
                "graph_gb": (int, float),
                "token_capacity": int,
            },
            "queues": {"waiting": int, "grammar": int, "paused": int, "retracted": int},
            "disaggregation": {"mode": str},
        },
    )
    assert one["max_running_requests"] == engine.cap
    has(
        document["aggregate"],
        {
            "total_running_reqs": int,
            "total_waiting_reqs": int,
            "total_reqs": int,
            "total_used_tokens": int,
            "total_tokens": int,
            "avg_token_usage": float,
            "avg_throughput": float,
            "avg_utilization": float,
        },
    )
    (short,) = ask(engine, "/v1/loads?include=core").document["loads"]
    assert set(short) == set(core)
    (old,) = ask(engine, "/get_load").document
    has(old, {"num_reqs": int, "num_waiting_reqs": int, "num_tokens": int, "num_pending_tokens": int})


def check_server_info(engine: Engine) -> None:
    if engine.kind != "sglang":
        return
    for path in ("/server_info", "/get_server_info"):
        document = ask(engine, path).document
        settings = {
            "model_path": str,
            "served_model_name": str,
            "context_length": (int, None),
            "max_running_requests": (int, None),
            "max_queued_requests": (int, None),
            "max_total_tokens": (int, None),
            "mem_fraction_static": float,
            "chunked_prefill_size": int,
            "schedule_policy": str,
            "schedule_conservativeness": float,
            "page_size": int,
            "tp_size": int,
            "dp_size": int,
            "kv_cache_dtype": str,
            "disable_radix_cache": bool,
            "disable_overlap_schedule": bool,
            "mamba_full_memory_ratio": float,
            "mamba_scheduler_strategy": str,
            "reasoning_parser": (str, None),
            "api_key": (str, None),
        }
        has(
            document,
            settings | {"status": str, "max_total_num_tokens": int, "max_req_input_len": int, "version": str},
        )
        (state,) = document["internal_states"]
        has(
            state,
            settings
            | {
                "effective_max_running_requests_per_dp": int,
                "last_gen_throughput": float,
                "memory_usage": {
                    "weight": float,
                    "kvcache": float,
                    "token_capacity": int,
                    "graph": (int, float),
                },
            },
        )
        assert state["effective_max_running_requests_per_dp"] == engine.cap


RUNNING = {
    "sglang": "sglang:num_running_reqs",
    "vllm": "vllm:num_requests_running",
    "llamacpp": "llamacpp:requests_processing",
}
FAMILIES = {
    "sglang": {
        "sglang:num_running_reqs": "gauge",
        "sglang:num_queue_reqs": "gauge",
        "sglang:gen_throughput": "gauge",
        "sglang:token_usage": "gauge",
        "sglang:full_token_usage": "gauge",
        "sglang:cache_hit_rate": "gauge",
        "sglang:max_total_num_tokens": "gauge",
        "sglang:kv_available_tokens": "gauge",
        "sglang:kv_evictable_tokens": "gauge",
        "sglang:kv_used_tokens": "gauge",
        "sglang:prompt_tokens": "counter",
        "sglang:generation_tokens": "counter",
        "sglang:num_requests": "counter",
        "sglang:realtime_tokens": "counter",
        "sglang:cuda_graph_passes": "counter",
        "sglang:time_to_first_token_seconds": "histogram",
        "sglang:inter_token_latency_seconds": "histogram",
        "sglang:e2e_request_latency_seconds": "histogram",
        "sglang:queue_time_seconds": "histogram",
        "sglang:prompt_tokens_histogram": "histogram",
        "sglang:generation_tokens_histogram": "histogram",
        "sglang:http_responses": "counter",
    },
    "vllm": {
        "vllm:num_requests_running": "gauge",
        "vllm:num_requests_waiting": "gauge",
        "vllm:kv_cache_usage_perc": "gauge",
        "vllm:prompt_tokens": "counter",
        "vllm:generation_tokens": "counter",
        "vllm:e2e_request_latency_seconds": "histogram",
    },
    "llamacpp": {"llamacpp:requests_processing": "gauge", "llamacpp:requests_deferred": "gauge"},
}


def families(engine: Engine) -> dict[str, Any]:
    page = ask(engine, "/metrics")
    assert page.status == 200, page.text
    return {family.name: family for family in text_string_to_metric_families(page.text)}


def total(found: dict[str, Any], family: str, sample: str) -> float:
    return sum(one.value for one in found[family].samples if one.name == sample)


def check_metrics(engine: Engine) -> None:
    chat(engine, max_tokens=4)
    found = families(engine)
    for name, kind in FAMILIES[engine.kind].items():
        assert name in found, f"no {name} among {sorted(found)}"
        assert found[name].type == kind, name
    if engine.kind != "sglang":
        return
    scheduler = {"engine_type", "model_name", "moe_ep_rank", "pp_rank", "tp_rank"}
    assert set(found["sglang:num_running_reqs"].samples[0].labels) == scheduler
    assert set(found["sglang:prompt_tokens"].samples[0].labels) == {"engine_type", "model_name"}
    modes = {sample.labels["mode"] for sample in found["sglang:realtime_tokens"].samples}
    assert modes <= {"prefill_compute", "prefill_cache", "decode"}
    bounds = {
        sample.labels["le"]
        for sample in found["sglang:e2e_request_latency_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert {"0.1", "1.0", "10.0", "100.0", "2400.0", "+Inf"} <= bounds


def check_counters_count(engine: Engine) -> None:
    if engine.kind == "llamacpp":
        return
    prefix = engine.kind
    before = families(engine)
    usage = chat(engine, "count me", max_tokens=9, ignore_eos=True).document["usage"]
    deadline = time.monotonic() + 20
    name = f"{prefix}:generation_tokens"
    while total(after := families(engine), name, f"{name}_total") < total(before, name, f"{name}_total") + 9:
        assert time.monotonic() < deadline, "the generation counter does not move"
        time.sleep(0.1)
    prompt = f"{prefix}:prompt_tokens"
    made = total(after, prompt, f"{prompt}_total") - total(before, prompt, f"{prompt}_total")
    assert made == usage["prompt_tokens"]


def check_load_is_seen(engine: Engine) -> None:
    """Under more requests than it can run, running rises to the cap at most, and falls to 0 again."""
    asked = min(2 * engine.cap, 64)
    tokens = 60 if engine.kind == "llamacpp" else 600  # a real model, at a few tokens per second
    seen: list[float] = []
    with ThreadPoolExecutor(asked) as pool:
        work = [
            pool.submit(chat, engine, f"tell me more of {i}", max_tokens=tokens, ignore_eos=True)
            for i in range(asked)
        ]
        while not all(one.done() for one in work):
            found = families(engine)
            seen.append(found[RUNNING[engine.kind]].samples[0].value)
            time.sleep(0.05)
        assert [one.result().status for one in work] == [200] * asked
    assert 1 < max(seen) <= engine.cap
    deadline = time.monotonic() + 20
    if engine.kind == "sglang":  # its gauges may stand still at the last value once it is idle
        while ask(engine, "/v1/loads").document["aggregate"]["total_reqs"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def check_errors(engine: Engine) -> None:
    broken = ask(engine, "/v1/chat/completions", b'{"model": ')
    assert 400 <= broken.status < 600
    if engine.kind == "llamacpp":  # answers some bad bodies with 500
        return
    assert broken.status in (400, 422)
    missing = ask(engine, "/v1/chat/completions", {"model": engine.model})
    assert missing.status in (400, 422)
    longest = ask(engine, "/v1/models").document["data"][0]["max_model_len"]
    too_long = chat(engine, "word " * (2 * longest), max_tokens=4)
    assert too_long.status == 400
    words = "is longer than the model's context length" if engine.kind == "sglang" else "context length"
    assert words in too_long.text
    unknown = ask(engine, "/nope")
    assert (unknown.status, unknown.document) == (404, {"detail": "Not Found"})
    assert ask(engine, "/v1/chat/completions").status == 405
    if engine.kind == "sglang":
        shape = {"object": str, "message": str, "type": str, "param": (str, None), "code": int}
        for refusal in (broken, missing, too_long):
            has(refusal.document, shape)
            assert refusal.document["code"] == 400
        ids = ask(engine, "/generate", {"input_ids": [7] * (longest + 1)})
        assert ids.status == 400
        message = (
            f"The input ({longest + 1} tokens) is longer than the model's context length ({longest} tokens)."
        )
        assert ids.document == {"error": {"message": message}}
        nothing = ask(engine, "/generate", {"sampling_params": {}})
        assert (nothing.status, list(nothing.document)) == (400, ["error"])


def check_wrong_model(engine: Engine) -> None:
    """SGLang and llama.cpp answer whatever name they are asked by; vLLM does not."""
    body = {"model": "nope", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    answer = ask(engine, "/v1/chat/completions", body)
    assert answer.status == (404 if engine.kind == "vllm" else 200)
    if engine.kind == "sglang":
        assert answer.document["model"] == "nope"


def check_abort(engine: Engine) -> None:
    if engine.kind != "sglang":
        return
    body = {
        "text": "go on",
        "rid": "contract-abort",
        "sampling_params": {"max_new_tokens": 1500, "ignore_eos": True},
    }
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(ask, engine, "/generate", body)
        for _ in waiting(20):
            (one,) = ask(engine, "/v1/loads?include=core").document["loads"]
            if one["num_running_reqs"]:
                break
        assert ask(engine, "/abort_request", {"rid": "contract-abort"}).status == 200
        about = work.result().document["meta_info"]
    assert about["id"] == "contract-abort"
    assert about["finish_reason"]["type"] == "abort"
    assert set(about["finish_reason"]) == {"type", "message", "status_code", "err_type"}
    assert about["completion_tokens"] < 1500


def check_flush_cache(engine: Engine) -> None:
    if engine.kind != "sglang":
        return
    answer = ask(engine, "/flush_cache", b"")
    assert answer.status == 200
    assert answer.text.startswith("Cache flushed.\n")


def waiting(seconds: float) -> Iterator[None]:
    """Turns of a loop that waits for something on a live server; fails when the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {seconds} s")


CHECKS: tuple[Callable[[Engine], None], ...] = (
    check_chat,
    check_chat_stream,
    check_completions,
    check_completions_stream,
    check_generate,
    check_models,
    check_health,
    check_loads,
    check_server_info,
    check_metrics,
    check_counters_count,
    check_load_is_seen,
    check_errors,
    check_wrong_model,
    check_abort,
    check_flush_cache,
)
