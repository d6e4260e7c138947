"""What is sent for a prompt, and the keys and ids by which it is known again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.drive.job import Job, Source
from headrace.drive.prompts import PromptRow, Request
from headrace.drive.request import build_request, check_fit, content_key, key_of_id, own_key, row_id
from headrace.drive.sources import Shape, ShapeKind
from headrace.errors import InputError
from headrace.words import Api

USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "be kind"}
TEXT = PromptRow(1, text="hi")
CHAT = PromptRow(1, messages=(USER,))


def source(**settings: Any) -> Source:
    return Source(settings.pop("name", "s"), (Path("s.jsonl"),), **settings)


def job(api: Api = Api.CHAT) -> Job:
    return Job(Path("out"), (source(),), ("http://127.0.0.1:1",), api=api)


def ask(prompt: PromptRow, sample: int = 0, api: Api = Api.CHAT, **settings: Any) -> Request:
    return build_request(prompt, source(**settings), job(api), sample)


def listed(request: Request) -> dict[str, Any]:
    """The body with its messages as a list of dicts."""
    return {**request.body, "messages": [dict(message) for message in request.body["messages"]]}


def test_text_over_the_chat_api() -> None:
    request = ask(TEXT, sampling={"max_tokens": 5, "temperature": 1, "top_p": None})
    assert request.path == "/v1/chat/completions"
    assert listed(request) == {"messages": [USER], "max_tokens": 5, "temperature": 1.0}
    assert (request.messages, request.text) == ((USER,), None)


def test_system_prompt_goes_before_rows_that_have_none() -> None:
    request = ask(TEXT, system="be kind")
    assert request.messages == (SYSTEM, USER)
    assert request.text is None
    own = PromptRow(1, messages=({"role": "developer", "content": "own"}, USER))
    assert ask(own, system="be kind").messages == own.messages
    assert ask(CHAT, system="be kind").messages == (SYSTEM, USER)


@pytest.mark.parametrize("thinking", [True, False])
def test_thinking(thinking: bool) -> None:
    request = ask(CHAT, thinking=thinking, extra_body={"chat_template_kwargs": {"x": 1}, "priority": 2})
    assert request.body["chat_template_kwargs"] == {"enable_thinking": thinking, "x": 1}
    assert request.body["priority"] == 2
    assert "chat_template_kwargs" not in ask(CHAT).body


def test_completions() -> None:
    request = ask(TEXT, api=Api.COMPLETIONS, sampling={"max_tokens": 5})
    assert request == Request("/v1/completions", {"prompt": "hi", "max_tokens": 5}, None, "hi")


def test_generate_has_names_of_its_own() -> None:
    request = ask(
        TEXT,
        api=Api.GENERATE,
        sampling={"max_tokens": 5, "temperature": 0, "seed": 3, "stop": ["x"]},
        extra_body={"sampling_params": {"n_grams": 1}, "return_logprob": True},
    )
    params = {"max_new_tokens": 5, "temperature": 0.0, "sampling_seed": 3, "stop": ["x"], "n_grams": 1}
    assert request.path == "/generate"
    assert request.body == {"text": "hi", "sampling_params": params, "return_logprob": True}


@pytest.mark.parametrize("api", [Api.COMPLETIONS, Api.GENERATE])
def test_chats_need_the_chat_api(api: Api) -> None:
    with pytest.raises(InputError, match="api: chat"):
        ask(CHAT, api=api)
    chat, plain = Shape(ShapeKind.CHAT, "messages"), Shape(ShapeKind.PROMPT, "prompt")
    assert "holds chats" in check_fit(source(), chat, job(api))[0]
    assert "system prompt" in check_fit(source(system="s"), plain, job(api))[0]
    assert "thinking" in check_fit(source(thinking=True), plain, job(api))[0]
    assert check_fit(source(), plain, job(api)) == []
    assert check_fit(source(system="s", thinking=True), chat, job()) == []
    assert check_fit(source(), Shape(ShapeKind.BATCH, "body"), job(api)) == []


def test_batch_body_wins_over_the_job() -> None:
    body = {
        "messages": [USER],
        "temperature": 0,
        "max_completion_tokens": 9,
        "chat_template_kwargs": {"a": 1},
    }
    prompt = PromptRow(1, body=body, url="/v1/chat/completions")
    settings = {"temperature": 1, "max_tokens": 5, "top_p": 0.5}
    request = ask(prompt, api=Api.GENERATE, sampling=settings, thinking=True, system="be kind")
    assert request.path == "/v1/chat/completions"
    assert request.body == {
        "messages": [USER],
        "temperature": 0,
        "max_completion_tokens": 9,
        "top_p": 0.5,
        "chat_template_kwargs": {"enable_thinking": True, "a": 1},
    }
    assert request.messages == (USER,)
    plain = ask(PromptRow(1, body={"prompt": "x"}, url="/v1/completions"), thinking=True)
    assert plain == Request("/v1/completions", {"prompt": "x"}, None, "x")


@pytest.mark.parametrize(
    ("api", "prompt"),
    [
        (Api.CHAT, TEXT),
        (Api.COMPLETIONS, TEXT),
        (Api.GENERATE, TEXT),
        (Api.CHAT, PromptRow(1, body={"messages": [USER], "seed": 40}, url="/v1/chat/completions")),
    ],
)
def test_samples_count_the_seed_up_and_share_the_base_of_their_id(api: Api, prompt: PromptRow) -> None:
    requests = [ask(prompt, sample, api, samples=3, sampling={"seed": 40}) for sample in range(3)]
    seeds = []
    for request in requests:
        where = request.body.get("sampling_params", request.body)
        seeds.append(where.get("seed", where.get("sampling_seed")))
    assert seeds == [40, 41, 42]
    keys = [content_key(request, sample) for sample, request in enumerate(requests)]
    assert len(set(keys)) == 3
    base = keys[0].hex()
    assert [row_id(key, 0, sample) for sample, key in enumerate(keys)] == [base, f"{base}#1", f"{base}#2"]


def test_content_key_is_blake2b_of_canonical_json() -> None:
    canonical = b'["/v1/chat/completions",{"max_tokens":5,"messages":[{"content":"hi","role":"user"}]}]'
    expected = hashlib.blake2b(canonical, digest_size=16).digest()
    assert content_key(ask(TEXT, sampling={"max_tokens": 5})) == expected


def test_content_key_knows_only_what_is_asked() -> None:
    key = content_key(ask(TEXT, sampling={"temperature": 1, "max_tokens": 5}))
    same = [
        ask(CHAT, name="other", sampling={"max_tokens": 5, "temperature": 1.0}),
        ask(
            PromptRow(99, text="hi", own_id="x", extra={"a": 1}), sampling={"max_tokens": 5, "temperature": 1}
        ),
        ask(
            PromptRow(1, messages=({"content": "hi", "role": "user"},)),
            sampling={"temperature": 1, "max_tokens": 5},
        ),
        ask(TEXT, sampling={"temperature": 1}, extra_body={"max_tokens": 5, "model": "m", "stream": False}),
    ]
    assert [content_key(request) for request in same] == [key] * 4
    others = [
        ask(TEXT, sampling={"temperature": 1, "max_tokens": 6}),
        ask(TEXT, sampling={"temperature": 1, "max_tokens": 5}, system="s"),
        ask(TEXT, sampling={"temperature": 1, "max_tokens": 5}, thinking=True),
        ask(PromptRow(1, text="hi "), sampling={"temperature": 1, "max_tokens": 5}),
        ask(TEXT, api=Api.COMPLETIONS, sampling={"temperature": 1, "max_tokens": 5}),
    ]
    assert key not in {content_key(request) for request in others}


def test_own_keys() -> None:
    assert own_key("7") == hashlib.blake2b(b"7", digest_size=16, person=b"own-id").digest()
    assert len({own_key("7"), own_key("7", 1), own_key("8")}) == 3


def test_row_ids() -> None:
    key = bytes(range(16))
    text = "000102030405060708090a0b0c0d0e0f"
    assert row_id(key) == text
    assert row_id(key, 2) == f"{text}-2"
    assert row_id(bytes(15) + b"\x05", 1, 3) == "0" * 31 + "2-1#3"
    assert row_id("mine", 0, 1) == "mine#1"


@given(st.binary(min_size=16, max_size=16), st.integers(0, 5), st.integers(0, 2000))
def test_an_id_leads_back_to_its_key(key: bytes, occurrence: int, sample: int) -> None:
    assert key_of_id(row_id(key, occurrence, sample)) == key


@pytest.mark.parametrize(
    "text", ["", "7", "x" * 32, "0" * 31, "0" * 33, "0" * 32 + "-0", "0" * 32 + "#", "A" * 32]
)
def test_other_ids_lead_nowhere(text: str) -> None:
    assert key_of_id(text) is None
