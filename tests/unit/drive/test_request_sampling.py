"""Sampling parameters are checked before anything is sent."""

from __future__ import annotations

import pytest

from headrace.drive.request import check_extra_body, check_sampling
from headrace.words import Api


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 1),
        ("max_completion_tokens", 32_768),
        ("temperature", 0),
        ("temperature", 1.3),
        ("top_p", 1),
        ("top_p", 0.01),
        ("top_k", -1),
        ("min_p", 0.0),
        ("presence_penalty", -2),
        ("repetition_penalty", 1.05),
        ("seed", 0),
        ("stop", "END"),
        ("stop", ["a", "b"]),
        ("stop_token_ids", [1, 2]),
        ("ignore_eos", True),
        ("logit_bias", {"1": 5}),
        ("logprobs", True),
        ("logprobs", 3),
        ("response_format", {"type": "json_object"}),
        ("reasoning_effort", "high"),
        ("temperature", None),
    ],
)
def test_what_is_taken(name: str, value: object) -> None:
    assert check_sampling({name: value}) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max_tokens", 0, "at least 1"),
        ("max_tokens", 2.5, "a whole number"),
        ("max_tokens", "many", "a whole number"),
        ("max_tokens", True, "a whole number"),
        ("temperature", -0.1, "'temperature' is -0.1; 0 to 2 is allowed. The nearest is 0"),
        ("temperature", 9, "'temperature' is 9; 0 to 2 is allowed. The nearest is 2"),  # OpenAI's own bounds
        ("top_k", -5, "'top_k' is -5; at least -1 is allowed. The nearest is -1"),
        ("min_p", 3.0, "'min_p' is 3; 0 to 1 is allowed. The nearest is 1"),
        ("temperature", float("nan"), "a number"),
        ("temperature", "0.7", "a number"),
        ("top_p", 0, "above 0"),
        ("top_p", 1.01, "at most 1"),
        ("frequency_penalty", 2.5, "-2 to 2 is allowed"),
        ("stop", [1], "list of texts"),
        ("stop_token_ids", "x", "list of whole numbers"),
        ("ignore_eos", 1, "true or false"),
        ("logit_bias", [], "a mapping"),
        ("temprature", 1, "Did you mean 'temperature'"),
        ("zzz", 1, "extra_body"),
        ("n", 2, "samples"),
        ("n", 1, "samples"),
        ("best_of", 2, "samples"),
        ("stream", True, "whole answers"),
        ("model", "m", "on the job"),
        ("max_new_tokens", 5, "max_tokens"),
        ("enable_thinking", True, "thinking"),
        ("chat_template_kwargs", {}, "extra_body"),
    ],
)
def test_what_is_refused_and_why(name: str, value: object, words: str) -> None:
    (problem,) = check_sampling({name: value})
    assert f"'{name}'" in problem
    assert words in problem


def test_all_problems_at_once() -> None:
    assert len(check_sampling({"n": 2, "top_p": 2, "max_tokens": 0, "temprature": 1})) == 4


def test_two_names_of_one_limit() -> None:
    (problem,) = check_sampling({"max_tokens": 1, "max_completion_tokens": 2})
    assert "Keep one" in problem


def test_generate_lacks_some_names() -> None:
    (problem,) = check_sampling({"top_logprobs": 2, "max_tokens": 4}, Api.GENERATE)
    assert "/generate" in problem
    assert check_sampling({"top_logprobs": 2}, Api.COMPLETIONS) == []


def test_extra_body() -> None:
    assert check_extra_body({"priority": 1, "max_tokens": 3}) == []
    problems = check_extra_body({"n": 1, "stream": True, "messages": []})
    assert [problem.split("'")[1] for problem in problems] == ["n", "stream", "messages"]
