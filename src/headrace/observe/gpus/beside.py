"""GPU counters from a file, laid over the servers that were read beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.observe.gpus.columns import over_server
from headrace.observe.gpus.nvidia_smi import GpuRow
from headrace.observe.observation import Observation, ServerObservation
from headrace.observe.recording.reading import Columns


def gpu_columns(rows: Sequence[GpuRow]) -> dict[str, Columns]:
    """Rows of a file as columns per GPU; without time stamps, one second from row to row."""
    by_gpu: dict[str, list[GpuRow]] = {}
    for row in rows:
        by_gpu.setdefault(row.index, []).append(row)
    first = min((row.wall for row in rows if row.wall is not None), default=0.0)
    found = {}
    for index, own in by_gpu.items():
        told = [row.wall for row in own if row.wall is not None]
        seconds = np.array(told) - first if len(told) == len(own) else np.arange(len(own), dtype=float)
        words = dict.fromkeys(word for row in own for word in row.values)
        columns = {word: np.array([row.values.get(word, np.nan) for row in own]) for word in words}
        found[index] = Columns(seconds, columns)
    return found


def with_gpus(observation: Observation, gpus: dict[str, Columns]) -> Observation:
    """The observation with GPU readings on every server; they are over the file's whole time.

    The file's clock is not the servers', so columns are not joined. With several servers each has the mean
    over all GPUs, and a note says so.
    """
    everywhere = (-np.inf, np.inf)
    alone = len(observation.servers) == 1
    _, readings, by_rank = over_server(gpus, np.empty(0), everywhere, by_gpu=alone)
    if not observation.servers:
        return replace(observation, servers=(ServerObservation("GPUs", readings=readings, by_rank=by_rank),))
    notes = observation.notes
    if not alone:
        notes = (
            *notes,
            f"{len(gpus)} GPUs beside {len(observation.servers)} servers: nobody told which GPU is whose, so "
            "each server has the mean over all of them.",
        )
    servers = tuple(
        replace(server, readings={**readings, **server.readings}, by_rank={**by_rank, **server.by_rank})
        for server in observation.servers
    )
    return replace(observation, servers=servers, notes=notes)
