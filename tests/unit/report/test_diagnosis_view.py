"""The first screen of a diagnosis: its order, its width, words beside colour."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headrace.diagnose.document import Diagnosis
from headrace.report.constraint_words import sureness
from headrace.report.diagnosis_view import MOST_ACTIONS, all_numbers, diagnosis_view, explanation
from tests.unit.diagnose.stories import HYBRID, STORIES, judged, told

LABELS = ["VERDICT", "YOU", "BOUND", "LADDER", "DO", "RULED OUT", "MISSING"]


def printed(found: Diagnosis, **options: bool) -> str:
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False, markup=False, emoji=False).print(
        diagnosis_view(found, **options)
    )
    return stream.getvalue()


@pytest.mark.parametrize("name", list(STORIES))
@pytest.mark.parametrize("everything", [False, True])
def test_eighty_columns_and_the_order_of_parts(name: str, everything: bool) -> None:
    text = printed(judged(STORIES[name].facts), everything=everything)
    assert max(len(line) for line in text.splitlines()) <= 80
    labels = [line[:10].strip() for line in text.splitlines() if line[:1].strip() and line[:9].isupper()]
    kept = [label for label in labels if label in LABELS]
    assert kept == [label for label in LABELS if label in kept]
    assert {"VERDICT", "YOU", "BOUND", "LADDER", "DO"} <= set(kept)


def test_the_verdict_is_in_words() -> None:
    text = printed(judged(HYBRID))
    assert "● client_concurrency: too few requests in flight" in text
    assert "(sure," in text


def test_at_most_three_actions_on_the_first_screen() -> None:
    found = judged(HYBRID)
    text = printed(found)
    assert len(found.proposals) > MOST_ACTIONS
    assert "3. " in text
    assert "4. " not in text
    assert "4. " in printed(found, everything=True)


def test_accuracy_choices_are_kept_back_until_allowed() -> None:
    facts = told(
        STORIES["states at their cap"].facts,
        flags=HYBRID["flags"].replace(" --mamba-ssm-dtype bfloat16", ""),
        observed={"running": 18, "queued": 62, "cap": 18},
    )
    found = judged(facts)
    assert "kept back, accuracy choices: --mamba-ssm-dtype bfloat16" in " ".join(printed(found).split())
    assert "kept back" not in printed(found, allow_accuracy=True)


def test_unknown_is_not_green_and_says_what_is_missing() -> None:
    text = printed(judged({"observed": {"gpu_utilization": 1.0}}))
    assert "? unknown: the evidence does not tell" in text
    assert "MISSING" in text
    assert "GPUs busy 100 % says only" in text


def test_what_a_server_says_cannot_steer_the_terminal() -> None:
    text = printed(judged(told(HYBRID, model="evil\x1b[31m\nname", claims=["\x1b]0;x\x07 25% of a B200"])))
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(("confidence", "word"), [(0.9, "sure"), (0.6, "likely"), (0.3, "possible")])
def test_a_word_and_a_shape_for_each_confidence(confidence: float, word: str) -> None:
    mark, said = sureness(confidence)
    assert said == word
    assert mark in "●◐○"


def test_every_number_unfolds() -> None:
    numbers = all_numbers(judged(HYBRID))
    assert {"running", "step_seconds", "floor_seconds", "ladder.state_pool"} <= set(numbers)
    stream = io.StringIO()
    for name, quantity in numbers.items():
        Console(file=stream, width=80).print(explanation(name, quantity))
    assert "running × accepted tokens ÷ rate" in stream.getvalue()
