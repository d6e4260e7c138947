"""One connection: carries one request after another, and hands each answer over in the moment it is complete.

No task and no queue stands between the socket and who asked: the next request can leave on this connection
before anything else is done with the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from headrace.net.http_answer import AnswerReader, CutShort, NotHttp, Response

# A connection that the server had closed already says so within a round trip of the next request; one that it
# closes later carried a request that it had read. One second is TCP's first time-out (RFC 6298, 2.1).
STALE_SECONDS = 1.0


class HttpFailure(Exception):
    """A request that got no complete answer. `kind` is `refused` (no connection), `dropped`, `timeout`,
    `bad_answer`, `open_files` (this process has none left: no server is at fault) or `stale` (the server had
    closed a connection that was used before, in the moment the request left: no server is at fault)."""

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        super().__init__(why)


OnDone = Callable[[Response | HttpFailure], None]


class Exchange:
    """One request on its way; `on_done` is called once with what came of it, unless it is cancelled."""

    __slots__ = ("connecting", "connection", "on_done", "url")

    def __init__(self, url: str, on_done: OnDone) -> None:
        self.url = url
        self.on_done = on_done
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Gives the request up: its connection is closed, which tells the server. Nothing is called."""
        if self.connecting is not None:
            self.connecting.cancel()
        if self.connection is not None:
            self.connection.abort()


class Connection(asyncio.Protocol):
    """One connection to a server.

    Args:
        on_free, on_lost: called when it can take a request again, and when it is closed.

    Attributes:
        free_since: loop seconds since which it carries nothing.
    """

    def __init__(self, on_free: Callable[[Connection], None], on_lost: Callable[[Connection], None]) -> None:
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._reader: AnswerReader | None = None
        self._answers = 0
        self._asked_at = 0.0
        self.free_since = 0.0

    def ask(self, exchange: Exchange, request: bytes, max_body_bytes: int) -> None:
        """Sends a request; it must be free."""
        self._asked_at = asyncio.get_running_loop().time()
        assert self._transport is not None
        assert self._exchange is None
        exchange.connection = self
        self._exchange = exchange
        self._reader = AnswerReader(max_body_bytes)
        self._transport.write(request)

    def is_open(self) -> bool:
        """Whether a request can be sent on it, as far as this side knows."""
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        """Closes it at once; what it carries is dropped without a word."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        if self._exchange is None or self._reader is None:
            self.abort()  # bytes that nobody asked for
            return
        try:
            response = self._reader.feed(data)
        except NotHttp as error:
            self._fail("bad_answer", f"{self._exchange.url} did not answer in HTTP as agreed: {error}")
            return
        if response is not None:
            self._answered(response)

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost(self)
        if self._exchange is None or self._reader is None:
            return
        url = self._exchange.url
        try:
            response = self._reader.end()
        except NotHttp as wrong:
            self._fail("bad_answer", f"{url} did not answer in HTTP as agreed: {wrong}")
        except CutShort:
            when = "within its answer" if self._reader.began else "before it answered"
            kind = "stale" if self._was_stale() else "dropped"
            self._fail(kind, f"{url} dropped the connection {when}" + (f": {error}" if error else ""))
        else:
            self._answered(response)

    # inside

    def _was_stale(self) -> bool:
        """Whether the connection was closed before the server can have read the request on it."""
        assert self._reader is not None
        waited = asyncio.get_running_loop().time() - self._asked_at
        return self._answers > 0 and not self._reader.began and waited <= STALE_SECONDS

    def _answered(self, response: Response) -> None:
        exchange, reader, transport = self._exchange, self._reader, self._transport
        assert exchange is not None
        assert reader is not None
        assert transport is not None
        self._exchange = self._reader = exchange.connection = None
        self._answers += 1
        # an answer that came before all was sent (413, say) leaves half a request in the connection
        if reader.reusable and not transport.is_closing() and not transport.get_write_buffer_size():
            self._on_free(self)
        else:
            transport.abort()
        exchange.on_done(response)

    def _fail(self, kind: str, why: str) -> None:
        exchange = self._exchange
        assert exchange is not None
        exchange.connection = None
        self.abort()
        exchange.on_done(HttpFailure(kind, why))
