"""The golden case simulated from its flags: `facts/golden-case.md` and `facts/engines.md` §1.7, §1.8."""

from __future__ import annotations

from functools import cache

import pytest

from headrace import api
from headrace.simulate.question import Variant

FLAGS = (
    "--context-length 8192 --attention-backend flashinfer --mamba-scheduler-strategy extra_buffer "
    "--max-running-requests 64 --mem-fraction-static 0.85 --mamba-ssm-dtype bfloat16"
)
NO_BUFFER = "--mamba-scheduler-strategy no_buffer"
RADIX_OFF = f"{NO_BUFFER} --disable-radix-cache"


@cache
def golden(
    step_seconds: str, replicas: int = 8, count: int = 2000, until: float | None = None, compare: str = ""
) -> tuple[Variant, ...]:
    return api.simulate(
        model="Qwen3.6-27B", gpu="RTX PRO 6000 Blackwell Server", engine_version="0.5.12", flags=FLAGS,
        free_gib=94.3, weights_gib=51.1, replicas=replicas, in_flight=32, count=count, input_tokens=150,
        output_tokens=2600, output_spread=0.3, step_seconds=step_seconds, until_seconds=until,
        compare=(compare,) if compare else (), seed=7,
    )  # fmt: skip


def test_the_cap_is_37() -> None:
    (variant,) = golden("32:0.050")
    assert variant.outcome.cap == 37


def test_pools_in_steady_state_are_what_the_server_showed() -> None:
    """`mamba usage` 61 % lies in 3 to 4 slots per request of 188: 0.51 to 0.68; KV 20 % ± 2 points."""
    (variant,) = golden("32:0.050")
    steady = variant.outcome.steady()
    assert steady["running"] == pytest.approx(32, abs=0.1)
    assert 0.51 <= (steady["state_usage"] or 0) <= 0.68
    assert 0.18 <= (steady["kv_usage"] or 0) <= 0.22
    assert variant.outcome.cause_shares["client"] > 0.7


@pytest.mark.parametrize("step_seconds", ["32:0.049", "32:0.050", "32:0.051"])
def test_an_empty_start_shows_438_answers_and_a_rate_that_misleads(step_seconds: str) -> None:
    """After 280 s: 438 ± 60 answers, and finished answers alone miss at least 15 % of the tokens made."""
    (variant,) = golden(step_seconds, until=280.0)
    outcome = variant.outcome
    assert abs(outcome.finished - 438) <= 60
    assert outcome.completed_tokens_per_second <= 0.85 * outcome.tokens_per_second
    assert outcome.generated_tokens == pytest.approx(outcome.tokens_per_second * 280)


@pytest.mark.parametrize("step_seconds", ["32:0.050", "32:0.066"])
@pytest.mark.parametrize(
    ("change", "cap", "overlap"),
    [
        ("--mem-fraction-static 0.92", 46, True),
        (NO_BUFFER, 62, False),
        (f"{NO_BUFFER} --mem-fraction-static 0.92", 64, False),
        (RADIX_OFF, 64, True),
        (f"{RADIX_OFF} --max-running-requests 96", 96, True),
        (f"{RADIX_OFF} --max-running-requests 128", 128, True),
    ],
)
def test_every_row_of_the_remedy_table(change: str, cap: int, overlap: bool, step_seconds: str) -> None:
    """Caps of `facts/engines.md` §1.8, bf16; with the client fed to the cap all of it runs, and throughput
    rises, by less than the batch does."""
    before, after = golden(step_seconds, replicas=1, count=900, compare=f"{change} --in-flight {cap}")
    assert after.outcome.cap == cap
    assert after.outcome.steady()["running"] == pytest.approx(cap, rel=0.04)
    assert bool(after.plan.settings["disable_overlap_schedule"]) is not overlap
    gain = (after.outcome.steady()["output_tokens_per_s"] or 0) / (
        before.outcome.steady()["output_tokens_per_s"] or 1
    )
    assert 1.0 < gain < cap / 32


def test_doubling_the_batch_gives_what_the_case_says() -> None:
    """37 → 64 on the canary: × 1.3 to 1.85 from 32 to 64 running (`golden-case.md`, point 4)."""
    before, after = golden("32:0.050", replicas=1, count=900, compare=f"{RADIX_OFF} --in-flight 64")
    gain = (after.outcome.steady()["output_tokens_per_s"] or 0) / (
        before.outcome.steady()["output_tokens_per_s"] or 1
    )
    assert 1.3 <= gain <= 1.85


def test_state_slots_held_plateau_below_one_at_the_cap() -> None:
    """0.60 to 0.80 with extra buffers, 1.0 with the radix cache off (`facts/engines.md`, fact 3)."""
    _, full = golden("32:0.050", replicas=1, count=900, compare="--in-flight 64")
    assert 0.59 <= (full.outcome.steady()["state_usage"] or 0) <= 0.80
    _, off = golden("32:0.050", replicas=1, count=900, compare=f"{RADIX_OFF} --in-flight 64")
    assert (off.outcome.steady()["state_usage"] or 0) == pytest.approx(1.0, abs=0.03)


def test_a_remedy_without_overlap_pays_for_it() -> None:
    """The same batch without the overlap scheduler takes longer steps (`facts/engines.md` §1.8, note c)."""
    _, without = golden("32:0.050", replicas=1, count=900, compare=f"{NO_BUFFER} --in-flight 62")
    _, with_it = golden("32:0.050", replicas=1, count=900, compare=f"{RADIX_OFF} --in-flight 62")
    assert (without.outcome.steady()["step_seconds"] or 0) > 1.01 * (
        with_it.outcome.steady()["step_seconds"] or 1
    )
