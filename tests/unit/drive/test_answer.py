"""Answers as real servers gave them (shapes of SGLang 0.5.12 and vLLM 0.32), and where thinking goes."""

from __future__ import annotations

import json

import pytest

from headrace.drive.answer import parse_answer, split_reasoning
from headrace.errors import InputError

CHAT = "/v1/chat/completions"


def chat(message: dict[str, object], **choice: object) -> bytes:
    return json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "model": "m",
            "choices": [
                {"index": 0, "message": message, "finish_reason": "stop", "matched_stop": None, **choice}
            ],
            "usage": {"prompt_tokens": 7, "total_tokens": 12, "completion_tokens": 5},
            "metadata": {"weight_version": "default"},
        }
    ).encode()


def test_chat_answer_with_usage() -> None:
    answer = parse_answer(CHAT, chat({"role": "assistant", "content": "four"}))
    assert (answer.text, answer.reasoning, answer.leaked) == ("four", None, False)
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 5)
    assert (answer.finish_reason, answer.model, answer.tool_calls) == ("stop", "m", None)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name_is_kept_apart(field: str) -> None:
    answer = parse_answer(CHAT, chat({"role": "assistant", "content": "4", field: "two and two"}))
    assert (answer.text, answer.reasoning, answer.leaked) == ("4", "two and two", False)


def test_null_content_is_an_empty_answer() -> None:
    answer = parse_answer(CHAT, chat({"role": "assistant", "content": None, "reasoning_content": None}))
    assert (answer.text, answer.reasoning) == ("", None)


def test_tool_calls_are_kept_as_json() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    answer = parse_answer(CHAT, chat({"role": "assistant", "content": None, "tool_calls": calls}))
    assert answer.tool_calls is not None
    assert json.loads(answer.tool_calls) == calls


def test_completions_text() -> None:
    body = json.dumps(
        {"choices": [{"index": 0, "text": "<think>a</think>b", "finish_reason": "length"}]}
    ).encode()
    answer = parse_answer("/v1/completions", body)
    assert (answer.text, answer.reasoning, answer.finish_reason) == ("b", "a", "length")
    assert answer.completion_tokens is None


def test_generate_takes_counts_and_finish_from_meta_info() -> None:
    body = json.dumps(
        {
            "text": " fox",
            "output_ids": [501, 316],
            "meta_info": {
                "finish_reason": {"type": "length", "length": 2},
                "prompt_tokens": 4,
                "completion_tokens": 2,
            },
        }
    ).encode()
    answer = parse_answer("/generate", body, keep_token_ids=True)
    assert (answer.text, answer.finish_reason, answer.prompt_tokens, answer.completion_tokens) == (
        " fox",
        "length",
        4,
        2,
    )
    assert answer.token_ids == [501, 316]
    assert parse_answer("/generate", body).token_ids is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>busy</html>",
        chat({"content": "x"})[:-20],
        b'{"choices": []}',
        b'{"object": "error"}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_completion_is_refused_with_its_beginning(body: bytes) -> None:
    with pytest.raises(InputError):
        parse_answer(CHAT, body)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", ("plain", None, False)),
        ("<think>why</think>\n\nso", ("so", "why", False)),
        ("  <think>\nwhy\n</think>so", ("so", "why", False)),
        # chat templates of thinking models open the tag in the prompt: only the closing one is generated
        ("why\n</think>\n\nso", ("so", "why", False)),
        ("<think>never closed", ("", "never closed", True)),
        ("<think>a</think>b<think>c</think>", ("b<think>c</think>", "a", True)),
        ("text <think> in the middle", ("text <think> in the middle", None, True)),
        ("<think></think>so", ("so", "", False)),
    ],
)
def test_where_thinking_goes(content: str, expected: tuple[str, str | None, bool]) -> None:
    assert split_reasoning(content, None) == expected


def test_a_tag_left_in_the_answer_beside_parsed_reasoning_is_a_leak() -> None:
    assert split_reasoning("so</think>", "why") == ("so</think>", "why", True)
