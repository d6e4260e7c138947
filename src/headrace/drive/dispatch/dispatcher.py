"""Who asks whom next. Pure: no I/O, no clock of its own.

One shared queue. The next prompt goes to the endpoint with the least outstanding expected tokens for its
limit among those with room, so a slow server takes what it can and never holds the queue. What failed
waits in a heap without a permit. Near the end, idle fast servers are asked as well for what is stuck
on a much slower one; the first answer wins.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import count
from statistics import median

from headrace.drive.dispatch.endpoint import Endpoint, EndpointState
from headrace.drive.dispatch.ticket import Flight, Ticket

# A row is hedged when its server is known to be this much slower than an idle one …
SLOWER = 2.0
# … or has answered nothing for this many times the longest latency that the fleet has shown.
SILENT = 3.0
STALLED_SECONDS = 30.0  # and at least 5 longest latencies: it holds requests and finishes none
STALLED_LATENCIES = 5.0
# A turn of the event loop takes milliseconds. When a moment of sleep lasted so much longer, this process was
# stopped (Ctrl-Z, a paused machine): the answers that came meanwhile lie unread, and no server is at fault.
STANDSTILL_SECONDS = 5.0

SECOND_OPINION_SECONDS = 0.25  # between two looks for room at another server than the one that refused
TAKES = (EndpointState.REACHABLE, EndpointState.LIMITED, EndpointState.TRIAL)


class Dispatcher:
    """The queue, the waiting room and the endpoints.

    Attributes:
        awake_since: monotonic seconds; what servers did not say before that, nobody was there to hear.
    """

    def __init__(self) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        self.ready: deque[Ticket] = deque()
        self._waiting: list[tuple[float, int, Ticket]] = []
        self._order = count()
        self.flights: dict[Flight, None] = {}
        self.awake_since = float("-inf")

    def woke(self, due: float, now: float) -> None:
        """A sleep that was to end at `due` ended `now`: whether this process stood still in between."""
        if now - due > STANDSTILL_SECONDS:
            self.awake_since = now

    def silent_since(self, started: float) -> float:
        """Since when (monotonic seconds) a request that was sent at `started` is waited for."""
        return max(started, self.awake_since)

    # the queue

    def offer(self, tickets: Iterable[Ticket]) -> None:
        """Puts new tickets at the end of the queue."""
        self.ready.extend(tickets)

    def again(self, ticket: Ticket, not_before: float) -> None:
        """Queues a ticket again; it goes before new ones once its time has come."""
        heapq.heappush(self._waiting, (not_before, next(self._order), ticket))

    @property
    def waiting(self) -> int:
        """Tickets that wait for their time."""
        return len(self._waiting)

    def next_wake(self) -> float | None:
        """When the first waiting ticket's time comes (monotonic seconds); None when none waits."""
        return self._waiting[0][0] if self._waiting else None

    # sending

    def next_flight(self, now: float) -> Flight | None:
        """Takes the next prompt and the best endpoint for it; None when either is missing."""
        while True:
            due = bool(self._waiting) and self._waiting[0][0] <= now
            if not due and not self.ready:
                return None
            ticket = self._waiting[0][2] if due else self.ready[0]
            endpoint = self._best(now, ticket)
            if endpoint is not None:
                if due:
                    heapq.heappop(self._waiting)
                else:
                    self.ready.popleft()
                return self._send(ticket, endpoint, now)
            if not due or ticket.refused_by is None:
                return None
            # it waits for a second opinion and must not hold up the others meanwhile
            heapq.heapreplace(self._waiting, (now + SECOND_OPINION_SECONDS, next(self._order), ticket))

    def hedge(self, now: float) -> Flight | None:
        """A second request, at an idle fast server, for a row stuck on a slow one; or None."""
        if self.ready or not self.flights:
            return None
        idle = [e for e in self.endpoints.values() if e.latencies and e.room(now) > 0]
        if not idle:
            return None
        fast = min(idle, key=lambda e: (median(e.latencies), e.outstanding_tokens))
        fast_seconds = median(fast.latencies)
        longest = self.longest_latency() or fast_seconds
        best: Flight | None = None
        for flight in self.flights:
            slow = self.endpoints.get(flight.url)
            if flight.ticket.hedged or flight.url == fast.url or slow is None:
                continue
            age = now - flight.started
            known_slow = len(slow.latencies) >= 3 and median(slow.latencies) >= SLOWER * fast_seconds
            waited = now - self.silent_since(max(slow.last_answer, flight.started))
            silent = waited >= SILENT * longest
            if ((known_slow and age >= fast_seconds) or (silent and age >= SILENT * longest)) and (
                best is None or flight.started < best.started
            ):
                best = flight
        if best is None:
            return None
        best.ticket.hedged = True
        return self._send(best.ticket, fast, now)

    def landed(self, flight: Flight) -> None:
        """A request came back, or was given up: its permit is free. The landing tells its ticket."""
        del self.flights[flight]
        endpoint = self.endpoints.get(flight.url)
        if endpoint is not None:
            endpoint.landed(flight.started, flight.expected_tokens)

    # looking

    def in_flight(self) -> int:
        return len(self.flights)

    def limit(self) -> int:
        """Requests in flight at most, over the endpoints that take any."""
        return sum(e.limit for e in self.endpoints.values() if e.state in TAKES)

    def longest_latency(self) -> float | None:
        """Seconds of the longest remembered latency of all endpoints; None before the first answer."""
        return max((max(e.latencies) for e in self.endpoints.values() if e.latencies), default=None)

    def stalled(self, now: float) -> list[Endpoint]:
        """Endpoints that hold requests and have finished none for far longer than others need."""
        longest = self.longest_latency()
        if longest is None:
            return []
        bound = max(STALLED_SECONDS, STALLED_LATENCIES * longest)
        oldest: dict[str, float] = {}
        for flight in self.flights:
            oldest[flight.url] = min(oldest.get(flight.url, flight.started), flight.started)
        return [
            e
            for url, started in oldest.items()
            if (e := self.endpoints.get(url)) is not None
            and e.state is not EndpointState.BROKEN
            and now - self.silent_since(max(started, e.last_answer)) > bound
        ]

    def flights_at(self, url: str) -> list[Flight]:
        return [flight for flight in self.flights if flight.url == url]

    def check(self) -> None:
        """Raises AssertionError when counts and collections disagree."""
        for url, endpoint in self.endpoints.items():
            endpoint.check()
            assert endpoint.in_flight == len(self.flights_at(url)), endpoint
        for flight in self.flights:
            assert flight in flight.ticket.flights

    # inside

    def takes_elsewhere(self, url: str) -> bool:
        """Whether any other server than this takes requests."""
        return any(e.url != url and e.state in TAKES for e in self.endpoints.values())

    def _best(self, now: float, ticket: Ticket) -> Endpoint | None:
        best: Endpoint | None = None
        best_load = (True, 0.0)
        never = ticket.refused_by
        if never is not None and not self.takes_elsewhere(never):
            never = None
        for endpoint in self.endpoints.values():
            if endpoint.room(now) <= 0 or endpoint.url == never:
                continue
            load = (endpoint.url == ticket.avoid, endpoint.outstanding_tokens / endpoint.limit)
            if best is None or load < best_load:
                best, best_load = endpoint, load
        return best

    def _send(self, ticket: Ticket, endpoint: Endpoint, now: float) -> Flight:
        flight = Flight(ticket, endpoint.url, now, ticket.expected_tokens)
        ticket.flights.append(flight)
        ticket.sent += 1
        ticket.tries += 1
        self.flights[flight] = None
        endpoint.sent(now, ticket.expected_tokens)
        return flight
