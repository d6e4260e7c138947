"""Emulated servers under load, watched through their endpoints: what is seen is what they do."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from headrace.errors import UnreachableError
from headrace.net.http import HttpClient
from headrace.observe.live import observe_server
from headrace.observe.observation import ServerObservation
from headrace.observe.target import Options, read_targets
from headrace.simulate.emulate.fleet import EmulatedFleet, ThreadedFleet
from headrace.simulate.emulate.options import EmulatorOptions

CAP = 8


@asynccontextmanager
async def load(http: HttpClient, url: str, in_flight: int) -> AsyncIterator[None]:
    """So many requests in flight at a server, all the time."""
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 400}
    ).encode()

    async def one() -> None:
        while True:
            await http.post(f"{url}/v1/chat/completions", body)

    workers = [asyncio.ensure_future(one()) for _ in range(in_flight)]
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def watch_under(in_flight: int, seconds: float = 2.0) -> tuple[ServerObservation, float]:
    """What was seen, and the tokens that the server says to have made per second."""
    options = EmulatorOptions(replicas=1, cap=CAP, speed=20, mean_output_tokens=200)
    async with EmulatedFleet(options) as fleet, HttpClient() as http:
        url = fleet.urls[0]
        async with load(http, url, in_flight):
            seen = await observe_server(url, http, seconds)
        answer = await http.get(f"{url}/v1/loads", 5)
        assert answer.status == 200
    rate = seen.columns["output_tokens_per_s"]
    return seen, float(rate[1:].mean())


@pytest.mark.parametrize(("in_flight", "running", "waits"), [(3, 3, False), (3 * CAP, CAP, True)])
def test_an_emulated_server_under_load(in_flight: int, running: int, waits: bool) -> None:
    seen, rate = asyncio.run(watch_under(in_flight))
    assert (seen.engine, seen.engine_version) == ("sglang", "0.5.12")
    assert seen.value("cap") == CAP
    assert seen.value("running") == pytest.approx(running, abs=1)
    assert ((seen.value("queued") or 0) > CAP) == waits
    assert seen.value("output_tokens_per_s") == pytest.approx(rate, rel=0.25)
    assert (seen.value("requests_per_s") or 0) > 0
    assert (seen.value("mean_output_tokens") or 0) > 10
    assert seen.window is not None
    assert seen.window.samples >= 4


def test_several_servers_are_watched_at_the_same_time() -> None:
    with ThreadedFleet(EmulatorOptions(replicas=3, cap=CAP)) as fleet:
        fleet.stop_replica(1)
        seen = read_targets(fleet.urls, Options(seconds=0))
        assert [server.name for server in seen.servers] == fleet.urls
        assert [server.value("running") for server in seen.servers] == [0, None, 0]
        (event,) = seen.servers[1].events
        assert (event.id, event.severity) == ("unreachable", "failure")
        assert "does not answer" in event.text


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnreachableError, match="does not answer"):
            read_targets([url], Options(seconds=0))


def test_a_server_that_wants_a_key() -> None:
    secret = "sk-in-the-url-000000000000"

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=401, text="no")

    async def run() -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", refuse)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            async with HttpClient() as http:
                with pytest.raises(UnreachableError, match="wants a key") as caught:
                    await observe_server(f"http://user:{secret}@127.0.0.1:{port}", http, 0)
        finally:
            await runner.cleanup()
        return str(caught.value)

    assert secret not in asyncio.run(run())
