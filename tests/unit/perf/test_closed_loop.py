"""The closed loop against its own bookkeeping: Little's law, what bounds it, what a prompt costs."""

from __future__ import annotations

import pytest

from headrace.errors import UsageError
from headrace.models.catalogue import resolve_model
from headrace.perf.closed_loop import closed_loop
from headrace.perf.options import Speculation, StepOptions
from headrace.perf.step_model import StepModel
from tests.unit.perf.machines import card, ideal

MODEL = resolve_model("meta-llama/Llama-3.1-8B")
PLAIN = StepModel(MODEL, card(), StepOptions(overlap=True), ideal())


def test_without_prompts_it_is_running_over_the_step() -> None:
    found = closed_loop(PLAIN, 16, input_tokens=0, output_tokens=1000)
    step = PLAIN.decode_seconds(16, 16 * 500)
    assert found.output_tokens_per_second.mid == pytest.approx(16 / step)
    assert found.token_seconds.mid == pytest.approx(step)
    assert found.prefill_share == 0.0


def test_a_request_takes_its_steps_and_everybodys_prefill() -> None:
    """T = 400 × step + 8 × prefill; 8 × 400 tokens in that time."""
    found = closed_loop(PLAIN, 8, input_tokens=600, output_tokens=400)
    whole = 400 * PLAIN.decode_seconds(8, 8 * 800) + 8 * PLAIN.prefill_seconds(600)
    assert found.output_tokens_per_second.mid == pytest.approx(8 * 400 / whole)
    assert found.total_tokens_per_second.mid == pytest.approx(8 * 1000 / whole)
    assert found.prefill_share == pytest.approx(8 * PLAIN.prefill_seconds(600) / whole)


@pytest.mark.parametrize(
    ("cap", "kv_tokens", "running", "why"),
    [
        (None, None, 64, "in_flight"),
        (20, None, 20, "cap"),
        (40, 24_000, 30, "kv_tokens"),
        (10, 24_000, 10, "cap"),
    ],
)
def test_what_bounds_the_running(
    cap: float | None, kv_tokens: float | None, running: float, why: str
) -> None:
    """A request holds its 600 tokens and half of its 400: 24,000 tokens of KV hold thirty of 800."""
    found = closed_loop(PLAIN, 64, input_tokens=600, output_tokens=400, cap=cap, kv_tokens=kv_tokens)
    assert found.running == running
    assert found.bound_by == why


def test_the_queue_obeys_littles_law() -> None:
    found = closed_loop(PLAIN, 64, input_tokens=600, output_tokens=400, cap=16)
    rate = found.output_tokens_per_second.mid / 400
    latency = found.first_token_seconds.mid + 399 * found.token_seconds.mid
    assert rate * latency == pytest.approx(64, rel=0.03)


def test_more_in_flight_than_run_serves_no_more() -> None:
    at, beyond = (closed_loop(PLAIN, n, input_tokens=600, output_tokens=400, cap=16) for n in (16, 640))
    assert beyond.output_tokens_per_second.mid == at.output_tokens_per_second.mid
    assert beyond.first_token_seconds.mid > 10 * at.first_token_seconds.mid


def test_a_cached_prefix_is_held_but_not_computed() -> None:
    whole, cached = (
        closed_loop(PLAIN, 16, input_tokens=2000, output_tokens=200, cached_tokens=n) for n in (0, 1900)
    )
    assert cached.prefill_share < 0.3 * whole.prefill_share
    assert cached.step_seconds.mid == whole.step_seconds.mid


def test_prompts_that_ride_along_cost_less_than_passes_of_their_own() -> None:
    rides = StepModel(
        MODEL, card(), StepOptions(overlap=True, mixes_prefill=True, prefill_graphs=True), ideal()
    )
    apart, along = (closed_loop(each, 16, input_tokens=600, output_tokens=200) for each in (PLAIN, rides))
    assert along.output_tokens_per_second.mid > apart.output_tokens_per_second.mid


def test_accepted_drafts_multiply_the_tokens_of_a_step() -> None:
    """At a small batch the weights dominate: 2.5 tokens per step are nearly 2.5 times the rate."""
    options = StepOptions(overlap=True, speculation=Speculation(4, 2.5))
    drafting = StepModel(MODEL, card(), options, ideal())
    one, more = (closed_loop(each, 2, input_tokens=0, output_tokens=500) for each in (PLAIN, drafting))
    gain = more.output_tokens_per_second.mid / one.output_tokens_per_second.mid
    assert 2.3 < gain < 2.5


def test_loops_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="at least one in flight"):
        closed_loop(PLAIN, 0, input_tokens=10, output_tokens=10)
    with pytest.raises(UsageError, match="at least one in flight"):
        closed_loop(PLAIN, 4, input_tokens=10, output_tokens=0)
