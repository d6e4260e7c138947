"""Seconds for the kernel: graph padding, the eager cliff, scales, ranks, speculation."""

from __future__ import annotations

import numpy as np
import pytest

from headrace import api
from headrace.errors import UsageError
from headrace.hardware.catalogue import resolve
from headrace.models.catalogue import resolve_model
from headrace.simulate.question import ServerAsked
from headrace.simulate.scheduling import schedule_of
from headrace.simulate.steps import StepPoint, parse_points, server_kind, step_scale

GPU, MODEL = "RTX PRO 6000 Blackwell Server", "Qwen3-8B"


def decode_seconds(flags: str, model: str = MODEL, gpu: str = GPU) -> np.ndarray:
    """Seconds of a decode pass by batch at no context."""
    plan = ServerAsked(resolve_model(model), resolve(gpu), "sglang", "0.5.12", flags).plan()
    kind, seconds = server_kind(plan, schedule_of(plan), 500, 1000)
    assert model != MODEL or seconds.deviation <= 0.01
    return np.asarray(kind.decode_fixed)


def test_batches_are_padded_to_captured_sizes() -> None:
    """`facts/engines.md` §2.5: 1, 2, 4, 8, 12, 16, 24, 32 … are captured; a batch runs as the next size."""
    found = decode_seconds("--max-running-requests 64 --cuda-graph-max-bs 32 --context-length 8192")
    for low, high in ((5, 8), (9, 12), (13, 16), (17, 24), (25, 32)):
        within = found[high] - found[low]
        assert (
            0 <= within < 0.1 * (found[low] - found[low - 1])
        )  # the host's share grows by request all the same


def test_beyond_the_largest_captured_size_a_small_model_waits_for_the_host() -> None:
    """§2.5: above --cuda-graph-max-bs a batch is eager; what it costs depends on the step's length."""
    line = "--max-running-requests 64 --context-length 8192"
    short = decode_seconds(f"{line} --cuda-graph-max-bs 32", "Qwen3-0.6B", "B200")
    whole = decode_seconds(f"{line} --cuda-graph-max-bs 64", "Qwen3-0.6B", "B200")
    assert short[:33] == pytest.approx(whole[:33])
    assert short[33] > 1.3 * whole[33]
    assert short[33] > 1.3 * short[32]


def test_two_timed_points_are_met_and_one_is_told() -> None:
    plan = ServerAsked(resolve_model(MODEL), resolve(GPU), "sglang", "0.5.12", "--context-length 8192").plan()
    points = (StepPoint(8, 0.020), StepPoint(64, 0.040))
    scale = step_scale(plan, points, 1000.0)
    kind, _ = server_kind(plan, schedule_of(plan), 500, 1000, scale=scale)
    for point in points:
        at = kind.decode_fixed[point.batch] + kind.decode_context[point.batch] * point.batch * 1000
        assert at == pytest.approx(point.seconds, rel=0.01)
    assert not scale.notes
    assert step_scale(plan, points[:1], 1000.0).notes


@pytest.mark.parametrize("text", ["32", "a:b", "0:0.1", "32:0", "32:0.05;64:0.1"])
def test_points_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="BATCH:SECONDS"):
        parse_points(text)


def test_data_parallel_ranks_are_schedulers_of_their_own() -> None:
    """Plain --dp-size: every rank takes --max-running-requests of its own (`facts/engines.md` §2.6)."""
    (found,) = api.simulate(
        model=MODEL, gpu=GPU, engine_version="0.5.12", flags="--dp-size 2 --max-running-requests 4",
        count=60, output_tokens=100, in_flight=16,
    )  # fmt: skip
    assert (found.outcome.schedulers, found.outcome.gpus, found.outcome.cap) == (2, 2.0, 4)
    assert found.outcome.steady()["running"] == pytest.approx(4, abs=0.4)


def test_speculation_yields_more_tokens_per_pass() -> None:
    """Passes of a request are its tokens ÷ the tokens that a pass yields, whatever a pass costs."""
    line = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
    line += "--speculative-num-draft-tokens 4 --context-length 8192"
    (plain,), (fast,) = (
        api.simulate(
            model=MODEL,
            gpu=GPU,
            engine_version="0.5.12",
            flags=line,
            count=40,
            output_tokens=400,
            length_law="fixed",
            in_flight=1,
            accept_length=accepted,
        )
        for accepted in (1.0, 2.5)
    )
    assert plain.outcome.generated_tokens == fast.outcome.generated_tokens == 16_000
    decoded = [v.outcome.passes - v.outcome.prefills for v in (plain, fast)]
    # one at a time: the prefill makes the first token, 399 passes the rest, or ceil(399 ÷ 2.5) = 160; the
    # pass that a finished request stays in is the prefill of the next
    assert decoded == [40 * 399, 40 * 160]
