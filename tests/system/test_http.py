"""The HTTP client against real sockets that misbehave in every way a server can."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import uvloop

from headrace.net import http, http_connection
from headrace.net.http import HttpClient, HttpFailure, Response

T = TypeVar("T")

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def with_server(
    talk: Talk,
    scenario: Callable[[HttpClient, str], Awaitable[T]],
    *,
    api_key: str | None = None,
    tls: ssl.SSLContext | None = None,
    loop: str = "uvloop",
    host: str = "127.0.0.1",
) -> T:
    """What `scenario` makes of a client and the URL of a server that does `talk` with each connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            writer.close()

    async def main() -> T:
        server = await asyncio.start_server(serve, host, 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        scheme, name = ("https", "localhost") if tls else ("http", "127.0.0.1")
        async with server, HttpClient(api_key) as client:
            return await scenario(client, f"{scheme}://{name}:{port}")

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main())


def ask(talk: Talk, *, api_key: str | None = None, get: bool = False, loop: str = "uvloop") -> Response:
    """The client's answer from a server that reads a request and then does `talk`."""

    async def scenario(client: HttpClient, url: str) -> Response:
        if get:
            return await client.get(f"{url}/v1/models", 0.2)
        return await client.post(f"{url}/v1/chat/completions", b'{"a":1}')

    return with_server(talk, scenario, api_key=api_key, loop=loop)


def says(answer: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return talk


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_is_complete(loop: str) -> None:
    assert ask(says(GOOD), loop=loop) == Response(200, b"{}", None, "application/json")


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


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "dropped"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "dropped"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal", "dropped"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "bad_answer"),
    ],
)
def test_broken_answers_are_told_by_kind(answer: bytes, kind: str, loop: str) -> None:
    with pytest.raises(HttpFailure) as failure:
        ask(says(answer), loop=loop)
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


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every POST of one connection with the number of that request in it."""
    number = 0
    while True:
        await read_post(reader)
        number += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)


async def read_post(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def test_a_connection_carries_one_request_after_another() -> None:
    async def scenario(client: HttpClient, url: str) -> list[bytes]:
        return [(await client.post(url, b"{}")).body for _ in range(3)]

    assert with_server(answer_all, scenario) == [b"1", b"2", b"3"]


def test_a_connection_that_lay_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE_SECONDS", 0.0)

    async def scenario(client: HttpClient, url: str) -> list[bytes]:
        first = await client.post(url, b"{}")
        await asyncio.sleep(0.01)
        return [first.body, (await client.post(url, b"{}")).body]

    assert with_server(answer_all, scenario) == [b"1", b"1"]


def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    async def scenario(client: HttpClient, url: str) -> list[bytes]:
        bodies = []
        for _ in range(3):
            bodies.append((await client.post(url, b"{}")).body)
            await asyncio.sleep(0.02)  # the end of the connection comes after the answer
        return bodies

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_post(reader)
        writer.write(GOOD)
        await writer.drain()

    assert with_server(answer_once, scenario) == [b"{}"] * 3


def test_the_next_request_leaves_from_within_the_answer_on_the_same_connection() -> None:
    async def scenario(client: HttpClient, url: str) -> list[bytes]:
        bodies: list[bytes] = []
        over = asyncio.Event()

        def on_done(answer: Response | HttpFailure) -> None:
            assert isinstance(answer, Response)
            bodies.append(answer.body)
            if len(bodies) == 5:
                over.set()
            else:
                client.send(url, b"{}", on_done)

        client.send(url, b"{}", on_done)
        await over.wait()
        return bodies

    assert with_server(answer_all, scenario) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_cancelled_request_closes_its_connection_and_is_not_heard_of_again() -> None:
    ended = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_post(reader)
        assert await reader.read() == b""
        ended.set()

    async def scenario(client: HttpClient, url: str) -> list[object]:
        heard: list[object] = []
        for wait_seconds in (0.0, 0.05):  # while it connects, and while it is answered
            exchange = client.send(url, b"{}", heard.append)
            await asyncio.sleep(wait_seconds)
            exchange.cancel()
        await asyncio.wait_for(ended.wait(), 5)
        return heard

    assert with_server(hang, scenario) == []


def test_an_answer_before_the_whole_request_was_sent_ends_the_connection() -> None:
    connections = 0

    async def too_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.2)

    async def scenario(client: HttpClient, url: str) -> list[int]:
        return [(await client.post(url, b"x" * 30_000_000)).status for _ in range(2)]

    assert with_server(too_large, scenario) == [413, 413]
    assert connections == 2


def test_many_requests_at_once_have_a_connection_each() -> None:
    connections = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answer_all(reader, writer)

    async def scenario(client: HttpClient, url: str) -> int:
        for _ in range(2):
            answers = await asyncio.gather(*(client.post(url, b"{}") for _ in range(300)))
            assert all(answer.status == 200 for answer in answers)
        return connections

    assert with_server(count, scenario) == 300


def test_user_and_password_in_a_url_are_sent_as_such_and_a_key_goes_before_them() -> None:
    heard: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(GOOD)

    async def scenario(client: HttpClient, url: str) -> int:
        return (await client.get(url.replace("//", "//me:p%40ss@") + "/a b?c=d&e=\N{SNOWMAN}", 5)).status

    for key in (None, "k3y"):
        assert with_server(talk, scenario, api_key=key) == 200
    assert heard[0].startswith("GET /a%20b?c=d&e=%E2%98%83 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "Authorization: Basic bWU6cEBzcw==\r\n" in heard[0]  # `printf me:p@ss | base64`
    assert "Authorization: Bearer k3y\r\n" in heard[1]
    assert "Basic" not in heard[1]


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "http:///x", "127.0.0.1:80"])
def test_what_no_request_can_be_sent_to(url: str) -> None:
    async def main() -> None:
        async with HttpClient() as client:
            await client.post(url, b"{}")

    with pytest.raises(ValueError, match="is no http"):
        asyncio.run(main())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that signed itself, its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on this machine: nothing was tested over TLS")
    file = tmp_path / "localhost.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
    )
    command += f"-addext subjectAltName=DNS:localhost -keyout {file}.key -out {file}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return file


@pytest.mark.parametrize("loop", LOOPS)
def test_over_tls(certificate: Path, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, f"{certificate}.key")

    async def scenario(client: HttpClient, url: str) -> list[bytes]:
        return [(await client.post(f"{url}/x", b"{}")).body for _ in range(2)]

    with pytest.raises(HttpFailure, match=r"(?i)certificate") as failure:
        with_server(answer_all, scenario, tls=server, loop=loop)
    assert failure.value.kind == "refused"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert with_server(answer_all, scenario, tls=server, loop=loop) == [b"1", b"2"]


async def answer_once_silently(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request of a connection and closes it without having said so."""
    await read_post(reader)
    writer.write(GOOD)
    await writer.drain()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_that_met_a_closed_connection_is_told_apart_and_goes_on_a_new_one(loop: str) -> None:
    """RFC 9112, 9.3.1: a server may close a connection while the next request is on its way."""

    async def scenario(client: HttpClient, url: str) -> list[str]:
        came: list[str] = []
        over = asyncio.Event()

        def on_done(answer: Response | HttpFailure) -> None:
            came.append(answer.kind if isinstance(answer, HttpFailure) else str(answer.status))
            if len(came) == 5:
                over.set()
            else:
                client.send(url, b"{}", on_done, fresh=came[-1] == "stale")

        client.send(url, b"{}", on_done)
        await over.wait()
        return came

    assert with_server(answer_once_silently, scenario, loop=loop) == ["200", "stale", "200", "stale", "200"]


