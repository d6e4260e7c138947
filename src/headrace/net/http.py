"""The HTTP client: thousands of long requests at little CPU, every failure told by kind.

Redirects are never followed (a key must not travel to another host), no cookies are kept, bodies are read
up to a limit, and no number of connections is set: the dispatcher limits, not the pool. It is our own
because the next request must be able to leave before the answer is looked at, and because a request costs
a seventh of its CPU time in aiohttp (docs/decisions/0003).
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from headrace import __version__
from headrace.net.http_answer import Response
from headrace.net.http_connection import Connection, Exchange, HttpFailure, OnDone
from headrace.net.redact import remember

__all__ = ["Exchange", "HttpClient", "HttpFailure", "Response"]

MAX_BODY_BYTES = 64 * 1024 * 1024  # an answer of 32 k tokens with log-probabilities is about 20 MB
KEEP_ALIVE_SECONDS = (
    4.0  # below uvicorn's 5 s, which SGLang and vLLM use: else a request meets a closing connection
)
CONNECT_SECONDS = 10.0  # loopback and cluster networks answer in milliseconds; a SYN lost thrice needs 7 s
_PORTS = {"http": 80, "https": 443}
_SAFE = "/%:@!$&'()*+,;=~?"  # what stands for itself in a path or query (RFC 3986)


@dataclass(slots=True)
class _Origin:
    """A server as the client knows it: where it listens, and the connections to it that carry nothing now."""

    host: str
    port: int
    tls: bool
    free: list[Connection] = field(default_factory=list)  # the one freed last is the last


@dataclass(frozen=True, slots=True)
class _Target:
    """What is the same in all requests to one URL: the origin, and the head up to the body's length."""

    origin: _Origin
    head: bytes


