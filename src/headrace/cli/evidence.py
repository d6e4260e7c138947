"""From what a user points at to one Observation: servers, logs, facts files, job folders."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import InputError, UnreachableError, UsageError

if TYPE_CHECKING:
    from headrace.observe.observation import Observation, ServerObservation

_URL = re.compile(r"https?://", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?$")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}
_LONGEST = 24 * 3600.0
_FACTS = (".yaml", ".yml")


def observed(
    targets: Sequence[str],
    window: str,
    *,
    engine: str = "",
    api_key_env: str = "",
) -> Observation:
    """Returns what the targets say. Several servers are one fleet; anything else stands alone.

    Raises:
        UsageError: targets that do not go together, or a window that is no duration.
        InputError: a file that cannot be read.
        UnreachableError: no server answers.
    """
    urls = [target for target in targets if _URL.match(target)]
    if urls and len(urls) < len(targets):
        other = next(target for target in targets if target not in urls)
        raise UsageError(f"{other[:80]!r} beside server URLs: give servers, or one file, folder or -.")
    if urls:
        return _servers(urls, seconds_of(window), api_key_env)
    if len(targets) > 1:
        raise UsageError(f"{len(targets)} targets that are no URLs; give one file, folder or -.")
    return _stored(targets[0], engine)


def seconds_of(text: str) -> float:
    """Returns a duration in seconds: `60s`, `2m`, `0`. Raises UsageError for anything else, or over a day."""
    match = _DURATION.match(text.strip())
    if match is None:
        raise UsageError(f"--for takes a duration like 60s or 2m, got '{text[:40]}'.")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > _LONGEST:
        raise UsageError(f"--for {text[:40]} is longer than a day; an hour is plenty.")
    return seconds


def _servers(urls: Sequence[str], seconds: float, api_key_env: str) -> Observation:
    """Watches all servers at once; one that does not answer while others do is part of the evidence."""
    import asyncio

    from headrace.net.http import HttpClient
    from headrace.net.redact import redact
    from headrace.observe.flags_text import without_user
    from headrace.observe.live import observe_server
    from headrace.observe.observation import Event, Observation, ServerObservation

    key = os.environ.get(api_key_env) if api_key_env else None
    if api_key_env and not key:
        raise UsageError(
            f"--api-key-env {api_key_env[:60]}: the environment has no such variable, or it is empty."
        )

    async def one(url: str, http: HttpClient) -> ServerObservation | UnreachableError:
        try:
            return await observe_server(url, http, seconds)
        except UnreachableError as error:
            return error

    async def everyone() -> list[ServerObservation | UnreachableError]:
        async with HttpClient(key) as http, asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(url, http)) for url in urls]
        return [task.result() for task in tasks]

    answers = asyncio.run(everyone())
    failed = [answer for answer in answers if isinstance(answer, UnreachableError)]
    if len(failed) == len(answers):
        raise failed[0]
    servers = tuple(
        ServerObservation(
            redact(without_user(url)), events=(Event("unreachable", "failure", 1, str(answer)[:400]),)
        )
        if isinstance(answer, UnreachableError)
        else answer
        for url, answer in zip(urls, answers, strict=True)
    )
    return Observation(servers, source=", ".join(server.name for server in servers))


def _stored(target: str, engine: str) -> Observation:
    path = Path(target)
    if target != "-" and path.is_dir():
        raise InputError(
            f"{target[:200]}: a folder. Point at its servers, or at a log or facts file; job folders are "
            f"read by "
            "headrace status."
        )
    if target != "-" and path.suffix.lower() in _FACTS:
        from headrace.observe.facts import read_facts

        observation, log = read_facts(path)
        return observation if log is None else _beside(observation, log, engine)
    return _log(target, engine)


def _log(target: str, engine: str) -> Observation:
    from headrace.observe.log import read_log

    if target == "-":
        import sys

        return read_log(sys.stdin.buffer, "-", engine or None)
    return read_log(Path(target), target, engine or None)


def _beside(facts: Observation, log: Path, engine: str) -> Observation:
    """Facts and the log that they name: what was typed stands, the log fills in and adds its events."""
    server = facts.servers[0]
    try:
        read = _log(str(log), engine or (server.engine or ""))
    except InputError as error:
        return replace(facts, notes=(*facts.notes, f"the log was not read: {error}"))
    if not read.servers:
        return replace(facts, notes=(*facts.notes, *read.notes))
    seen = read.servers[0]
    both = replace(
        server,
        engine=server.engine or seen.engine,
        engine_version=server.engine_version or seen.engine_version,
        model=server.model or seen.model,
        gpu=server.gpu or seen.gpu,
        gpus=server.gpus or seen.gpus,
        tensor_parallel=server.tensor_parallel or seen.tensor_parallel,
        data_parallel=server.data_parallel or seen.data_parallel,
        weights_dtype=server.weights_dtype or seen.weights_dtype,
        kv_dtype=server.kv_dtype or seen.kv_dtype,
        flags=server.flags or seen.flags,
        flags_origin=server.flags_origin if server.flags else seen.flags_origin,
        seconds=seen.seconds,
        columns=seen.columns,
        readings={**seen.readings, **server.readings},
        capacities={**seen.capacities, **server.capacities},
        by_rank={**seen.by_rank, **server.by_rank},
        window=seen.window,
        events=(*server.events, *seen.events),
        settings={**seen.settings, **server.settings},
        notes=(*server.notes, *seen.notes),
        missing=(*server.missing, *seen.missing),
    )
    return replace(facts, servers=(both, *facts.servers[1:]), notes=(*facts.notes, *read.notes))
