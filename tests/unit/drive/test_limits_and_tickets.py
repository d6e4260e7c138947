"""In-flight limits found out, and what follows a failed try."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from headrace.drive.dispatch.limits import InFlightLimit
from headrace.drive.dispatch.ticket import Again, GiveUp, Ticket, after_failure, backoff_seconds
from headrace.drive.prompts import Prompt, Request


@dataclass
class Signal:
    engine: str | None = "e"
    cap: int | None = None
    running: int | None = None
    queued: int | None = None


def test_a_configured_limit_stays() -> None:
    limit = InFlightLimit(32)
    assert limit.on_signal(Signal(cap=8), 32) == 32
    assert limit.on_later(32, 0.0) == 32
    assert limit.origin == "configured"


@pytest.mark.parametrize(("cap", "expected"), [(1, 3), (8, 10), (37, 41), (64, 72), (256, 288)])
def test_a_reported_cap_gets_a_small_standing_queue(cap: int, expected: int) -> None:
    limit = InFlightLimit(None)
    assert limit.on_signal(Signal(cap=cap), 0) == expected
    assert limit.origin == "reported"


def test_an_unknown_cap_is_climbed_to_and_held() -> None:
    """A server that runs 40 at most: the limit settles above 40, within its standing queue of 5."""
    limit = InFlightLimit(None)
    seen = []
    for _ in range(12):
        in_flight = limit.value
        seen.append(
            limit.on_signal(Signal(running=min(in_flight, 40), queued=max(in_flight - 40, 0)), in_flight)
        )
    assert len(set(seen[-3:])) == 1
    assert 40 < seen[-1] <= 45
    assert max(seen) < 80


def test_no_climbing_while_the_client_does_not_fill_the_limit() -> None:
    limit = InFlightLimit(None)
    assert (
        limit.on_signal(Signal(running=3, queued=0), 3)
        == limit.on_signal(Signal(running=3, queued=0), 3)
        == 16
    )


def test_a_server_that_tells_nothing_gets_a_fixed_number() -> None:
    assert InFlightLimit(None).on_signal(None, 0) == 32


def test_429_steps_back_and_the_way_up_is_slow_while_the_server_has_a_queue() -> None:
    limit = InFlightLimit(None)
    limit.on_signal(Signal(cap=64), 0)
    assert limit.on_later(60, 0.0) == 45  # three quarters of what was in flight
    assert limit.on_later(60, 0.9) == 45  # the same burst
    up = [limit.on_signal(Signal(cap=64, queued=3), 0) for _ in range(11)]
    assert up[:2] == [48, 51]  # a twentieth of 72 at a time while the server has a queue
    assert up[-1] == 72
    assert limit.on_later(72, 1.0) == 54
    assert [limit.on_signal(Signal(cap=64, queued=0), 0) for _ in range(2)] == [72, 72]  # a quarter, else


def make_ticket(tries: int) -> Ticket:
    made = Ticket(Prompt(0, "0", 0, 1, 0, Request("/x", {}, None, "x"), None), 1.0)
    made.tries = tries
    return made


def test_backoff_doubles_between_half_and_full_up_to_thirty_seconds() -> None:
    jitter = random.Random(0)
    for failures, full in [(1, 0.5), (2, 1.0), (3, 2.0), (7, 30.0), (40, 30.0)]:
        assert full / 2 <= backoff_seconds(failures, jitter) <= full


def test_out_of_tries_gives_up_with_the_last_words() -> None:
    decision = after_failure(make_ticket(5), 10.0, "server_error", "500: boom", 5, random.Random(0))
    assert isinstance(decision, GiveUp)
    assert (decision.kind, decision.reason) == (
        "server_error",
        "given up after 5 tries (--max-tries 5); the last: 500: boom",
    )
    decision_before = after_failure(make_ticket(4), 10.0, "server_error", "500: boom", 5, random.Random(0))
    assert isinstance(decision_before, Again)
    assert 12.0 <= decision_before.not_before <= 14.0
