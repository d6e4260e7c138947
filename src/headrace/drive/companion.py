"""Whoever runs beside a job, in its loop: is told what was answered, and may ask how things stand.

The driver knows nothing of what it does. A companion never holds the job up, and its end is not the job's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.drive.dispatch.endpoint import EndpointState
from headrace.net.http import HttpClient

if TYPE_CHECKING:
    from headrace.drive.driver import Driver


@dataclass(frozen=True, slots=True)
class AnsweredRow:
    """One row that was answered.

    Attributes:
        source: name of its source.
        server: URL.
        started: monotonic seconds at which it was sent; `seconds` later its answer was there.
        output_tokens: 0 where the server did not tell.
        truncated: it was cut at max_tokens.
    """

    source: str
    server: str
    started: float
    seconds: float
    output_tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """How a job stands.

    Attributes:
        now: monotonic seconds.
        servers: URLs that may be asked for their metrics.
        flights: (source, server, monotonic seconds at which it was sent) of each request in flight.
        in_flight_limit: requests in flight at most.
        pending: rows not answered yet.
    """

    now: float
    servers: tuple[str, ...]
    flights: tuple[tuple[str, str, float], ...]
    in_flight_limit: int
    pending: int


class Companion(Protocol):
    """What runs beside a job."""

    def answered(self, row: AnsweredRow) -> None:
        """A row was answered; called in the event loop, must return at once and raise nothing."""
        ...

    async def run(self, http: HttpClient, moment: Callable[[], Moment]) -> None:
        """Runs until it is cancelled, then puts its things in order within a second or so."""
        ...


async def accompany(driver: Driver, companion: Companion | None) -> None:
    """Runs the companion. What goes wrong there is told in the job's notes, and never ends the job."""
    if companion is None:
        return
    try:
        await companion.run(driver.http, lambda: moment_of(driver))
    except Exception as error:  # noqa: BLE001 - whatever it is: days of answers do not hang on it
        driver.notes.append(f"what runs beside the job stopped: {type(error).__name__}: {error}")


def moment_of(driver: Driver) -> Moment:
    """How a driver's job stands."""
    names = [source.name for source in driver.job.sources]
    return Moment(
        now=driver.clock.monotonic(),
        servers=tuple(
            url
            for url, endpoint in driver.dispatcher.endpoints.items()
            if endpoint.state not in (EndpointState.REFUSING, EndpointState.REMOVED)
        ),
        flights=tuple(
            (names[flight.ticket.prompt.source], flight.url, flight.started)
            for flight in driver.dispatcher.flights
        ),
        in_flight_limit=driver.dispatcher.limit(),
        pending=driver.index.pending_count(),
    )