class HttpClient:
    """One pool of connections for all servers.

    Args:
        api_key: sent as a bearer token with every request; None sends none.
    """

    def __init__(self, api_key: str | None = None) -> None:
        if api_key:
            remember(api_key)
        self._authorization = f"Bearer {api_key}" if api_key else None
        self._origins: dict[tuple[str, str, int], _Origin] = {}
        self._targets: dict[tuple[str, str], _Target] = {}
        self._open: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self._tls: ssl.SSLContext | None = None
        self._connecting: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._connecting = await asyncio.TaskGroup().__aenter__()
        self._exchanges_connecting: set[Exchange] = set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connecting is not None
        for exchange in list(self._exchanges_connecting):
            exchange.cancel()
        await self._connecting.__aexit__(None, None, None)
        for connection in self._open:
            connection.abort()
        self._all_closed.clear()
        if self._open:
            await self._all_closed.wait()

    def send(self, url: str, body: bytes, on_done: OnDone, *, fresh: bool = False) -> Exchange:
        """Sends a POST of JSON; `on_done` is told the answer, or the HttpFailure that stands for it.

        On a free connection the request leaves before this returns; `fresh` asks for one that carried nothing
        yet, as after a failure of kind `stale`. `on_done` is called from the event
        loop, never from within this call, and may send the next request: it goes out on the same connection.
        """
        return self._send("POST", url, body, on_done, fresh)

    async def post(self, url: str, body: bytes) -> Response:
        """The complete answer to a POST of JSON.

        Raises:
            HttpFailure: no complete answer came; `kind` says how.
        """
        return await self._ask("POST", url, body)

    async def get(self, url: str, timeout_seconds: float) -> Response:
        """The complete answer to a GET within `timeout_seconds`. Raises HttpFailure as `post` does."""
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._ask("GET", url, b"")
        except TimeoutError:
            raise HttpFailure("timeout", f"no answer to GET {url} within {timeout_seconds:g} s") from None

    async def _ask(self, method: str, url: str, body: bytes, *, fresh: bool = False) -> Response:
        done: asyncio.Future[Response | HttpFailure] = asyncio.get_running_loop().create_future()
        exchange = self._send(
            method, url, body, lambda answer: None if done.done() else done.set_result(answer), fresh
        )
        try:
            answer = await done
        except BaseException:
            exchange.cancel()
            raise
        if isinstance(answer, HttpFailure):
            if answer.kind == "stale":
                return await self._ask(method, url, body, fresh=True)
            raise answer
        return answer

    def _send(self, method: str, url: str, body: bytes, on_done: OnDone, fresh: bool) -> Exchange:
        assert self._connecting is not None, "use `async with HttpClient()`"
        target = self._targets.get((method, url)) or self._new_target(method, url)
        length = b"" if method == "GET" else b"Content-Length: %d\r\n" % len(body)
        request = b"%b%b\r\n%b" % (target.head, length, body)
        exchange = Exchange(url, on_done)
        connection = None if fresh else self._free_connection(target.origin)
        if connection is not None:
            connection.ask(exchange, request, MAX_BODY_BYTES)
        else:
            self._exchanges_connecting.add(exchange)
            exchange.connecting = self._connecting.create_task(
                self._connect(target.origin, exchange, request)
            )
        return exchange

    def _free_connection(self, origin: _Origin) -> Connection | None:
        now = self._loop.time()
        while origin.free:
            connection = origin.free.pop()
            if connection.is_open() and now - connection.free_since <= KEEP_ALIVE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: _Origin, exchange: Exchange, request: bytes) -> None:
        """Opens a connection and sends the request on it; what goes wrong is told to the exchange."""
        connection = Connection(
            on_free=lambda free: self._freed(origin, free), on_lost=lambda lost: self._lost(origin, lost)
        )
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._loop.create_connection(
                    lambda: connection,
                    origin.host,
                    origin.port,
                    ssl=self._tls_context() if origin.tls else None,
                    server_hostname=origin.host if origin.tls else None,
                )
        except (OSError, UnicodeError) as error:  # TimeoutError is one; a host that is no name is the other
            failure = _not_connected(exchange.url, error)
            if failure.kind == "open_files":
                self._close_free()
            exchange.on_done(failure)
        except asyncio.CancelledError:
            connection.abort()  # it may have been opened in the same moment
            raise
        else:
            self._open.add(connection)
            if connection.is_open():
                connection.ask(exchange, request, MAX_BODY_BYTES)
            else:
                self._open.discard(connection)
                why = f"{exchange.url} closed the connection as soon as it was open"
                exchange.on_done(HttpFailure("dropped", why))
        finally:
            exchange.connecting = None
            self._exchanges_connecting.discard(exchange)

    def _close_free(self) -> None:
        """Closes the connections that carry nothing: their files are needed."""
        for origin in self._origins.values():
            for connection in origin.free:
                connection.abort()
            origin.free.clear()

    def _freed(self, origin: _Origin, connection: Connection) -> None:
        connection.free_since = self._loop.time()
        origin.free.append(connection)

    def _lost(self, origin: _Origin, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in origin.free:
            origin.free.remove(connection)
        if not self._open:
            self._all_closed.set()

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _new_target(self, method: str, url: str) -> _Target:
        """The target of a URL, remembered. Raises ValueError for one that no request can be sent to."""
        parts = urlsplit(url)
        host, tls = parts.hostname, parts.scheme == "https"
        if parts.scheme not in _PORTS or not host:
            raise ValueError(f"{url!r} is no http:// or https:// URL")
        host = host if host.isascii() else host.encode("idna").decode()
        port = parts.port or _PORTS[parts.scheme]
        place = f"[{host}]" if ":" in host else host
        path = quote(parts.path or "/", safe=_SAFE)
        query = f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
        authorization = self._authorization
        if authorization is None and parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {b64encode(pair.encode()).decode()}"
        lines = [
            f"{method} {path}{query} HTTP/1.1",
            f"Host: {place}" if port == _PORTS[parts.scheme] else f"Host: {place}:{port}",
            f"User-Agent: headrace/{__version__}",
            "Accept: application/json",
            *([f"Authorization: {authorization}"] if authorization else []),
            *(["Content-Type: application/json"] if method == "POST" else []),
        ]
        if any(not line.isprintable() for line in lines):
            raise ValueError(f"the request to {url!r} would have a line break in its head")
        head = ("\r\n".join(lines) + "\r\n").encode("latin-1")
        origin = self._origins.setdefault((parts.scheme, host, port), _Origin(host, port, tls))
        target = self._targets[method, url] = _Target(origin, head)
        return target


def _not_connected(url: str, error: OSError | UnicodeError) -> HttpFailure:
    if isinstance(error, UnicodeError):
        return HttpFailure("refused", f"cannot connect to {url}: its host is no name: {error}")
    if isinstance(error, TimeoutError) and error.errno is None:
        return HttpFailure("refused", f"no connection to {url} within {CONNECT_SECONDS:g} s")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return HttpFailure("open_files", f"this process may open no more files: {error}")
    return HttpFailure("refused", f"cannot connect to {url}: {error.strerror or error}")
