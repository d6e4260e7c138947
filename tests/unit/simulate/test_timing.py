"""The timing core against sums worked by hand and against the plain per-step reference."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.simulate.emulate.continuous_batch import ContinuousBatch
from headrace.simulate.emulate.pace import Pace
from headrace.simulate.emulate.timing import Finished, StepTimes
from tests.unit.simulate.naive_engine import NaiveRequest, run_naively

BY_HAND = StepTimes(
    decode_step_seconds=1.0,
    decode_seconds_per_request=0.1,
    decode_seconds_per_context_token=0.01,
    prefill_step_seconds=2.0,
    prefill_seconds_per_token=0.1,
)
ODD = StepTimes(0.0361803, 0.00170711, 0.0000464159, 0.0373205, 0.000271828)


def drain(core: ContinuousBatch) -> list[Finished]:
    done: list[Finished] = []
    while (event := core.next_event_time()) is not None:
        done += core.advance(event)
        core.check()
    return done


def test_two_requests_one_after_the_other_at_cap_1() -> None:
    # A: prefill of 10 tokens 2 + 1.0 = 3; two more tokens at contexts 11 and 12: 1.21 + 1.22
    # B: waits until 5.43, prefill of 20 tokens 4.0, one more token at context 21: 1.31
    core = ContinuousBatch(1, 1000, BY_HAND)
    core.submit(1, 10, 3, 0.0)
    core.submit(2, 20, 2, 0.0)
    assert (core.running, core.queued) == (1, 1)
    a, b = drain(core)
    assert (a.key, a.tokens, b.key, b.tokens) == (1, 3, 2, 2)
    assert a.first_token_at == pytest.approx(3.0, abs=1e-12)
    assert a.finished_at == pytest.approx(5.43, abs=1e-12)
    assert b.admitted_at == pytest.approx(5.43, abs=1e-12)
    assert b.first_token_at == pytest.approx(9.43, abs=1e-12)
    assert b.finished_at == pytest.approx(10.74, abs=1e-12)


def test_an_arrival_waits_for_the_end_of_the_step_and_its_prefill_holds_the_batch() -> None:
    # A decodes from 3 to 4.21 when B arrives at 3.5; B's prefill lasts to 8.21; then both, context 12 + 21
    core = ContinuousBatch(2, 1000, BY_HAND)
    core.submit(1, 10, 3, 0.0)
    core.submit(2, 20, 2, 3.5)
    a, b = drain(core)
    assert b.admitted_at == pytest.approx(4.21, abs=1e-12)
    assert b.first_token_at == pytest.approx(8.21, abs=1e-12)
    assert a.finished_at == b.finished_at == pytest.approx(8.21 + 1.0 + 0.2 + 0.33, abs=1e-12)


def test_an_aborted_request_leaves_at_the_end_of_the_step_with_the_tokens_it_has() -> None:
    core = ContinuousBatch(1, 1000, BY_HAND)
    core.submit(1, 10, 50, 0.0)
    core.submit(2, 10, 1, 0.0)
    core.abort(1, 4.0)  # in the first decode step, 3 … 4.21
    a, b = drain(core)
    assert (a.aborted, a.tokens) == (True, 2)
    assert a.finished_at == pytest.approx(4.21, abs=1e-12)
    assert (b.aborted, b.admitted_at) == (False, a.finished_at)


def test_an_abort_in_the_queue_takes_effect_at_once() -> None:
    core = ContinuousBatch(1, 1000, BY_HAND)
    core.submit(1, 10, 3, 0.0)
    core.submit(2, 10, 3, 0.0)
    core.abort(2, 1.0)
    assert core.advance(1.0) == [Finished(2, 0, True, 0.0, 1.0, 1.0, 1.0)]
    assert core.queued == 0
    assert [one.key for one in drain(core)] == [1]


def test_a_full_kv_pool_keeps_the_queue_waiting_while_the_cap_has_room() -> None:
    core = ContinuousBatch(8, 40, BY_HAND)
    for key in (1, 2, 3):
        core.submit(key, 10, 10, 0.0)  # 20 tokens each: the pool holds two
    core.advance(6.0)  # past the first two prefills
    assert (core.running, core.queued) == (2, 1)


def test_a_request_larger_than_the_pool_runs_alone() -> None:
    core = ContinuousBatch(8, 5, BY_HAND)
    core.submit(1, 10, 2, 0.0)
    assert [one.key for one in drain(core)] == [1]


def test_tokens_come_one_per_step() -> None:
    core = ContinuousBatch(1, 1000, BY_HAND)
    core.submit(1, 10, 4, 0.0)
    moments = [2.99, 3.0, 4.2, 4.22, 5.42, 5.44]
    assert [core.generated(1, now) for now in moments] == [0, 1, 1, 2, 2, 3]
    load = core.load(5.44)
    assert (load.running, load.context_tokens, load.decode_tokens_done, load.prompt_tokens_done) == (
        1,
        13,
        2,
        10,
    )


def test_prefills_are_split_at_their_token_limit() -> None:
    # the first goes alone because the engine was idle; the other two (10 + 10 > 15) go one by one
    core = ContinuousBatch(8, 1000, BY_HAND, prefill_batch_tokens=15)
    for key in (1, 2, 3):
        core.submit(key, 10, 5, 0.0)
    first_tokens = sorted(one.first_token_at for one in drain(core))
    assert first_tokens == pytest.approx([3.0, 6.0, 9.0], abs=1e-12)


def test_a_key_cannot_be_used_twice_at_once() -> None:
    core = ContinuousBatch(1, 1000, BY_HAND)
    core.submit(1, 1, 1, 0.0)
    with pytest.raises(ValueError, match="key 1 is already in the engine"):
        core.submit(1, 1, 1, 0.0)


REQUESTS = st.lists(
    st.builds(
        NaiveRequest,
        at=st.integers(0, 400).map(lambda step: step / 64),
        prompt_tokens=st.integers(1, 300),
        output_tokens=st.integers(1, 80),
        abort_at=st.none() | st.integers(0, 900).map(lambda step: step / 64 + 0.003),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    requests=REQUESTS,
    cap=st.integers(1, 5),
    kv_tokens=st.integers(100, 1500),
    prefill_batch_tokens=st.integers(100, 700),
    peeks=st.lists(st.floats(0, 20), max_size=5),
)
def test_the_closed_form_equals_the_steps_walked_one_by_one(
    requests: list[NaiveRequest], cap: int, kv_tokens: int, prefill_batch_tokens: int, peeks: list[float]
) -> None:
    for request in requests:
        if request.abort_at is not None and request.abort_at < request.at:
            request.abort_at = None
    run_naively(requests, cap, kv_tokens, ODD, prefill_batch_tokens)

    core = ContinuousBatch(cap, kv_tokens, ODD, prefill_batch_tokens)
    calls = [(request.at, 0, index) for index, request in enumerate(requests)]
    calls += [(r.abort_at, 1, index) for index, r in enumerate(requests) if r.abort_at is not None]
    calls += [(moment, 2, 0) for moment in peeks]  # looking must change nothing
    done: dict[int, Finished] = {}
    for now, kind, index in sorted(calls):
        if kind == 0:
            core.submit(index, requests[index].prompt_tokens, requests[index].output_tokens, now)
        elif kind == 1:
            core.abort(index, now)
        else:
            core.load(now)
        core.check()
    for one in drain(core):
        assert one.key not in done
        done[one.key] = one

    assert sorted(done) == list(range(len(requests)))
    for index, expected in enumerate(requests):
        got = done[index]
        assert (got.tokens, got.aborted) == (expected.tokens, expected.aborted)
        assert got.admitted_at == pytest.approx(expected.admitted_at, abs=1e-9)
        assert got.first_token_at == pytest.approx(expected.first_token_at, abs=1e-9)
        assert got.finished_at == pytest.approx(expected.finished_at, abs=1e-9)
    load = core.load(1e6)
    assert (load.running, load.queued, load.context_tokens) == (0, 0, 0)
    finished_whole = sum(one.tokens - 1 for one in done.values() if one.tokens)
    assert load.decode_tokens_done == finished_whole


def test_a_change_of_speed_keeps_the_engine_time_continuous() -> None:
    pace = Pace(2.0, 100.0)
    assert pace.engine_time(103.0) == 6.0
    pace.set_speed(0.5, 103.0)
    assert pace.engine_time(103.0) == 6.0
    assert pace.engine_time(107.0) == 8.0
    assert pace.clock_time(8.0) == 107.0
    with pytest.raises(ValueError, match="above 0"):
        pace.set_speed(0, 108.0)
