"""What is seen live of a real server under a stated load."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from headrace.net.http import HttpClient
from headrace.observe.live import observe_server
from headrace.observe.observation import ServerObservation
from tests.engines.load import Stands, filled, load
from tests.engines.server import OUTPUT_TOKENS_TOTAL, EngineServer

SECONDS = 20.0  # of the window: a third of the minute in which the answer is wanted
BEYOND_CAP = 8  # requests in flight beyond the cap


@dataclass(frozen=True)
class Watched:
    """What was seen, and beside it the growth of the server's own counter of output tokens.

    Attributes:
        tokens: of the longest answers.
        counted_per_s: output tokens per second by that counter, over `seconds`.
        log: what the server said while it started, and while it was watched: not of other tests' load.
    """

    seen: ServerObservation
    tokens: int
    counted_per_s: float
    seconds: float
    log: bytes


def watch_full(server: EngineServer) -> Watched:
    """The server with more in flight than its cap."""
    # llama.cpp makes 20 tokens a second: answers as long as the others' would not end in the window
    tokens = 400 if server.kind != "llamacpp" else 60
    return watch(server, server.cap + BEYOND_CAP, tokens, filled(server))


def watch(server: EngineServer, in_flight: int, tokens: int, stands: Stands) -> Watched:
    """Twenty seconds of the server's live endpoints, once the load stands."""

    async def look() -> Watched:
        async with HttpClient() as http, load(http, server, in_flight, tokens, stands):
            log_from = server.log.stat().st_size
            before, began = await asyncio.to_thread(counted, server), time.monotonic()
            seen = await observe_server(server.url, http, SECONDS)
            after, ended = await asyncio.to_thread(counted, server), time.monotonic()
            log_to = server.log.stat().st_size
        log = server.log.read_bytes()
        return Watched(
            seen,
            tokens,
            (after - before) / (ended - began),
            ended - began,
            log[: server.boot_bytes] + log[log_from:log_to],
        )

    return asyncio.run(look())


def counted(server: EngineServer) -> float:
    """Output tokens since the server started, by its own counter."""
    return server.metric(OUTPUT_TOKENS_TOTAL[server.kind])
