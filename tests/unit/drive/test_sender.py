"""What leaves when: a client that answers on command, a real event loop, and the order of what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from headrace.clock import VirtualClock
from headrace.drive.dispatch.dispatcher import Dispatcher
from headrace.drive.dispatch.endpoint import Endpoint
from headrace.drive.dispatch.ticket import Flight, Ticket
from headrace.drive.outcome import Answered, Later, Outcome, ServerFault
from headrace.drive.prompts import Prompt, Request
from headrace.drive.sender import LAND_AT_ONCE, MOST_UNLANDED, MOST_UNLANDED_BYTES, RAMP_SECONDS, Sender
from headrace.net.http import HttpClient, HttpFailure, Response

GOOD = Response(200, b'{"choices":[{"text":"x","finish_reason":"stop"}]}', None, "application/json")
BUSY = Response(503, b"", None, "text/plain")


class CommandedClient:
    """Stands for the HTTP client: keeps what was asked, in order, until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Response | HttpFailure], None]] = []
        self.cancelled = 0
        self.sent = 0

    def send(
        self, url: str, body: bytes, on_done: Callable[[Response | HttpFailure], None], *, fresh: bool
    ) -> Any:
        client = self
        self.sent += 1
        self.asked.append(on_done)

        class Exchange:
            def cancel(self) -> None:
                client.asked.remove(on_done)
                client.cancelled += 1

        return Exchange()

    def answer(self, response: Response | HttpFailure = GOOD) -> None:
        self.asked.pop(0)(response)


class Stand:
    """A sender with its dispatcher, a client on command, and what has landed."""

    def __init__(self, limit: int, prompts: int) -> None:
        self.clock = VirtualClock()
        self.dispatcher = Dispatcher()
        self.dispatcher.endpoints["http://s"] = Endpoint("http://s", limit, 0.0)
        request = Request("/v1/completions", {"prompt": "x"}, None, "x")
        self.dispatcher.offer(
            Ticket(Prompt(n, str(n), 0, n + 1, 0, request, None), 1.0) for n in range(prompts)
        )
        self.landed: list[tuple[int, Outcome]] = []
        self.client = CommandedClient()
        self.sender = Sender(
            self.dispatcher, self.clock, keep_token_ids=False, land=self._land, pump=self.pump
        )

    def _land(self, flight: Flight, outcome: Outcome, now: float) -> None:
        flight.ticket.flights.remove(flight)
        if isinstance(outcome, Later):
            self.dispatcher.endpoints["http://s"].on_later(now, outcome.status, None)
        self.landed.append((flight.ticket.prompt.seq, outcome))

    def pump(self) -> None:
        self.sender.send(self.clock.monotonic(), hedge=False)

    async def begin(self) -> asyncio.Task[None]:
        """The task that lands; the ramp is over and all that may be sent is."""
        self.sender.begin(cast(HttpClient, self.client), 10_000)
        self.clock.advance(RAMP_SECONDS)
        self.pump()
        return asyncio.create_task(self.sender.land())


def on_stand(stand: Stand, scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        landing = await stand.begin()
        await scenario()
        landing.cancel()

    asyncio.run(main())


def test_the_next_request_leaves_before_the_answer_is_looked_at() -> None:
    stand = Stand(limit=2, prompts=5)

    async def scenario() -> None:
        assert len(stand.client.asked) == 2
        stand.client.answer()
        assert len(stand.client.asked) == 2
        assert stand.landed == []
        await asyncio.sleep(0)
        assert [seq for seq, _ in stand.landed] == [0]

    on_stand(stand, scenario)
    assert isinstance(stand.landed[0][1], Answered)


def test_what_is_no_answer_lands_before_anything_is_sent_to_its_server() -> None:
    stand = Stand(limit=1, prompts=2)

    async def scenario() -> None:
        stand.client.answer(BUSY)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [type(outcome) for _, outcome in stand.landed] == [Later]
        assert stand.client.asked == []  # it said later

    on_stand(stand, scenario)


def test_answers_land_a_few_at_a_time_and_in_their_order() -> None:
    stand = Stand(limit=20, prompts=20)

    async def scenario() -> None:
        for _ in range(20):
            stand.client.answer()
        await asyncio.sleep(0)
        assert len(stand.landed) == LAND_AT_ONCE
        for _ in range(20):
            await asyncio.sleep(0)
        assert stand.sender.is_empty()
        assert [seq for seq, _ in stand.landed] == list(range(20))

    on_stand(stand, scenario)


def test_answers_that_have_not_landed_hold_up_the_next_request() -> None:
    """A server that answers at once never makes answers pile up, whatever is in flight."""
    limit = 100
    stand = Stand(limit=limit, prompts=3000)
    most = 0

    async def scenario() -> None:
        nonlocal most
        while not stand.sender.is_empty() or stand.client.asked:
            for _ in range(len(stand.client.asked)):
                stand.client.answer()
            most = max(most, stand.client.sent - len(stand.landed))
            await asyncio.sleep(0)

    on_stand(stand, scenario)
    assert len(stand.landed) == 3000
    assert most <= MOST_UNLANDED + limit


def test_large_answers_that_have_not_landed_hold_up_the_next_request_by_their_size() -> None:
    """Three of 4 MiB are more than may wait, whatever their number."""
    stand = Stand(limit=3, prompts=9)
    large = Response(200, b"x" * (MOST_UNLANDED_BYTES // 2), None, "application/json")

    async def scenario() -> None:
        for sent in (4, 5, 5):
            stand.client.answer(large)
            assert stand.client.sent == sent
        await asyncio.sleep(0)
        assert len(stand.landed) == 3
        assert stand.client.sent == 6

    on_stand(stand, scenario)


def test_a_request_that_is_cut_short_counts_as_what_it_was_cut_for() -> None:
    stand = Stand(limit=2, prompts=2)

    async def scenario() -> None:
        first, second = stand.dispatcher.flights
        fault = ServerFault("timeout", "too long")
        stand.sender.cut_short(first, fault)
        stand.sender.cut_short(first, ServerFault("stalled", "twice"))
        stand.sender.cut_short(second, None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stand.landed == [(0, fault)]
        assert stand.client.cancelled == 2
        assert stand.sender.is_empty()
        assert second.ticket.flights == []
        stand.dispatcher.check()

    on_stand(stand, scenario)


def test_an_answer_in_the_moment_of_the_cut_is_kept() -> None:
    stand = Stand(limit=1, prompts=1)

    async def scenario() -> None:
        (flight,) = stand.dispatcher.flights
        stand.sender.cut_short(flight, ServerFault("timeout", "too long"))
        stand.client.answer()
        for _ in range(20):
            await asyncio.sleep(0)
        assert stand.sender.is_empty()

    on_stand(stand, scenario)
    assert [type(outcome) for _, outcome in stand.landed] == [Answered]


def test_what_has_come_back_lands_at_the_end_of_a_run() -> None:
    stand = Stand(limit=9, prompts=9)

    async def scenario() -> None:
        for _ in range(9):
            stand.client.answer()
        stand.sender.land_rest()

    on_stand(stand, scenario)
    assert len(stand.landed) == 9
