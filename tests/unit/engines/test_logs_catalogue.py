"""The failure catalogues: whole, findable, in one style; and what is kept of a text."""

from __future__ import annotations

import re

import pytest

from headrace.engines.failure_entry import Failure, Severity
from headrace.engines.failures import Catalogue
from headrace.engines.failures_shared import SHARED
from headrace.engines.llamacpp.logs import CATALOGUE as LLAMACPP
from headrace.engines.log_fields import scrub
from headrace.engines.sglang.failures import CATALOGUE as SGLANG
from headrace.engines.vllm.failures import CATALOGUE as VLLM

ENTRIES = [
    pytest.param(catalogue, entry, id=f"{engine}-{entry.id}")
    for engine, catalogue in (("sglang", SGLANG), ("vllm", VLLM), ("llamacpp", LLAMACPP))
    for entry in catalogue.entries
    if engine == "sglang" or entry not in SHARED
]


@pytest.mark.parametrize(("catalogue", "entry"), ENTRIES)
def test_an_entry_is_whole_and_found_by_each_of_its_texts(catalogue: Catalogue, entry: Failure) -> None:
    assert re.fullmatch(r"[a-z][a-z_]*", entry.id)
    for sentence in (entry.meaning, entry.mend):
        assert sentence[0].isupper()
        assert sentence.endswith(".")
    assert entry.marks
    for mark in entry.marks:
        found = catalogue.find(f"before {mark} after")
        assert found is not None
        assert catalogue.entries.index(found) <= catalogue.entries.index(entry)
    if entry.compiled is not None:
        assert entry.compiled.groupindex


def test_a_mark_inside_a_longer_word_is_found_too() -> None:
    assert SGLANG.find("xCUDA out of memoryx") == SGLANG.by_id["gpu_out_of_memory"]


def test_the_first_entry_wins() -> None:
    first = Failure("first", Severity.WARNING, ("long words stand here",), "A.", "B.")
    second = Failure("second", Severity.WARNING, ("words",), "A.", "B.")
    assert Catalogue((first, second)).find("long words stand here") == first
    assert Catalogue((second, first)).find("long words stand here") == second
    assert Catalogue((first, second)).find("nothing of it") is None


@pytest.mark.parametrize("marks", ["a string, whose letters are all found", ("ab",)])
def test_marks_that_would_fit_every_line_are_refused(marks: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="marks are texts"):
        Failure("wrong", Severity.NOTE, marks, "A.", "B.")


def test_two_entries_of_one_id_are_refused() -> None:
    entry = Failure("twice", Severity.NOTE, ("some",), "A.", "B.")
    with pytest.raises(ValueError, match="one id"):
        Catalogue((entry, entry))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("vllm serve m --api-key hush123456 --port 1", "hush123456"),
        ("args {'api_key': ['hush123456']}", "hush123456"),
        ("AWS_SECRET_ACCESS_KEY=hush123456/xyz+", "hush123456"),
        ("HF_TOKEN=hush123456 starting", "hush123456"),
        ("export OPENAI_API_KEY='hush123456'", "hush123456"),
        ("Authorization: Basic aHVzaDEyMzQ1Njc4", "aHVzaDEyMzQ1Njc4"),
        ("Authorization: Bearer hush-1234-5678", "hush-1234-5678"),
        ("pull https://bob:hush123456@registry/x", "hush123456"),
        ("pull https://hush123456@registry/x", "hush123456"),
        ("token hf_abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwx"),
        ("ghp_abcdefghijklmnopqrstuv leaked", "ghp_abcdefghijklmnopqrstuv"),
        ("x" * 380 + " password=hush123456789012345678901234567890", "hush"),
    ],
)
def test_a_secret_in_a_text_is_gone(text: str, secret: str) -> None:
    kept = scrub(text)
    assert secret not in kept
    assert len(kept) <= 400


@pytest.mark.parametrize(
    "text",
    [
        "token usage: 0.25",
        "max_total_num_tokens=5",
        "Using KV cache dtype: torch.bfloat16",
        "the key is lost",
    ],
)
def test_plain_text_stays(text: str) -> None:
    assert scrub(text) == text
