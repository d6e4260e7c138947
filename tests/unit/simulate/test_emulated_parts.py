"""Draws, filler, faults, the journal's hash, requests as they are understood, and the metrics page."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.engines.sglang.metrics import read_metrics
from headrace.errors import UsageError
from headrace.simulate.emulate import answers, asked, draws
from headrace.simulate.emulate.faults import FaultDraw, Faults, faults_from
from headrace.simulate.emulate.journal import body_hash
from headrace.simulate.emulate.metrics import ServerMetrics
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.text import filler, filler_ids
from headrace.simulate.emulate.timing import Load

OPTIONS = EmulatorOptions(context_length=2048, kv_tokens=8192, mean_output_tokens=100)
CHAT = "/v1/chat/completions"


def understand(path: Any, body: dict[str, Any], options: EmulatorOptions = OPTIONS) -> asked.Asked:
    return asked.understand(path, "application/json", json.dumps(body).encode(), options)


def refusal(path: Any, body: bytes | dict[str, Any]) -> tuple[int, dict[str, Any]]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(asked.Refused) as refused:
        asked.understand(path, "application/json", raw, OPTIONS)
    return refused.value.status, dict(refused.value.body)


def test_drawn_lengths_have_the_asked_mean_and_come_again() -> None:
    lengths = [draws.output_tokens(draws.fingerprint(1, b"%d" % i), 400, 0.6) for i in range(4000)]
    # standard error of the mean: 400 * sqrt(exp(0.36) - 1) / sqrt(4000) = 4.2
    assert statistics.fmean(lengths) == pytest.approx(400, abs=4 * 4.2)
    assert lengths[7] == draws.output_tokens(draws.fingerprint(1, b"7"), 400, 0.6)
    assert lengths[7] != draws.output_tokens(draws.fingerprint(2, b"7"), 400, 0.6)
    assert draws.output_tokens(draws.fingerprint(1, b"x"), 50, 0.0) == 50


def test_filler_has_four_characters_a_token_at_any_place_of_the_pool() -> None:
    for bits in (0, 1, (1 << 20) - 2, 1 << 63, (1 << 64) - 1):
        for tokens in (1, 7, 5000):
            text = filler(bits, tokens)
            assert len(text) == 4 * tokens
            assert text == text.strip()
            assert len(filler_ids(bits, tokens)) == tokens


def test_the_journals_hash_is_that_of_the_null_server() -> None:
    # f93927746d5490d5 was written by bench/nullserver.c --journal for these 19 bytes
    assert body_hash(b'{"prompt": "caf\xc3\xa9"}') == "f93927746d5490d5"
    assert body_hash(b"") == f"{1469598103934665603:016x}"


def test_fault_percentages_are_kept_and_a_retry_is_thrown_anew() -> None:
    faults = Faults(error_503=5, drop=2, truncate=3)
    draw = FaultDraw(seed=3)
    outcomes = [draw.outcome(faults, b"%d" % i) for i in range(10_000)]
    # binomial: standard deviations of 22, 14 and 17
    assert outcomes.count("503") == pytest.approx(500, abs=90)
    assert outcomes.count("drop") == pytest.approx(200, abs=60)
    assert outcomes.count("truncate") == pytest.approx(300, abs=70)
    again = FaultDraw(seed=3)
    assert [again.outcome(faults, b"%d" % i) for i in range(2000)] == outcomes[:2000]
    hit = next(i for i, outcome in enumerate(outcomes) if outcome != "ok")
    assert "ok" in [draw.outcome(faults, b"%d" % hit) for _ in range(10)]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"error_500": 60, "drop": 50}, "add up to 110"),
        ({"html": 101}, "html is 101 percent"),
        ({"slow": 0}, "slow is 0"),
        ({"hang": "sometimes"}, "hang"),
        ({"dorp": 1}, "dorp"),
    ],
)
def test_faults_that_cannot_be_are_refused_with_the_reason(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        faults_from(fields)


def test_every_mistake_in_the_options_is_named_at_once() -> None:
    with pytest.raises(UsageError) as wrong:
        EmulatorOptions(replicas=0, speed=0, cap=0, faults={3: Faults()}).validate()
    assert [problem.split()[0] for problem in wrong.value.problems] == ["replicas", "cap", "speed", "replica"]


def test_the_same_prompt_draws_the_same_length_and_limits_cut_it() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    free = understand(CHAT, body).choices[0]
    assert understand(CHAT, body | {"temperature": 0.3}).choices[0] == free
    assert free.stops
    cut = understand(CHAT, body | {"max_tokens": free.output_tokens - 1}).choices[0]
    assert (cut.output_tokens, cut.stops) == (free.output_tokens - 1, False)
    exact = understand(CHAT, body | {"max_completion_tokens": free.output_tokens}).choices[0]
    assert (exact.output_tokens, exact.stops) == (free.output_tokens, True)
    held = understand(CHAT, body | {"min_tokens": free.output_tokens + 5}).choices[0]
    assert held.output_tokens == free.output_tokens + 5
    forced = understand(CHAT, body | {"max_tokens": 1000, "ignore_eos": True}).choices[0]
    assert (forced.output_tokens, forced.stops) == (1000, False)
    seeded = understand(CHAT, body | {"seed": 5}).choices[0]
    assert seeded.bits != free.bits


def test_without_a_limit_generate_makes_128_tokens_and_completions_16() -> None:
    # defaults of SGLang 0.5.12's SamplingParams.max_new_tokens and CompletionRequest.max_tokens
    generate = understand("/generate", {"text": "x", "sampling_params": {"ignore_eos": True}})
    completion = understand("/v1/completions", {"prompt": "x", "ignore_eos": True})
    assert (generate.choices[0].output_tokens, completion.choices[0].output_tokens) == (128, 16)


def test_what_does_not_fit_is_refused_in_the_servers_words() -> None:
    status, body = refusal("/generate", {"input_ids": [7] * 5000})
    assert status == 400
    assert body == {
        "error": {
            "message": "The input (5000 tokens) is longer than the model's context length (2048 tokens)."
        }
    }
    message = {"role": "user", "content": "x" * 40_000}
    status, body = refusal(CHAT, {"messages": [message]})
    assert (status, body["type"], body["code"]) == (400, "BadRequestError", 400)
    assert "is longer than the model's context length (2048 tokens)." in body["message"]
    _, body = refusal("/v1/completions", {"prompt": [1] * 48, "max_tokens": 2001})
    assert "You requested a total of 2049 tokens: 48 tokens from the input" in body["message"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"model": ', "json_invalid"),
        (b"[1]", "Input should be a valid dictionary"),
        (b"{}", "Field required"),
        (b'{"messages": "hello"}', "Input should be a valid list"),
        (b'{"messages": []}', "Messages cannot be empty."),
        (b'{"messages": [{}], "max_tokens": "12"}', "Input should be a valid integer"),
        (b'{"messages": [{}], "temperature": -1}', "temperature must be non-negative, got -1.0."),
    ],
)
def test_bodies_that_are_no_requests_are_refused(body: bytes, says: str) -> None:
    status, document = refusal(CHAT, body)
    assert (status, document["object"], document["code"]) == (400, "error", 400)
    assert says in document["message"]


def made(request: asked.Asked, tokens: int) -> answers.Made:
    return answers.Made(request.choices[0], "rid", tokens, False, 0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("parser", [None, "qwen3"])
def test_thinking_is_inline_or_apart_and_counted_only_with_a_parser(parser: str | None) -> None:
    options = EmulatorOptions(reasoning_parser=parser)
    request = understand(CHAT, {"messages": [{"role": "user", "content": "why?"}]}, options)
    choice = request.choices[0]
    whole = json.loads(answers.whole(request, [made(request, choice.output_tokens)], 0))
    message, usage = whole["choices"][0]["message"], whole["usage"]
    assert usage["completion_tokens"] == choice.output_tokens
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    if parser is None:
        assert message["content"].startswith("<think>\n")
        assert message["content"].count("</think>") == 1
        assert (message["reasoning_content"], usage["reasoning_tokens"]) == (None, 0)
    else:
        assert "think>" not in message["content"]
        assert len(message["reasoning_content"]) == 4 * usage["reasoning_tokens"]
    cut = understand(CHAT, {"messages": [{"role": "user", "content": "why?"}], "max_tokens": 3}, options)
    message = json.loads(answers.whole(cut, [made(cut, 3)], 0))["choices"][0]["message"]
    if parser is None:
        assert "</think>" not in message["content"]  # an unclosed tag, as a real one leaves it
    else:
        assert (message["content"], len(message["reasoning_content"])) == (None, 12)


def test_thinking_can_be_asked_off() -> None:
    body = {
        "messages": [{"role": "user", "content": "why?"}],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    request = understand(CHAT, body, EmulatorOptions(reasoning_parser="qwen3"))
    message = json.loads(answers.whole(request, [made(request, 5)], 0))["choices"][0]["message"]
    assert message["reasoning_content"] is None
    assert len(message["content"]) == 20


@pytest.mark.parametrize("parser", [None, "qwen3"])
def test_a_stream_put_together_is_the_whole_answer(parser: str | None) -> None:
    options = EmulatorOptions(reasoning_parser=parser)
    request = understand(CHAT, {"messages": [{"role": "user", "content": "why?"}]}, options)
    total = request.choices[0].output_tokens
    stream = answers.Stream(request, "rid", 0)
    raw = b"".join(stream.progress(0, made(request, tokens), finished=False) for tokens in range(1, total, 7))
    raw += stream.progress(0, made(request, total), finished=True) + stream.end([])
    events = [json.loads(line[6:]) for line in raw.decode().split("\n\n") if line.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in events]
    whole = json.loads(answers.whole(request, [made(request, total)], 0))["choices"][0]["message"]
    assert "".join(delta.get("content", "") for delta in deltas) == whole["content"]
    assert "".join(delta["reasoning_content"] or "" for delta in deltas) == (whole["reasoning_content"] or "")
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert raw.endswith(b"data: [DONE]\n\n")


def test_the_metrics_page_parses_and_its_histograms_add_up() -> None:
    page = ServerMetrics('a "quoted" name', 1000, 2048)
    for seconds in (0.05, 0.3, 700.0):
        page.finished(10, 5, 0.0, 0.01, seconds)
    load = Load(3, 2, 250, 20, 30, 12, 3, 4, 99.0)
    families = {family.name: family for family in text_string_to_metric_families(page.page(load, 99.0))}
    values = {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in families["sglang:e2e_request_latency_seconds"].samples
    }
    assert values["sglang:e2e_request_latency_seconds_bucket", "0.1"] == 1
    assert values["sglang:e2e_request_latency_seconds_bucket", "0.4"] == 2
    assert values["sglang:e2e_request_latency_seconds_bucket", "600.0"] == 2
    assert values["sglang:e2e_request_latency_seconds_bucket", "+Inf"] == 3
    assert values["sglang:e2e_request_latency_seconds_count", None] == 3
    assert families["sglang:num_running_reqs"].samples[0].labels == {
        "engine_type": "unified",
        "model_name": 'a "quoted" name',
        "moe_ep_rank": "0",
        "pp_rank": "0",
        "tp_rank": "0",
    }
    assert families["sglang:full_token_usage"].samples[0].value == 0.25
    assert families["sglang:generation_tokens"].samples[0].value == 15


def test_graph_passes_are_counted_as_a_server_counts_them() -> None:
    """Modes as a server of 0.5.12 writes them (captures/sglang): `decode_cuda_graph`, not `decode`."""
    load = Load(3, 2, 250, 20, 30, 12, prefills_done=4, decode_steps_done=9, tokens_per_second=99.0)
    page = read_metrics(ServerMetrics("m", 1000, 2048).page(load, 1.0), "0.5.12")
    assert page.counters["decode_steps"] == page.counters["decode_graph_steps"] == 9
