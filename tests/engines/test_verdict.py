"""Real servers with a limit planted by flags alone: what `diagnose` says of them from the live endpoint."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.diagnose.document import Diagnosis
from headrace.diagnose.pipeline import diagnose
from headrace.diagnosing import context_of
from headrace.net.http import HttpClient
from headrace.observe.live import observe_server
from headrace.observe.observation import Observation
from headrace.words import Constraint
from tests.engines.server import EngineServer, Launch

SECONDS = 20.0
# What a live server shows within 20 s depends on its having a core of its own: beside another engine on two
# cores these went wrong, so they are run by hand until they bear that.
pytestmark = pytest.mark.skipif(
    not os.environ.get("HEADRACE_LIVE"), reason="needs a machine with nothing else on it: HEADRACE_LIVE=1"
)
_C = Constraint


@asynccontextmanager
async def load(http: HttpClient, server: EngineServer, in_flight: int, tokens: int) -> AsyncIterator[None]:
    """So many requests in flight, all the time; one that the server gives up on is asked again."""
    body = json.dumps(
        {"model": server.model, "prompt": "once upon a time", "max_tokens": tokens, "ignore_eos": True}
    ).encode()

    async def one() -> None:
        while True:
            await http.post(f"{server.url}/v1/completions", body)

    workers = [asyncio.ensure_future(one()) for _ in range(in_flight)]
    await asyncio.sleep(5.0)
    try:
        yield
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def verdict(server: EngineServer, in_flight: int, tokens: int = 400) -> Diagnosis:
    """What is said of the server with so many in flight, from twenty seconds of its live endpoints."""

    async def watch() -> Observation:
        async with HttpClient() as http, load(http, server, in_flight, tokens):
            return Observation((await observe_server(server.url, http, SECONDS),))

    seen = asyncio.run(watch())
    return diagnose(seen, context_of(seen))


def test_a_server_at_its_cap(engine: EngineServer) -> None:
    found = verdict(engine, engine.cap + 8)
    hybrid = "qwen3next" in engine.model
    assert found.binding.constraint is (_C.STATE_POOL if hybrid else _C.MAX_RUNNING_REQUESTS), found.binding


def test_one_in_flight(engine: EngineServer) -> None:
    found = verdict(engine, 1)
    assert found.binding.constraint is _C.CLIENT_CONCURRENCY, found.binding


@pytest.fixture
def tight(launch: Callable[[str], Launch], tmp_path: Path) -> Callable[[str, tuple[str, ...]], EngineServer]:
    """A server with flags added to those of its kind."""

    def start(name: str, flags: tuple[str, ...]) -> EngineServer:
        plain = launch(name)
        server = EngineServer(replace(plain, command=(*plain.command, *flags)), tmp_path)
        server.wait_ready()
        return server

    return start


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        pytest.param(
            "sglang-llama",
            ("--max-total-tokens", "2048", "--schedule-conservativeness", "0.1"),
            marks=pytest.mark.engine_sglang,
        ),
        pytest.param("vllm", ("--num-gpu-blocks-override", "64"), marks=pytest.mark.engine_vllm),
    ],
)
def test_a_tiny_pool(
    tight: Callable[[str, tuple[str, ...]], EngineServer], name: str, flags: tuple[str, ...]
) -> None:
    server = tight(name, flags)
    try:
        found = verdict(server, 24, tokens=600)
    finally:
        server.stop()
    assert found.binding.constraint in (_C.KV_POOL, _C.RETRACTION), found.binding
