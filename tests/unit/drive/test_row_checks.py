"""Flags: each fires on its cause and stays silent on the others."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.drive.answer import Answer
from headrace.drive.row_checks import LOOP_CHARACTERS, ends_in_loop, flags_of


def answer(**changes: Any) -> Answer:
    given: dict[str, Any] = {
        "text": "The answer is 18.",
        "reasoning": None,
        "leaked": False,
        "finish_reason": "stop",
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "model": None,
        "tool_calls": None,
        "token_ids": None,
    }
    return Answer(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, []),
        ({"text": ""}, ["empty"]),
        ({"text": " \n"}, ["empty"]),
        ({"text": "", "tool_calls": "[{}]"}, []),
        ({"finish_reason": "length"}, ["truncated"]),
        ({"leaked": True}, ["think_tag"]),
        ({"text": "so " * 400}, ["repetition"]),
        ({"reasoning": "wait, " * 300}, ["repetition"]),
        (
            {"text": "", "reasoning": "hm " * 500, "leaked": True, "finish_reason": "length"},
            ["empty", "truncated", "think_tag", "repetition"],
        ),
    ],
)
def test_flags(changes: dict[str, Any], flags: list[str]) -> None:
    assert flags_of(answer(**changes)) == flags


def prose(characters: int, seed: int) -> str:
    words = random.Random(seed)
    made = []
    while sum(map(len, made)) < characters:
        made.append("".join(words.choices(string.ascii_lowercase, k=words.randint(1, 9))) + " ")
    return "".join(made)


@given(st.integers(1, 200), st.integers(0, 10_000))
def test_a_loop_of_any_period_is_found(period: int, seed: int) -> None:
    piece = prose(period + 10, seed)[:period].replace(" ", "x") or "x"
    repeats = max(LOOP_CHARACTERS, 6 * period) // period + 2
    assert ends_in_loop(prose(500, seed) + piece * repeats)


@given(st.integers(0, 10_000))
def test_prose_is_no_loop(seed: int) -> None:
    assert not ends_in_loop(prose(3000, seed))


@pytest.mark.parametrize("text", ["", "a" * 100, "-" * 80 + "\n", prose(2000, 1) + "-" * 200, "ab" * 200])
def test_short_repetitions_are_fine(text: str) -> None:
    assert not ends_in_loop(text)


def test_a_table_whose_rows_differ_is_no_loop() -> None:
    table = "".join(f"| row {number} | value {number * 7 % 13} |\n" for number in range(200))
    assert not ends_in_loop(table)
