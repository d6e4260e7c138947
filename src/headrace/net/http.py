"""The HTTP client: thousands of long requests at little CPU, every failure told by kind.

Redirects are never followed (a key must not travel to another host); bodies are read up to a limit.
aiohttp's defaults of 100 connections and 5 minutes are lifted: the dispatcher limits, not the pool.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from headrace import __version__
from headrace.net.redact import remember

MAX_BODY_BYTES = 64 * 1024 * 1024  # an answer of 32 k tokens with log-probabilities is about 20 MB
KEEP_ALIVE_SECONDS = (
    4.0  # below uvicorn's 5 s, which SGLang and vLLM use: else a request meets a closing connection
)
CONNECT_SECONDS = 10.0  # loopback and cluster networks answer in milliseconds; a SYN lost thrice needs 7 s


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP answer. `body` is decoded from any transfer or content encoding."""

    status: int
    body: bytes
    retry_after_seconds: float | None
    content_type: str


class HttpFailure(Exception):
    """A request that got no complete answer. `kind` is `refused`, `dropped`, `timeout`, `bad_answer`
    or `open_files` (this process has none left: no server is at fault)."""

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        super().__init__(why)


class HttpClient:
    """One pool of connections for all servers.

    Args:
        api_key: sent as a bearer token with every request; None sends none.
    """

    def __init__(self, api_key: str | None = None) -> None:
        headers = {"User-Agent": f"headrace/{__version__}", "Accept": "application/json"}
        if api_key:
            remember(api_key)
            headers["Authorization"] = f"Bearer {api_key}"
        self._headers = headers
        self._post_headers = {**headers, "Content-Type": "application/json"}
        self._urls: dict[str, URL] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
            read_bufsize=2**18,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    def _url(self, url: str) -> URL:
        known = self._urls.get(url)
        if known is None:
            known = self._urls[url] = URL(url)
        return known

    async def post(self, url: str, body: bytes) -> Response:
        """The complete answer to a POST of JSON.

        Raises:
            HttpFailure: no complete answer came; `kind` says how.
        """
        return await self._ask("POST", url, self._post_headers, body)

    async def get(self, url: str, timeout_seconds: float) -> Response:
        """The complete answer to a GET within `timeout_seconds`. Raises HttpFailure as `post` does."""
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._ask("GET", url, self._headers, None)
        except TimeoutError:
            raise HttpFailure("timeout", f"no answer to GET {url} within {timeout_seconds:g} s") from None

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        assert self._session is not None, "use `async with HttpClient()`"
        try:
            async with self._session.request(
                method, self._url(url), data=body, headers=headers, allow_redirects=False
            ) as answer:
                declared = answer.content_length
                plain = (
                    "Content-Encoding" not in answer.headers
                )  # else a small body may unfold into a large one
                if plain and declared is not None and declared <= MAX_BODY_BYTES:
                    content = await answer.read()
                else:
                    content = await _read_limited(answer, declared)
                retry_after = None if answer.status < 400 else _seconds(answer.headers.get("Retry-After"))
                return Response(answer.status, content, retry_after, answer.content_type)
        except (aiohttp.ServerTimeoutError, TimeoutError) as error:
            raise HttpFailure("timeout", f"no connection to {url} within {CONNECT_SECONDS:g} s") from error
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno in (errno.EMFILE, errno.ENFILE):
                raise HttpFailure(
                    "open_files", f"this process may open no more files: {error.os_error}"
                ) from error
            raise HttpFailure(
                "refused", f"cannot connect to {url}: {error.os_error.strerror or error}"
            ) from error
        except aiohttp.ContentTypeError as error:
            raise HttpFailure("bad_answer", f"{url} answered what is not HTTP as agreed: {error}") from error
        except (aiohttp.ClientPayloadError, aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise HttpFailure(
                "dropped", f"{url} dropped the connection: {error or type(error).__name__}"
            ) from error
        except aiohttp.ClientError as error:
            raise HttpFailure(
                "bad_answer", f"{url} did not answer in HTTP: {error or type(error).__name__}"
            ) from error


async def _read_limited(answer: aiohttp.ClientResponse, declared: int | None) -> bytes:
    """The body of a response without (or with too large) a declared length, read up to the limit."""
    parts: list[bytes] = []
    size = declared or 0
    if size <= MAX_BODY_BYTES:
        size = 0
        async for part in answer.content.iter_any():
            size += len(part)
            if size > MAX_BODY_BYTES:
                break
            parts.append(part)
    if size > MAX_BODY_BYTES:
        answer.close()
        raise HttpFailure("bad_answer", f"the answer is larger than the limit of {MAX_BODY_BYTES} bytes")
    return b"".join(parts)


def _seconds(retry_after: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, at most 10 minutes; None for dates and nonsense."""
    if retry_after is None:
        return None
    try:
        return min(max(float(retry_after), 0.0), 600.0)
    except ValueError:
        return None
