"""The job's servers while it runs: who belongs to it, what they last said, who stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from headrace.clock import Clock
from headrace.drive.dispatch.dispatcher import Dispatcher
from headrace.drive.dispatch.endpoint import Endpoint, EndpointState
from headrace.drive.dispatch.limits import InFlightLimit
from headrace.drive.dispatch.ticket import Flight
from headrace.drive.fleet_view import look
from headrace.drive.outcome import ServerFault
from headrace.drive.signals import LoadReader, LoadSignal
from headrace.net.http import HttpClient

EARLY_LOOKS = 10  # looks that follow each other at EARLY_SECONDS, then at LATER_SECONDS
EARLY_SECONDS = 1.0
LATER_SECONDS = 5.0


@dataclass(slots=True)
class _Watched:
    reader: LoadReader
    next_look: float
    looks: int = 0
    looking: bool = False


class Servers:
    """Adds, watches and removes the endpoints of a dispatcher.

    Args:
        in_flight: the configured limit per server; None = auto.
        load_reader: makes the reader of one server's load.
        cut_short: cancels a request, which then counts as the given fault.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        *,
        in_flight: int | None,
        load_reader: Callable[[], LoadReader],
        cut_short: Callable[[Flight, ServerFault | None], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._in_flight = in_flight
        self._load_reader = load_reader
        self._cut_short = cut_short
        self._watched: dict[str, _Watched] = {}
        self.looks: set[asyncio.Task[None]] = set()  # that are on their way
        self.limits: dict[str, InFlightLimit] = {}
        self.signals: dict[str, LoadSignal | None] = {}

    def add(self, url: str) -> Endpoint:
        """Takes a server into the fleet, or back into it."""
        now = self._clock.monotonic()
        endpoint = self._dispatcher.endpoints.get(url)
        if endpoint is not None:
            endpoint.readmit(now)
            return endpoint
        limit = self.limits[url] = InFlightLimit(self._in_flight)
        endpoint = self._dispatcher.endpoints[url] = Endpoint(url, limit.value, now)
        self._watched[url] = _Watched(self._load_reader(), now)
        return endpoint

    def hand_back(self, endpoint: Endpoint, why: str) -> int:
        """Takes back what is in flight at a server, to be asked elsewhere; how many requests that were."""
        held = self._dispatcher.flights_at(endpoint.url)
        for flight in held:
            self._cut_short(flight, ServerFault("stalled", why))
        return len(held)

    def watch(self, group: asyncio.TaskGroup, http: HttpClient, after_look: Callable[[], None]) -> None:
        """Starts the looks that are due, and forgets removed servers that hold nothing any more."""
        now = self._clock.monotonic()
        for url, endpoint in list(self._dispatcher.endpoints.items()):
            watched = self._watched[url]
            if endpoint.state is EndpointState.REMOVED and endpoint.in_flight == 0:
                for table in (self._dispatcher.endpoints, self.limits, self.signals, self._watched):
                    table.pop(url, None)
                continue
            if endpoint.state in (EndpointState.REMOVED, EndpointState.DRAINED):
                continue
            broken = endpoint.state is EndpointState.BROKEN
            due = endpoint.probe_due(now) if broken else now >= watched.next_look
            if due and not watched.looking:
                watched.looking = True
                task = group.create_task(self._look(endpoint, watched, http, after_look))
                self.looks.add(task)
                task.add_done_callback(self.looks.discard)

    async def _look(
        self, endpoint: Endpoint, watched: _Watched, http: HttpClient, after_look: Callable[[], None]
    ) -> None:
        try:
            alive, load = await look(http, endpoint.url, watched.reader)
        finally:
            watched.looking = False
        now = self._clock.monotonic()
        watched.looks += 1
        settled = alive and watched.looks >= EARLY_LOOKS
        watched.next_look = now + (LATER_SECONDS if settled else EARLY_SECONDS)
        if self._watched.get(endpoint.url) is not watched:
            return  # removed meanwhile
        if endpoint.on_probe(now, alive):
            self.hand_back(endpoint, endpoint.why)
        self.signals[endpoint.url] = load
        if alive:
            endpoint.limit = self.limits[endpoint.url].on_signal(load, endpoint.in_flight)
        after_look()

    def give_up_stalled(self) -> None:
        """Opens the breaker of servers that hold requests and finish none, and takes their requests back."""
        now = self._clock.monotonic()
        for endpoint in self._dispatcher.stalled(now):
            held = self._dispatcher.flights_at(endpoint.url)
            oldest = now - min(flight.started for flight in held)
            why = f"held {len(held)} requests for {oldest:.0f} s and finished none"
            endpoint.on_stalled(now, why)
            self.hand_back(endpoint, why)

    def all_refuse(self) -> str | None:
        """What the servers said, when every one of them refuses the job's key; else None."""
        endpoints = self._dispatcher.endpoints.values()
        if not endpoints or any(e.state is not EndpointState.REFUSING for e in endpoints):
            return None
        return "; ".join(f"{endpoint.url} {endpoint.why}" for endpoint in endpoints)
