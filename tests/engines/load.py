"""A stated number of requests in flight at a real server, for as long as it is watched."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

from headrace.net.http import HttpClient, HttpFailure
from tests.engines.server import EngineServer

STANDS_LIMIT_SECONDS = 180.0  # a full batch takes 1 to 3 s on quiet cores, and much longer beside other work
# Between the first requests, as a job's ramp has it. Twelve connections in the same instant leave the HTTP
# threads of llama.cpp all taken and its /metrics unanswered until a request ends.
APART_SECONDS = 0.04
GOLDEN = 0.6180339887  # its multiples spread evenly over 0…1, however many are taken

Stands = Callable[[float, float], bool]
"""Whether the load stands, of the running and the queued requests as the server tells them."""


def filled(server: EngineServer) -> Stands:
    """As many run as may, and others wait."""
    return lambda running, queued: running >= server.cap and queued >= 1


def taken(in_flight: int) -> Stands:
    """The server has all that is in flight; a tenth may be on its way."""
    return lambda running, queued: running >= 1 and running + queued >= 0.9 * in_flight


@asynccontextmanager
async def load(
    http: HttpClient, server: EngineServer, in_flight: int, tokens: int, stands: Stands
) -> AsyncIterator[None]:
    """So many requests in flight, from when the server says that it has them.

    Answers have `tokens` / 2 to `tokens` tokens, so that they do not all end together. A request that ends
    is followed by the next at once, one that the server gives up on too.

    Raises:
        AssertionError: the load never stood, or most requests failed.
    """
    numbers = count()
    ended: Counter[str] = Counter()

    async def one(place: int) -> None:
        await asyncio.sleep(place * APART_SECONDS)
        while True:
            length = round(tokens * (1 - 0.5 * (next(numbers) * GOLDEN % 1)))
            body = {"model": server.model, "prompt": "once upon a time", "max_tokens": length}
            try:
                answer = await http.post(
                    f"{server.url}/v1/completions", json.dumps({**body, "ignore_eos": True}).encode()
                )
                ended[str(answer.status)] += 1
            except HttpFailure as failure:
                ended[failure.kind] += 1
                await asyncio.sleep(0.1)

    # what an earlier test left in flight ends some seconds after its client went away
    await _until(server, lambda running, queued: running + queued == 0, "it still has other work", ended)
    workers = [asyncio.create_task(one(place)) for place in range(in_flight)]
    try:
        await _until(server, stands, f"{in_flight} in flight do not stand", ended)
        yield
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    failed = sum(number for end, number in ended.items() if end != "200")
    assert failed <= ended["200"], f"most requests failed: {dict(ended)}"


async def _until(server: EngineServer, holds: Stands, else_what: str, ended: Counter[str]) -> None:
    began = time.monotonic()
    while True:
        # in a thread: the requests of the load go on meanwhile
        running, queued = await asyncio.to_thread(server.running_and_queued_now)
        if holds(running, queued):
            return
        assert time.monotonic() - began < STANDS_LIMIT_SECONDS, (
            f"after {STANDS_LIMIT_SECONDS:.0f} s {else_what}: {running:.0f} running and {queued:.0f} queued "
            f"by {server.kind}; requests ended {dict(ended)}"
        )
        await asyncio.sleep(0.25)
