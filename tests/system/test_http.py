"""The HTTP client against real sockets that misbehave in every way a server can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.net import http
from headrace.net.http import HttpClient, HttpFailure, Response

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def ask(talk: Talk, *, api_key: str | None = None, get: bool = False) -> Response:
    """The client's answer from a server that reads a request and then does `talk`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    async def main() -> Response:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, HttpClient(api_key) as client:
            if get:
                return await client.get(f"http://127.0.0.1:{port}/v1/models", 0.2)
            return await client.post(f"http://127.0.0.1:{port}/v1/chat/completions", b'{"a":1}')

    return asyncio.run(main())


def says(answer: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return talk


def test_an_answer_is_complete() -> None:
    assert ask(says(GOOD)) == Response(200, b"{}", None, "application/json")


def test_what_is_sent() -> None:
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(7))
        writer.write(GOOD)

    ask(talk, api_key="k3y")
    request = heard[0].decode()
    assert request.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "Authorization: Bearer k3y\r\n" in request
    assert "Content-Type: application/json\r\n" in request
    assert request.endswith('{"a":1}')


def test_retry_after() -> None:
    answer = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    assert ask(says(answer)).retry_after_seconds == 7.0
    dated = b"HTTP/1.1 503 Busy\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\nContent-Length: 0\r\n\r\n"
    assert ask(says(dated)).retry_after_seconds is None


def test_redirects_are_handed_over_not_followed() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    assert ask(says(answer), api_key="k3y").status == 302


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "dropped"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "dropped"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", "dropped"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "bad_answer"),
    ],
)
def test_broken_answers_are_told_by_kind(answer: bytes, kind: str) -> None:
    with pytest.raises(HttpFailure) as failure:
        ask(says(answer))
    assert failure.value.kind == kind


def test_nothing_listens() -> None:
    async def main() -> None:
        async with HttpClient() as client:
            await client.post("http://127.0.0.1:1/x", b"{}")

    with pytest.raises(HttpFailure) as failure:
        asyncio.run(main())
    assert failure.value.kind == "refused"


def test_a_silent_server_times_a_look_out() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(HttpFailure) as failure:
        ask(talk, get=True)
    assert failure.value.kind == "timeout"


def test_an_endless_body_is_cut_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 1000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(1000):
            writer.write(b"64\r\n" + b"x" * 100 + b"\r\n")
            await writer.drain()

    with pytest.raises(HttpFailure) as failure:
        ask(talk)
    assert failure.value.kind == "bad_answer"
    assert "1000 bytes" in str(failure.value)


def test_a_declared_body_over_the_limit_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 1000)
    with pytest.raises(HttpFailure) as failure:
        ask(says(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"))
    assert failure.value.kind == "bad_answer"
