"""Two kinds of evidence of the same server, put together: what a person typed goes before what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from headrace.observe.observation import Observation, ServerObservation
from headrace.quantities import Quantity

NEAR = 0.10  # two values that differ by less say the same

T = TypeVar("T")


def combine(first: ServerObservation, second: ServerObservation) -> ServerObservation:
    """Returns the first with what only the second knows; where they contradict, the first and a note."""
    notes = [*first.notes, *second.notes]
    if first.engine and second.engine and first.engine != second.engine:
        notes.append(
            f"the evidence contradicts itself: {first.engine} is stated, {second.name} is of {second.engine}."
        )
    readings = _joined(first.readings, second.readings, second.name, notes)
    capacities = _joined(first.capacities, second.capacities, second.name, notes)
    missing = [text for text in second.missing if not _known_now(text, first, readings)]
    return replace(
        first,
        engine=first.engine or second.engine,
        engine_version=first.engine_version or second.engine_version,
        model=first.model or second.model,
        gpu=first.gpu or second.gpu,
        gpus=_either(first.gpus, second.gpus),
        tensor_parallel=_either(first.tensor_parallel, second.tensor_parallel),
        data_parallel=_either(first.data_parallel, second.data_parallel),
        weights_dtype=first.weights_dtype or second.weights_dtype,
        kv_dtype=first.kv_dtype or second.kv_dtype,
        flags=first.flags or second.flags,
        flags_origin=first.flags_origin if first.flags else second.flags_origin,
        seconds=second.seconds if len(second.seconds) else first.seconds,
        columns=second.columns or first.columns,
        readings=readings,
        capacities=capacities,
        by_rank={**second.by_rank, **first.by_rank},
        window=second.window or first.window,
        phases=second.phases or first.phases,
        drift=second.drift or first.drift,
        events=(*first.events, *second.events),
        settings={**second.settings, **first.settings},
        notes=tuple(dict.fromkeys(notes)),
        missing=tuple(dict.fromkeys((*first.missing, *missing))),
    )


def combine_fleet(facts: Observation, read: Observation) -> Observation:
    """Returns typed facts with what a log or a live look of the same fleet adds.

    Facts about one server (or about servers alike) are laid over every server that was read.
    """
    (stated,) = facts.servers
    if len(read.servers) == 1:
        servers: tuple[ServerObservation, ...] = (combine(stated, read.servers[0]),)
    else:
        alone = replace(stated, replicas=1, readings={}, by_rank={})
        servers = tuple(replace(combine(alone, server), name=server.name) for server in read.servers)
    return Observation(
        servers=servers,
        client=facts.client or read.client,
        claims=(*facts.claims, *read.claims),
        notes=(*facts.notes, *read.notes),
        source=facts.source,
    )


def job_with_recording(job: Observation, recorded: Observation) -> Observation:
    """Returns a job's status with what its recording adds.

    Of a server the recording's steady readings go first; the client's lengths are those of the survival
    estimate, and what the status says stands where the recording says nothing.
    """
    by_name = {server.name: server for server in recorded.servers}
    servers = tuple(
        replace(
            combine(replace(by_name[server.name], notes=()), replace(server, readings=_own(server))),
            name=server.name,
            notes=(*server.notes, *by_name[server.name].notes),
        )
        if server.name in by_name
        else server
        for server in job.servers
    )
    client = job.client
    if client is not None and recorded.client is not None:
        client = replace(
            client,
            readings={**client.readings, **recorded.client.readings},
            lengths=recorded.client.lengths,
        )
    return replace(
        job, servers=servers, client=client or recorded.client, notes=(*job.notes, *recorded.notes)
    )


def _own(server: ServerObservation) -> dict[str, Quantity]:
    """What only the driver can say of a server; the rest is older news than the recording's."""
    return {word: value for word, value in server.readings.items() if word == "latency_s"}


def _joined(
    first: Mapping[str, Quantity], second: Mapping[str, Quantity], name: str, notes: list[str]
) -> dict[str, Quantity]:
    for word in first.keys() & second.keys():
        stated, read = first[word], second[word]
        low, high = read.range
        largest = max(abs(stated.value), abs(read.value))
        if low <= stated.value <= high or abs(stated.value - read.value) <= NEAR * largest:
            continue
        notes.append(f"{word}: {stated.value:g} is stated, {name} shows {read.value:g}; the first is used.")
    return {**second, **first}


def _known_now(text: str, first: ServerObservation, readings: Mapping[str, Quantity]) -> bool:
    """Whether what the second lacked is known by the first."""
    if text.startswith("the GPU"):
        return first.gpu is not None
    if text.startswith(("the cap", "settings and pool sizes")):
        return bool(first.flags)
    return text.startswith(("what runs and waits", "running and queued")) and "running" in readings


def _either(first: T | None, second: T | None) -> T | None:
    return second if first is None else first
