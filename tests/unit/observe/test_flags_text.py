"""Launch flags among prose."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.observe.flags_text import read_flags


@pytest.mark.parametrize(
    ("text", "flags", "notes"),
    [
        ("--tp 2 --disable-radix-cache", "--tp 2 --disable-radix-cache", ()),
        ("--tp 2; MTP on", "--tp 2", ("flags: MTP on",)),
        ("TP=2; NCCL_P2P_DISABLE=1; old board", "NCCL_P2P_DISABLE=1", ("flags: TP=2", "flags: old board")),
        ("TP=2 --tp 2", "--tp 2", ("flags: TP=2",)),
        ("--tp 2 (a router before it)", "--tp 2", ("flags: (a router before it)",)),
        ("--speculative-algorithm EAGLE3 with its head", "--speculative-algorithm EAGLE3",
         ("flags: with its head",)),
        ("--mamba-full-memory-ratio set for it", "",
         ("flags: --mamba-full-memory-ratio set", "flags: for it")),
        ("offline, four cards", "", ("flags: offline, four cards",)),
        ("python -m sglang.launch_server --model-path M --tp 2", "--model-path M --tp 2", ()),
        ("--tp 2 \\\n --ep 2", "--tp 2 --ep 2", ()),
        ("", "", ()),
    ],
)  # fmt: skip
def test_flags_are_kept_and_prose_is_a_note(text: str, flags: str, notes: tuple[str, ...]) -> None:
    read = read_flags(text, "sglang", "0.5.12")
    assert (read.flags, read.notes) == (flags, notes)


def test_quotes_that_do_not_close_are_a_note() -> None:
    read = read_flags('--model "a', "vllm", None)
    assert read.flags == ""
    assert "cannot be read" in read.notes[0]


def test_a_tokenizer_is_no_secret_and_a_token_is() -> None:
    plain = "--tokenizer-path a --max-num-batched-tokens 9"
    read = read_flags(f"{plain} --hf-token b --ssl-keyfile-password c", "vllm", None)
    assert read.flags == f"{plain} --hf-token '[redacted]' --ssl-keyfile-password '[redacted]'"


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(max_codepoint=0x17F), max_size=200),
    st.sampled_from([None, "sglang", "vllm", "other"]),
)
def test_no_text_crashes_it(text: str, engine: str | None) -> None:
    read_flags(text, engine, None)
