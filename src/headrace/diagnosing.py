"""What every face of a diagnosis needs: the context resolved from what the evidence names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace

from headrace.diagnose.context import Context
from headrace.engines import PLANNED_ENGINES, planner
from headrace.errors import HeadraceError, UsageError, nearest
from headrace.hardware.catalogue import Ambiguous, resolve
from headrace.hardware.device import Device
from headrace.models.catalogue import resolve_model
from headrace.models.geometry import ModelGeometry
from headrace.observe.observation import ClientFacts, Observation

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?$")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}
_LONGEST_SECONDS = 24 * 3600.0


def seconds_of(text: str, option: str = "--for") -> float:
    """Returns a duration in seconds: `60s`, `2m`, `0`. Raises UsageError for anything else, or over a day."""
    match = _DURATION.match(text.strip())
    if match is None:
        raise UsageError(f"{option} takes a duration like 60s or 2m, got '{text[:40]}'.")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > _LONGEST_SECONDS:
        raise UsageError(f"{option} {text[:40]} is longer than a day; an hour is plenty.")
    return seconds


def load_word(text: str) -> str:
    """Returns `free`, `given` or "" (not told). Raises UsageError for anything else."""
    if text not in ("", "free", "given"):
        raise UsageError(f"--load takes free or given, got '{text[:40]}'.{nearest(text, ('free', 'given'))}")
    return text


def key_in(variable: str) -> str | None:
    """Returns the key in an environment variable, None if none is named. Raises UsageError if it is empty."""
    if not variable:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(
            f"--api-key-env {variable[:60]}: the environment has no such variable, or it is empty."
        )
    return key


def context_of(
    observation: Observation,
    *,
    expectations: tuple[str, ...] = (),
    allow_accuracy_change: bool = False,
    ask: Callable[[Ambiguous], Device | None] | None = None,
) -> Context:
    """Returns the context of an observation; what it names and nobody knows is a sentence under `missing`."""
    missing: list[str] = []
    server = observation.servers[0] if observation.servers else None
    engine = server.engine if server else None
    return Context(
        model=_model(server.model if server else None, missing),
        device=_device(server.gpu if server else None, missing, ask),
        planner=planner(engine) if engine in PLANNED_ENGINES else None,
        expectations=expectations,
        allow_accuracy_change=allow_accuracy_change,
        missing=tuple(missing),
        find_device=known_device,
    )


def known_device(name: str) -> Device | None:
    """Returns a device by name, None for one that nobody knows."""
    try:
        return resolve(name)
    except HeadraceError:
        return None


def _model(name: str | None, missing: list[str]) -> ModelGeometry | None:
    if not name:
        return None
    try:
        return resolve_model(name)
    except HeadraceError as error:
        missing.append(f"the model's shape: {error}")
        return None


def _device(
    name: str | None, missing: list[str], ask: Callable[[Ambiguous], Device | None] | None
) -> Device | None:
    if not name:
        return None
    try:
        return resolve(name, ask)
    except HeadraceError as error:
        missing.append(f"the GPU's figures: {error}")
        return None


def with_told(
    observation: Observation,
    *,
    engine: str = "",
    engine_version: str = "",
    gpu: str = "",
    model: str = "",
    flags: str = "",
    load: str = "",
) -> Observation:
    """Returns the observation with what the user told beside it; where both speak, the user wins."""
    from headrace.observe.flags_text import read_flags

    servers = []
    for server in observation.servers:
        told_engine = engine or server.engine
        version = engine_version or server.engine_version
        written = read_flags(flags, told_engine, version) if flags else None
        servers.append(
            replace(
                server,
                engine=told_engine,
                engine_version=version,
                gpu=gpu or server.gpu,
                model=model or server.model,
                flags=written.flags if written else server.flags,
                notes=(*server.notes, *(written.notes if written else ())),
            )
        )
    client = observation.client
    if load:
        client = replace(client or ClientFacts(), load=load)
    return replace(observation, servers=tuple(servers), client=client)
