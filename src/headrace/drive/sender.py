"""Keeps requests in flight: sends what the dispatcher says, and hands what comes back to its landing.

An answer is taken in two steps. In the moment it is complete its permit is free and the next request leaves,
on the same connection and before anything else is done. Reading the answer, looking at it and keeping it come
after that, a few at a time, so that no socket waits for them for long: that is what keeps a fleet full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from headrace.clock import Clock
from headrace.drive.dispatch.dispatcher import Dispatcher
from headrace.drive.dispatch.endpoint import EndpointState
from headrace.drive.dispatch.ticket import Flight
from headrace.drive.outcome import Outcome, ServerFault, outcome_of
from headrace.net.http import Exchange, HttpClient, HttpFailure, Response

RAMP_SECONDS = 0.5
LAND_AT_ONCE = 4  # answers between two looks at the sockets: half a millisecond for 10 KB each
# Answers that wait for their landing: beyond, the next request waits too, so that memory does not grow.
MOST_UNLANDED = 64
MOST_UNLANDED_BYTES = 8 * 1024 * 1024

Land = Callable[[Flight, Outcome, float], None]
CameBack = Response | HttpFailure | ServerFault


class Sender:
    """The requests in flight, and the answers that have not landed yet.

    Args:
        keep_token_ids: token ids are asked for and kept.
        land: told each flight with its outcome and when it came back (monotonic seconds).
        pump: called when a permit is free or a moment has come; it calls `send`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        *,
        keep_token_ids: bool,
        land: Land,
        pump: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._keep_token_ids = keep_token_ids
        self._land = land
        self._pump = pump
        # what every body gets beside its own: the served model, and vLLM's switch for output token ids
        # (SGLang's /generate returns them unasked, its other paths have none)
        self.added: dict[str, Any] = {"return_token_ids": True} if keep_token_ids else {}
        self.sent = 0
        self._exchanges: dict[Flight, Exchange] = {}
        self._cut: set[Flight] = set()
        self._unlanded: deque[tuple[Flight, CameBack, float]] = deque()
        self._unlanded_bytes = 0  # of their bodies
        self._wake: asyncio.TimerHandle | None = None

    def begin(self, http: HttpClient, max_flights: int) -> None:
        """Takes the client to send with; the ramp begins now. Called in the event loop."""
        self._http = http
        self._max_flights = max_flights
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        self._began = self._clock.monotonic()

    def is_empty(self) -> bool:
        """Whether nothing is in flight and everything that came back has landed."""
        return not self._exchanges and not self._unlanded

    # sending

    def send(self, now: float, *, hedge: bool) -> int:
        """Sends as much as there is room for; how many of these requests were hedges."""
        dispatcher = self._dispatcher
        if len(self._unlanded) > MOST_UNLANDED or self._unlanded_bytes > MOST_UNLANDED_BYTES:
            return 0  # the next landings pump again
        allowed, hedged = self._allowed(now), 0
        while len(dispatcher.flights) < allowed:
            flight = dispatcher.next_flight(now)
            if flight is None:
                break
            self._launch(flight)
        if hedge:
            while (flight := dispatcher.hedge(now)) is not None:
                hedged += 1
                self._launch(flight)
        self._set_wake(now)
        return hedged

    def _allowed(self, now: float) -> int:
        """Requests in flight at most: all that the process may, after a ramp in the run's first half second.

        Sent all at once, requests of like length come back all at once for ever, and queue here: spread over
        the ramp, 256 of them at a 200 ms server keep their distance.
        """
        share = (now - self._began) / RAMP_SECONDS
        if share >= 1:
            return self._max_flights
        return min(self._max_flights, 1 + int(share * self._dispatcher.limit()))

    def _launch(self, flight: Flight) -> None:
        request = flight.ticket.prompt.request
        body = msgspec.json.encode({**request.body, **self.added})
        self.sent += 1
        self._exchanges[flight] = self._http.send(
            flight.url + request.path, body, partial(self._came_back, flight), fresh=flight.ticket.fresh
        )

    def _set_wake(self, now: float) -> None:
        """Wakes the pump when the first waiting ticket's, or limited endpoint's, time comes."""
        dispatcher = self._dispatcher
        due = dispatcher.next_wake()
        if now - self._began < RAMP_SECONDS:
            due = now + RAMP_SECONDS / max(dispatcher.limit(), 100)
        if dispatcher.ready or due is not None:
            for endpoint in dispatcher.endpoints.values():
                if endpoint.state is EndpointState.LIMITED and endpoint.not_before > now:
                    due = endpoint.not_before if due is None or due <= now else min(due, endpoint.not_before)
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if due is not None and due > now:
            self._wake = self._loop.call_later(due - now, self._pump)

    # coming back

    def _came_back(self, flight: Flight, came: CameBack) -> None:
        """Takes what came of a request; its permit is free, and used at once if the server is well."""
        del self._exchanges[flight]
        self._dispatcher.landed(flight)
        if isinstance(came, Response):
            self._unlanded_bytes += len(came.body)
        self._unlanded.append((flight, came, self._clock.monotonic()))
        self._came.set()
        # what is no answer may close its server, and does so before anything else is sent
        if isinstance(came, Response) and came.status == 200:
            self._pump()

    async def land(self) -> None:
        """Lands what has come back, as long as it runs."""
        while True:
            await self._came.wait()
            self._came.clear()
            while self._unlanded:
                self._land_some(LAND_AT_ONCE)
                self._pump()
                await asyncio.sleep(0)

    def land_rest(self) -> None:
        """Lands all that has come back, when nothing more will be sent."""
        self._land_some(len(self._unlanded))

    def _land_some(self, most: int) -> None:
        for _ in range(min(most, len(self._unlanded))):
            flight, came, now = self._unlanded.popleft()
            outcome: Outcome
            if isinstance(came, Response):
                self._unlanded_bytes -= len(came.body)
                path = flight.ticket.prompt.request.path
                outcome = outcome_of(came, path, keep_token_ids=self._keep_token_ids)
            elif isinstance(came, HttpFailure):
                outcome = ServerFault(came.kind, str(came))
            else:
                outcome = came
            self._land(flight, outcome, now)

    def cut_short(self, flight: Flight, outcome: ServerFault | None) -> None:
        """Cancels a request; `outcome` is what it then counts as (None: nothing, its row is answered).

        It happens a moment later, so that the caller may be going through the flights. What comes back in
        that moment lands as what it is.
        """
        if flight in self._exchanges and flight not in self._cut:
            self._cut.add(flight)
            self._loop.call_soon(self._cut_now, flight, outcome)

    def enforce_timeout(self, now: float, limit_seconds: float) -> None:
        """Cuts short what has been in flight for longer than the limit."""
        for flight in self._dispatcher.flights:
            if self._dispatcher.silent_since(flight.started) < now - limit_seconds:
                why = f"no answer within {limit_seconds:g} s (--request-timeout)"
                self.cut_short(flight, ServerFault("timeout", why))

    def _cut_now(self, flight: Flight, outcome: ServerFault | None) -> None:
        self._cut.discard(flight)
        exchange = self._exchanges.pop(flight, None)
        if exchange is None:
            return
        exchange.cancel()
        self._dispatcher.landed(flight)
        if outcome is None:
            flight.ticket.flights.remove(flight)
            self._pump()
        else:
            self._unlanded.append((flight, outcome, self._clock.monotonic()))
            self._came.set()
