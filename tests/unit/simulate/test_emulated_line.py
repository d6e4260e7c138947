"""A server emulated from its launch line: sizes, seconds, and lines that would not start."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.engines.sglang.failures import CATALOGUE as SGLANG_FAILURES
from headrace.errors import InputError, UsageError
from headrace.simulate.emulate import EmulatorOptions
from headrace.simulate.emulate.core import new_core
from headrace.simulate.emulate.launched import LaunchAsked, with_line
from headrace.simulate.emulate.planned import PlannedServer

GPU = "RTX PRO 6000 Blackwell Server"
GOLDEN = (  # facts/golden-case.md
    "--context-length 8192 --attention-backend flashinfer --mamba-scheduler-strategy extra_buffer "
    "--max-running-requests 64 --mem-fraction-static 0.85 --mamba-ssm-dtype bfloat16"
)


def options(flags: str, physics_seed: int | None = None) -> EmulatorOptions:
    return with_line(
        EmulatorOptions(replicas=1, model="Qwen3.6-27B", physics_seed=physics_seed),
        LaunchAsked("sglang", "0.5.12", GPU, flags, 94.3, 51.1),
    )


def server(flags: str, physics_seed: int | None = None) -> PlannedServer:
    found = options(flags, physics_seed).server
    assert found is not None
    return found


def test_the_golden_line_has_its_cap_and_its_slots() -> None:
    """37 running and 188 slots: what the real server reported (facts/golden-case.md)."""
    made = options(GOLDEN)
    assert (made.cap, made.context_length, made.model) == (37, 8192, "Qwen3.6-27B")
    assert server(GOLDEN).state_slots == 188
    core = new_core(made)
    for key in range(50):
        core.submit(key, 100, 500, 0.0)
    core.advance(5.0)
    load = core.load(5.0)
    assert (load.running, load.queued) == (37, 13)
    # extra_buffer with overlap: each holds 3, and a checkpoint from 64 tokens on (facts/engines.md §1.7)
    assert load.state_slots == 37 * 4


@pytest.mark.parametrize("seed", range(10))
def test_hidden_physics_stay_in_their_bounds(seed: int) -> None:
    """± 30 % for work, ± 20 % for bandwidth, and up to 0.1 ms of host time per request on top."""
    book, real = server(GOLDEN).kind, server(GOLDEN, seed).kind
    lanes = np.arange(1, len(book.decode_fixed))
    low, high = book.decode_fixed[1:] * 0.7 / 1.2, book.decode_fixed[1:] * 1.3 / 0.8 + 1e-4 * lanes
    assert np.all((real.decode_fixed[1:] >= low) & (real.decode_fixed[1:] <= high))
    assert not np.allclose(real.decode_fixed, book.decode_fixed, rtol=1e-3)
    assert real.rules.cap == book.rules.cap


@pytest.mark.parametrize(
    ("flags", "failure", "words"),
    [
        # texts: facts/engines.md §3.4, 25, and the engine's own asserts in server_args.py
        ("--mem-fraction-static 0.3", "memory_fraction_too_small", "mem_fraction_static=0.3"),
        (
            "--mamba-scheduler-strategy extra_buffer --disable-radix-cache",
            "extra_buffer_without_radix",
            "AssertionError",
        ),
    ],
)
def test_a_line_that_would_not_start_is_refused_in_the_engines_words(
    flags: str, failure: str, words: str
) -> None:
    with pytest.raises(InputError) as refused:
        options(flags)
    said = SGLANG_FAILURES.find(str(refused.value))
    assert said is not None
    assert said.id == failure
    assert words in str(refused.value)


def test_what_is_not_emulated_is_said() -> None:
    given = EmulatorOptions(replicas=1, model="Qwen3.6-27B")
    with pytest.raises(UsageError, match="add --gpu NAME"):
        with_line(given, LaunchAsked(flags="--tp 2"))
    with pytest.raises(UsageError, match="--cap: the launch line settles that"):
        with_line(given, LaunchAsked(gpu=GPU), cap=3)
    with pytest.raises(UsageError, match=r"speaks 0\.5\.12"):
        with_line(given, LaunchAsked("sglang", "0.5.3", GPU))
    with pytest.raises(UsageError, match="--engine llamacpp is not emulated"):
        with_line(given, LaunchAsked("llamacpp", "", GPU))
    with pytest.raises(UsageError, match="--replicas 2"):
        with_line(given, LaunchAsked("sglang", "", GPU, "--dp 2"))