def test_who_awaits_an_answer_hears_nothing_of_closed_connections() -> None:
    async def scenario(client: HttpClient, url: str) -> list[int]:
        return [(await client.post(url, b"{}")).status for _ in range(3)]

    assert with_server(answer_once_silently, scenario) == [200] * 3


def test_a_request_that_the_server_had_read_is_dropped_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "STALE_SECONDS", 0.05)

    async def dies_at_the_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_post(reader)
        writer.write(GOOD)
        await read_post(reader)
        await asyncio.sleep(0.1)

    async def scenario(client: HttpClient, url: str) -> str:
        await client.post(url, b"{}")
        with pytest.raises(HttpFailure) as failure:
            await client.post(url, b"{}")
        return failure.value.kind

    assert with_server(dies_at_the_second, scenario) == "dropped"


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_that_carry_nothing_are_closed_when_files_run_out(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was busy keeps its idle connections; another must not starve for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filling: list[int] = []

    async def scenario(client: HttpClient, url: str) -> list[str]:
        await asyncio.gather(*(client.post(url, b"{}") for _ in range(40)))
        other = url.replace("127.0.0.1", "127.0.0.2")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 1, hard))
        with contextlib.suppress(OSError):
            while True:
                filling.append(os.open(os.devnull, os.O_RDONLY))
        came = []
        for _ in range(2):
            try:
                came.append(str((await client.post(other, b"{}")).status))
            except HttpFailure as failure:
                came.append(failure.kind)
            await asyncio.sleep(0.05)
        return came

    try:
        assert with_server(answer_all, scenario, loop=loop, host="0.0.0.0") == ["open_files", "200"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in filling:
            os.close(file)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("host", ["x" * 64 + ".example", "no-such-host.invalid", "a..b"])
def test_a_host_without_an_address_refuses(host: str, loop: str) -> None:
    async def main() -> None:
        async with HttpClient() as client:
            await client.post(f"http://{host}:1/x", b"{}")

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner, pytest.raises(HttpFailure) as failure:
        runner.run(main())
    assert failure.value.kind == "refused"


def test_a_host_that_does_not_answer_the_call_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request was sent, so no row was tried: its listen queue is full, and a third caller waits."""
    monkeypatch.setattr(http, "CONNECT_SECONDS", 0.2)

    async def main(url: str) -> None:
        async with HttpClient() as client:
            await client.post(url, b"{}")

    with socket.socket() as listener, contextlib.ExitStack() as callers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(2):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        with pytest.raises(HttpFailure, match="no connection to") as failure:
            asyncio.run(main(f"http://127.0.0.1:{listener.getsockname()[1]}/x"))
    assert failure.value.kind == "refused"
