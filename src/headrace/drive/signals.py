"""Load signals: the little that the driver wants to know of a server, whatever its engine.

Engines' own rooms read their metrics and hand over something of this form; this module knows no metric.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

# GETs a path of the server: the body of a 200 answer, or None for any other status.
Fetch = Callable[[str], Awaitable[bytes | None]]


class LoadSignal(Protocol):
    """What a server says of itself at one moment; None where it does not say.

    Attributes:
        engine: its name, and version as far as told; for people.
        cap: effective maximum of running requests, over all its ranks.
        running, queued: requests.
    """

    @property
    def engine(self) -> str | None: ...
    @property
    def cap(self) -> int | None: ...
    @property
    def running(self) -> int | None: ...
    @property
    def queued(self) -> int | None: ...


class LoadReader(Protocol):
    """Reads one server's load, cheaply: nothing that makes it generate."""

    async def read(self, fetch: Fetch) -> LoadSignal | None:
        """The server's load now; None when it tells nothing that can be read."""
        ...


class NoLoad:
    """The reader for servers whose load nobody can read."""

    async def read(self, fetch: Fetch) -> LoadSignal | None:
        return None
