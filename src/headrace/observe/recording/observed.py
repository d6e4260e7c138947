"""A recording as an Observation: steady readings of each server, its drift, its GPUs, the job's lengths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from headrace.observe.drift import Drift, drift
from headrace.observe.gpus.columns import GPU_WORDS, over_server
from headrace.observe.observation import Column, Observation, ServerObservation
from headrace.observe.phases import Phases, find_phases
from headrace.observe.readings import READINGS
from headrace.observe.recording.form import ServerAbout
from headrace.observe.recording.job_side import JobSide, job_side
from headrace.observe.recording.reading import Recording, read_recording
from headrace.observe.recording.series import series_of
from headrace.observe.track import Series
from headrace.quantities import Origin, Quantity

# What may drift over days, and is compared with the steady window's own first hour.
DRIFTING = (
    "output_tokens_per_s",
    "running",
    "kv_usage",
    "state_usage",
    "cache_hit_rate",
    "accept_length",
    "sm_clock_mhz",
    "gpu_temp_c",
)
LEAST_BLOCK_SECONDS = 60.0


def read_recorded(folder: Path) -> Observation:
    """The Observation of a recording. Raises InputError where it cannot be read."""
    recording = read_recording(folder)
    side = job_side(recording)
    notes = [*recording.notes, *side.notes]
    gpus = len(recording.gpus)
    names = list(recording.about.servers) or list(recording.gauges)
    servers = tuple(_server(name, recording, side, alone=len(names) == 1, notes=notes) for name in names) or (
        _gpus_alone(recording, str(folder)),
    )
    if gpus and len(names) > 1:
        notes.append(
            f"{gpus} GPUs were recorded beside {len(names)} servers: nobody told which GPU is whose, so each "
            "server has the mean over all of them."
        )
    return Observation(
        servers=servers, client=side.client, notes=tuple(dict.fromkeys(notes)), source=str(folder)
    )


def _server(
    name: str, recording: Recording, side: JobSide, *, alone: bool, notes: list[str]
) -> ServerObservation:
    told = recording.about.servers.get(name, ServerAbout())
    series = series_of(recording, name)
    if series is None:
        return ServerObservation(
            name=name,
            engine=told.engine,
            notes=(f"it did not answer once while it was recorded ({recording.missed.get(name, 0)} looks).",),
        )
    phases = _phases(series, told, side)
    seen = series.reduced(phases.steady_seconds if phases is not None else None)
    columns, readings = dict(seen.columns), dict(seen.readings)
    begin, end = (seen.window.start_seconds, seen.window.end_seconds) if seen.window else (0.0, np.inf)
    if recording.gpus:
        gpu_columns, gpu_readings, by_rank = over_server(
            recording.gpus, series.seconds, (begin, end), by_gpu=alone
        )
        columns.update(gpu_columns)
        readings.update(gpu_readings)
        seen.by_rank.update(by_rank)
    capacities = dict(seen.capacities)
    for word, (value, source) in told.capacities.items():
        if word in READINGS:
            capacities[word] = Quantity(value, READINGS[word].unit, Origin.REPORTED, source)
    missed = recording.missed.get(name, 0)
    if missed:
        looks = missed + len(series.seconds)
        seen.notes.append(f"{missed} of {looks} looks got no answer: the server was overloaded, or away.")
    drifts = drifts_of(series.seconds, columns, phases)
    device = told.gpu or _only(recording.about.gpus)
    return ServerObservation(
        name=name,
        engine=told.engine,
        engine_version=told.engine_version,
        model=told.model,
        gpu=device,
        gpus=told.gpus,
        tensor_parallel=told.tensor_parallel,
        data_parallel=told.data_parallel,
        weights_dtype=told.weights_dtype,
        kv_dtype=told.kv_dtype,
        flags=told.flags,
        flags_origin=Origin.REPORTED,
        seconds=series.seconds,
        columns=columns,
        readings=readings,
        capacities=capacities,
        by_rank=seen.by_rank,
        window=seen.window,
        events=tuple(seen.events),
        settings=told.settings,
        notes=tuple(dict.fromkeys((*told.notes, *seen.notes, *_not_yet(phases), *_said(drifts)))),
        missing=tuple(
            text for text in told.missing if not (text.startswith("the GPU:") and device is not None)
        ),
        phases=phases,
        drift=drifts,
    )


def _phases(series: Series, told: ServerAbout, side: JobSide) -> Phases | None:
    running = series.gauges.get("running")
    if running is None:
        return None
    rate = series.rate()
    return find_phases(
        series.seconds, running, rate, latency_seconds=_latency(series, side), began_empty=side.began_empty
    )


def _latency(series: Series, side: JobSide) -> float | None:
    """Mean length × seconds per token of a running request; the job's survival estimate goes first."""
    running, rate = series.gauges.get("running"), series.rate()
    length = side.mean_length
    if length is None:
        total, count = (series.counters.get(f"output_length_{part}") for part in ("tokens", "count"))
        if total is not None and count is not None:
            known = np.isfinite(total) & np.isfinite(count) & (count > 0)
            length = float((total[known] / count[known])[-1]) if known.any() else None
    if running is None or rate is None or length is None:
        return None
    busy = np.isfinite(running) & np.isfinite(rate) & (running > 0) & (rate > 0)
    if not busy.any():
        return None
    return length * float(np.sum(running[busy]) / np.sum(rate[busy]))


def drifts_of(seconds: Column, columns: Mapping[str, Column], phases: Phases | None) -> dict[str, Drift]:
    """Word → its drift over the steady window, where two hours of it are there."""
    if phases is None or phases.steady_seconds is None:
        return {}
    begin, end = phases.steady_seconds
    inside = (seconds >= begin) & (seconds <= end)
    block = max(phases.latency_seconds or 0.0, LEAST_BLOCK_SECONDS)
    found = {
        word: drift(seconds[inside], columns[word][inside], block_seconds=block)
        for word in DRIFTING
        if word in columns
    }
    return {word: one for word, one in found.items() if one is not None}


def _not_yet(phases: Phases | None) -> list[str]:
    if phases is None or phases.steady_seconds is not None:
        return []
    more = phases.ready_in_seconds
    wait = f"; {more:,.0f} s more, and there is one" if more is not None else ""
    return [f"{phases.why}{wait}: readings are over the full batch."]


def _said(drifts: Mapping[str, Drift]) -> list[str]:
    return [
        f"{word} drifted by {one.share:+.1%} ({one.low:+.1%} to {one.high:+.1%}) against the steady window's "
        f"first hour: {one.before:,.4g} to {one.after:,.4g}."
        for word, one in drifts.items()
        if one.certain and abs(one.share) >= 0.02
    ]


def _only(gpus: Mapping[str, str]) -> str | None:
    names = {name for name in gpus.values() if name}
    return names.pop() if len(names) == 1 else None


def _gpus_alone(recording: Recording, source: str) -> ServerObservation:
    if not recording.gpus:
        return ServerObservation(name=source, notes=("the recording holds no sample.",))
    seconds = next(iter(recording.gpus.values())).seconds
    columns, readings, by_rank = over_server(recording.gpus, seconds, (0.0, np.inf), by_gpu=True)
    return ServerObservation(
        name=source,
        gpu=_only(recording.about.gpus),
        seconds=seconds,
        columns={word: columns[word] for word in GPU_WORDS if word in columns},
        readings=readings,
        by_rank=by_rank,
        missing=("running and queued requests: only GPUs were recorded; record the servers too.",),
    )
