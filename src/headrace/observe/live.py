"""Looks at a running server for some seconds through its cheap endpoints, and says what it saw.

Nothing is asked that costs the server a token: no /health (SGLang's sends a request), no generation. One
scrape of /metrics and one of /v1/loads per look, at most every 2 seconds by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from headrace.clock import Clock, SystemClock
from headrace.engines.load import Fetch
from headrace.errors import UnreachableError
from headrace.net.http import HttpClient, HttpFailure
from headrace.net.redact import redact, without_user
from headrace.observe.live_engines import Reader, find_engine
from headrace.observe.observation import ServerObservation
from headrace.observe.readings import READINGS, drop_low_cap
from headrace.observe.track import Track
from headrace.quantities import Origin, Quantity

LOOKS = 30  # looks in the window
SHORTEST_SECONDS, LONGEST_SECONDS = 0.25, 5.0  # between two looks
ANSWER_SECONDS = 10.0
MAX_BODY_BYTES = 32 * 1024 * 1024

Sleep = Callable[[float], Awaitable[None]]


async def observe_server(
    url: str,
    http: HttpClient,
    seconds: float,
    *,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
) -> ServerObservation:
    """What a server says of itself over `seconds`; 0 is one look.

    Raises:
        UnreachableError: it does not answer at all, or refuses the key.
    """
    base = url.rstrip("/")
    shown = redact(without_user(base))
    trouble: list[str] = []
    refused: list[int] = []

    async def fetch(path: str) -> bytes | None:
        try:
            answer = await http.get(base + path, ANSWER_SECONDS)
        except HttpFailure as failure:
            trouble.append(redact(without_user(str(failure))))
            return None
        if answer.status in (401, 403):
            refused.append(answer.status)
        if answer.status != 200 or len(answer.body) > MAX_BODY_BYTES:
            trouble.append("")
            return None
        trouble.append("")
        return answer.body

    found = await observe_through(fetch, shown, seconds, clock=clock or SystemClock(), sleep=sleep)
    if found.engine is None:
        silent = [why for why in trouble if why]
        if silent and len(silent) == len(trouble):
            raise UnreachableError(
                f"{shown} does not answer: {silent[0]}. Is the server up, and the port right?"
            )
        if refused:
            raise UnreachableError(
                f"{shown} answers {refused[0]}: it wants a key. Name it with --api-key-env or --api-key-file."
            )
    return found


async def observe_through(
    fetch: Fetch, name: str, seconds: float, *, clock: Clock, sleep: Sleep
) -> ServerObservation:
    """As `observe_server`, of a server that `fetch` asks: a path in, the body of a 200 out, None else."""
    engine = await find_engine(fetch)
    if engine is None:
        return ServerObservation(
            name=name,
            notes=("no known engine's endpoints answer here (SGLang, vLLM, llama.cpp).",),
            missing=(
                "what engine this is, and all it does: paste its log, or give the engine's own URL "
                "(not a router's).",
            ),
        )
    track = Track()
    interval = min(max(seconds / LOOKS, SHORTEST_SECONDS), LONGEST_SECONDS)
    start = clock.monotonic()
    misses = 0
    while True:
        page = await engine.look(fetch)
        now = clock.monotonic() - start
        if page is None:
            misses += 1
        else:
            track.add(now, page)
        left = seconds - now
        if left <= 0:
            break
        await sleep(min(interval, left))
    return observation_of(engine, track, name, misses)


def observation_of(engine: Reader, track: Track, name: str, misses: int) -> ServerObservation:
    """What a server told and showed so far, as an observation; `misses` looks got no answer."""
    seen = track.reduced()
    told = engine.told()
    capacities = dict(seen.capacities)
    for word, (value, source) in told.capacities.items():
        capacities[word] = Quantity(value, READINGS[word].unit, Origin.REPORTED, source)
    notes = [*told.notes, *seen.notes]
    drop_low_cap(seen.readings, capacities, notes)
    if misses:
        looks = misses + len(track.seconds)
        notes.append(f"{misses} of {looks} looks got no answer: the server is overloaded, or went away.")
    readings = dict(seen.readings)
    missing = list(told.missing)
    if engine.name == "sglang" and "cap" not in capacities:
        missing.append(
            "the cap of running requests: SGLang tells it from 0.5.8 on; give the log of its start."
        )
    if "running" not in readings:
        missing.append("running and queued requests: watch the server while it works.")
    observation = ServerObservation(
        name=name,
        engine=engine.name,
        engine_version=told.version,
        model=told.model,
        gpu=told.gpu,
        gpus=told.gpus,
        tensor_parallel=told.tensor_parallel,
        data_parallel=told.data_parallel,
        weights_dtype=told.weights_dtype,
        kv_dtype=told.kv_dtype,
        flags=told.flags,
        flags_origin=Origin.REPORTED,
        seconds=seen.seconds,
        columns=seen.columns,
        readings=readings,
        capacities=capacities,
        by_rank=seen.by_rank,
        window=seen.window,
        events=tuple(seen.events),
        settings=told.settings,
    )
    return replace(observation, notes=tuple(dict.fromkeys(notes)), missing=tuple(dict.fromkeys(missing)))
