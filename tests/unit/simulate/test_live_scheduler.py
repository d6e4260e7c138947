"""The kernel driven from outside: sums worked by hand, aborts, and the same job through a fleet's loop."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headrace.engines.sglang.schedule import SglangSchedule
from headrace.engines.vllm.schedule import VllmSchedule
from headrace.simulate.emulate.timing import Finished
from headrace.simulate.fleet import Feeding, FleetSpec, ServerKind, build
from headrace.simulate.kernel import fleet as kernel
from headrace.simulate.kernel.records import column
from headrace.simulate.kernel.series import new_series
from headrace.simulate.live_scheduler import LiveScheduler
from headrace.simulate.scheduling import PrefillCosts, Schedule, server_rules
from headrace.simulate.workload import Workload


def kind(schedule: Schedule) -> ServerKind:
    """A step is 1 + 0.1 × batch + 0.01 × context seconds, a prefill 2 + 0.1 per token."""
    rules = server_rules(schedule, PrefillCosts(2.0, 0.1))
    batches = np.arange(rules.cap + 1)
    return ServerKind(rules, 1.0 + 0.1 * batches, np.full(len(batches), 0.01))


def drain(core: LiveScheduler) -> list[Finished]:
    done: list[Finished] = []
    while (event := core.next_event_time()) is not None:
        done += core.advance(event)
        core.check()
    return done


def test_two_requests_one_after_the_other_at_cap_1() -> None:
    # A: prefill of 10 tokens 2 + 1.0 = 3; two more tokens at contexts 11 and 12: 1.21 + 1.22
    # B: waits until 5.43, prefill of 20 tokens 4.0, one more token at context 21: 1.31
    core = LiveScheduler(kind(SglangSchedule(1, 1000, overlap=False)))
    core.submit(1, 10, 3, 0.0)
    core.submit(2, 20, 2, 0.0)
    assert (core.running, core.queued) == (1, 1)
    a, b = drain(core)
    assert (a.key, a.tokens, b.key, b.tokens) == (1, 3, 2, 2)
    assert (a.first_token_at, a.finished_at) == (pytest.approx(3.0), pytest.approx(5.43))
    assert b.admitted_at == pytest.approx(5.43)
    assert (b.first_token_at, b.finished_at) == (pytest.approx(9.43), pytest.approx(10.74))


def test_an_arrival_waits_for_the_end_of_the_step_and_its_prefill_holds_the_batch() -> None:
    # A decodes from 3 to 4.21 when B arrives at 3.5; B's prefill lasts to 8.21; then both, context 12 + 21
    core = LiveScheduler(kind(SglangSchedule(2, 1000, overlap=False)))
    core.submit(1, 10, 3, 0.0)
    core.submit(2, 20, 2, 3.5)
    a, b = drain(core)
    assert b.admitted_at == pytest.approx(4.21)
    assert b.first_token_at == pytest.approx(8.21)
    assert a.finished_at == b.finished_at == pytest.approx(8.21 + 1.0 + 0.2 + 0.33)


def test_a_finished_request_keeps_its_lane_for_one_more_pass_with_overlap() -> None:
    # 9 holds the engine to 2.1 while 1 and 2 arrive; it ends with its prefill. 1 and 2 are prefilled
    # together, 20 tokens, to 6.1. Two lanes with contexts 11 + 11: 1.42, and 1 ends. Its lane is still in the
    # next pass, 12 + 12: 1.44. Then 2 is alone with 13: 1.23.
    core = LiveScheduler(kind(SglangSchedule(4, 1000, overlap=True)))
    core.submit(9, 1, 1, 0.0)
    core.submit(1, 10, 2, 1.0)
    core.submit(2, 10, 4, 1.0)
    done = {one.key: one for one in drain(core)}
    assert done[9].finished_at == pytest.approx(2.1)
    assert done[1].first_token_at == done[2].first_token_at == pytest.approx(6.1)
    assert done[1].finished_at == pytest.approx(6.1 + 1.42)
    assert done[2].finished_at == pytest.approx(6.1 + 1.42 + 1.44 + 1.23)


def test_an_aborted_request_leaves_at_the_end_of_the_step_with_the_tokens_it_has() -> None:
    core = LiveScheduler(kind(SglangSchedule(1, 1000, overlap=False)))
    core.submit(1, 10, 100, 0.0)
    core.abort(1, 3.5)  # prefilled at 3; the step under way ends at 4.21
    (gone,) = drain(core)
    assert (gone.aborted, gone.tokens) == (True, 2)
    assert gone.finished_at == pytest.approx(4.21)


def test_an_abort_in_the_queue_takes_effect_at_once() -> None:
    core = LiveScheduler(kind(SglangSchedule(1, 1000)))
    core.submit(1, 10, 5, 0.0)
    core.submit(2, 10, 5, 0.0)
    core.abort(2, 1.0)
    (gone,) = core.advance(1.0)
    assert (gone.key, gone.aborted, gone.finished_at, core.queued) == (2, True, 1.0, 0)
    core.abort(77, 1.0)  # unknown: let pass


def test_tokens_come_one_per_step_and_load_adds_up() -> None:
    core = LiveScheduler(kind(SglangSchedule(4, 1000, overlap=False)))
    core.submit(1, 10, 50, 0.0)
    # prefill to 3; steps of 1.21, 1.22, 1.23 … end at 4.21, 5.43, 6.66
    assert [core.generated(1, at) for at in (0.5, 3.0, 4.2, 4.22, 5.44, 6.67)] == [0, 1, 1, 2, 3, 4]
    load = core.load(6.67)
    assert (load.running, load.context_tokens, load.prompt_tokens_done) == (1, 14, 10)
    assert (load.decode_tokens_done, load.decode_steps_done, load.prefills_done) == (3, 3, 1)


def test_a_full_kv_pool_keeps_the_queue_waiting_while_the_cap_has_room() -> None:
    core = LiveScheduler(kind(SglangSchedule(8, 55, overlap=False)))
    for key in (1, 2, 3):
        core.submit(key, 10, 10, 0.0)  # 20 tokens each and a page: the pool holds two
    core.advance(6.0)
    assert (core.running, core.queued) == (2, 1)


def test_prefills_are_split_at_their_token_limit() -> None:
    # the first goes alone because the engine was idle; the other two (10 + 10 > 15) go one by one, 3 s each
    core = LiveScheduler(kind(SglangSchedule(8, 1000, prefill_tokens=15, chunk_tokens=None, overlap=False)))
    for key in (1, 2, 3):
        core.submit(key, 10, 5, 0.0)
    assert sorted(one.first_token_at for one in drain(core)) == pytest.approx([3.0, 6.0, 9.0])


def test_a_key_cannot_be_used_twice_at_once() -> None:
    core = LiveScheduler(kind(SglangSchedule(1, 1000)))
    core.submit(1, 1, 1, 0.0)
    with pytest.raises(ValueError, match="key 1 is already in the engine"):
        core.submit(1, 1, 1, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_aborts_at_random_leave_nothing_behind(seed: int) -> None:
    """Every request ends once, aborted or whole, on both engines, with and without overlap."""
    draw = random.Random(seed)
    schedules: tuple[Schedule, ...] = (
        SglangSchedule(5, 800, draw.choice((1, 8)), chunk_tokens=64, overlap=draw.random() < 0.5),
        VllmSchedule(5, 64, 60, asynchronous=draw.random() < 0.5),
    )
    core = LiveScheduler(kind(draw.choice(schedules)))
    now, done = 0.0, []
    for key in range(300):
        now += draw.expovariate(0.3)
        core.submit(key, draw.randint(1, 120), draw.randint(1, 40), now, asked_tokens=60)
        if draw.random() < 0.3:
            now += draw.expovariate(2)
            core.abort(draw.randrange(key + 1), now)
        done += core.advance(now)
        core.check()
    done += drain(core)
    assert sorted(one.key for one in done) == list(range(300))
    assert core.running == core.queued == 0
    for one in done:
        assert one.submitted_at <= one.admitted_at <= one.first_token_at <= one.finished_at
    times = [one.finished_at for one in done]
    assert times == sorted(times)


@pytest.mark.parametrize("seed", range(10))
def test_the_same_arrivals_through_a_fleet_of_one_end_at_the_same_moments(seed: int) -> None:
    draw = random.Random(seed)
    schedule: Schedule = SglangSchedule(6, 900, overlap=seed % 2 == 0)
    if seed >= 5:
        schedule = VllmSchedule(6, 128, 70)
    count = 80
    inputs = np.array([draw.randint(1, 90) for _ in range(count)])
    outputs = np.array([draw.randint(1, 60) for _ in range(count)])
    arrival = np.cumsum([draw.expovariate(0.2) for _ in range(count)])
    core, done = LiveScheduler(kind(schedule)), []
    for key in range(count):
        done += core.advance(float(arrival[key]))
        core.submit(key, int(inputs[key]), int(outputs[key]), float(arrival[key]), asked_tokens=60)
    done += drain(core)
    world, client = build(
        FleetSpec([kind(schedule)], [0], feeding=Feeding(None)),
        Workload(inputs, outputs, np.full(count, 60), arrival),
    )
    assert kernel.run(world, client, new_series(1, 64, 1.0), np.inf, 1_000_000) == kernel.ALL_DONE
    ends = column(world.requests, "finished")
    assert {one.key: one.finished_at for one in done} == {key: ends[key] for key in range(count)}
