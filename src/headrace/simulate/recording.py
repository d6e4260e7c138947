"""A simulated job as an Observation, the form that every collector yields, and as files."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headrace.errors import StorageError
from headrace.observe.observation import ClientFacts, Column, Observation, ServerObservation, Window
from headrace.observe.readings import CLIENT, READINGS
from headrace.quantities import Origin, Quantity
from headrace.simulate.question import Variant
from headrace.simulate.workload import Workload

_SOURCE = "simulated"


def observation_of(variant: Variant, workload: Workload) -> Observation:
    """Returns what somebody who watched the simulated fleet would know; every number's source says
    `simulated`.
    """
    outcome = variant.outcome
    begin, end = outcome.steady_window()
    times = outcome.timeline.seconds
    inside = (times >= begin) & (times <= end)
    window = Window(begin, end, int(inside.sum()), outcome.seconds)
    ranks = outcome.schedulers // outcome.servers
    servers = []
    for index in range(outcome.servers):
        columns = _columns(variant, slice(index * ranks, (index + 1) * ranks))
        servers.append(
            ServerObservation(
                name=f"server-{index}",
                engine=variant.plan.settings.engine,
                engine_version=str(variant.plan.settings.rules.version),
                model=variant.plan.inputs.model.name,
                gpu=variant.plan.inputs.device.name,
                gpus=round(outcome.gpus / outcome.servers),
                data_parallel=ranks,
                flags=variant.plan.settings.line.text(),
                seconds=times,
                columns=columns,
                readings=_readings(columns, inside),
                capacities=_capacities(variant, ranks),
                window=window,
            )
        )
    return Observation(tuple(servers), _client(variant, workload), notes=outcome.notes, source=_SOURCE)


def _columns(variant: Variant, ranks: slice) -> dict[str, Column]:
    """Per server: requests and rates summed over its schedulers, fractions of the whole pools."""
    outcome, raw = variant.outcome, variant.outcome.timeline.columns
    count = ranks.stop - ranks.start
    step = np.gradient(outcome.timeline.seconds) if len(outcome.timeline.seconds) > 1 else np.ones(1)

    def summed(name: str) -> Column:
        return np.asarray(raw[name][ranks].sum(axis=0))

    def per_second(name: str) -> Column:
        values = summed(name)
        return np.gradient(values) / step if len(values) > 1 else np.zeros_like(values)

    used = summed("kv_pages") * outcome.page_tokens
    passes = per_second("passes") / count
    columns = {
        "running": summed("running"),
        "queued": summed("queued"),
        "kv_used_tokens": used,
        "kv_usage": used / max(1.0, outcome.kv_capacity_tokens * count),
        "output_tokens_per_s": per_second("generated"),
        "prefill_tokens_per_s": per_second("prefilled"),
        "step_ms": 1e3 / np.where(passes > 0, passes, np.nan),
        "retractions_per_min": 60 * per_second("retracted"),
        "prefill_share_of_time": np.clip(per_second("prefill_seconds") / count, 0.0, 1.0),
    }
    if outcome.state_slots:
        columns["state_used_slots"] = summed("state_slots")
        columns["state_usage"] = columns["state_used_slots"] / (outcome.state_slots * count)
    return columns


def _readings(columns: dict[str, Column], inside: np.ndarray) -> dict[str, Quantity]:
    found = {}
    for word, values in columns.items():
        chosen = values[inside] if np.any(inside) else values
        chosen = chosen[np.isfinite(chosen)]
        if len(chosen):
            found[word] = _quantity(float(np.mean(chosen)), READINGS[word].unit)
    return found


def _capacities(variant: Variant, ranks: int) -> dict[str, Quantity]:
    outcome = variant.outcome
    values = {
        "cap": outcome.cap * ranks,
        "kv_capacity_tokens": outcome.kv_capacity_tokens * ranks,
        "state_slots": None if outcome.state_slots is None else outcome.state_slots * ranks,
        "slots_per_request": variant.plan.figure("slots_per_request"),
    }
    return {
        word: _quantity(float(value), READINGS[word].unit)
        for word, value in values.items()
        if value is not None
    }


def _client(variant: Variant, workload: Workload) -> ClientFacts:
    outcome = variant.outcome
    values: dict[str, float | None] = {
        "in_flight": None if variant.in_flight is None else float(variant.in_flight * outcome.servers),
        "completed": float(outcome.finished),
        "elapsed_s": outcome.seconds,
        "prompts_total": float(outcome.prompts),
        "mean_input_tokens": float(workload.input_tokens.mean()),
        "mean_output_tokens": outcome.completed_tokens / outcome.finished if outcome.finished else None,
        "output_tokens_per_s_finished_only": outcome.completed_tokens_per_second,
    }
    readings = {word: _quantity(value, CLIENT[word]) for word, value in values.items() if value is not None}
    return ClientFacts("free" if workload.arrival is None else "given", readings)


def _quantity(value: float, unit: str) -> Quantity:
    return Quantity(value, unit, Origin.DERIVED, _SOURCE)


def write_recording(folder: Path, variant: Variant, workload: Workload) -> Path:
    """Writes observation.json (with the columns) and simulation.json into a folder; returns the first's path.

    Raises:
        StorageError: the folder cannot be written.
    """
    observation = observation_of(variant, workload)
    document = observation.to_json()
    for told, server in zip(document["servers"], observation.servers, strict=True):
        told["seconds"] = server.seconds.tolist()
        told["columns"] = {word: _finite(values) for word, values in server.columns.items()}
    path = folder / "observation.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, what in (("observation.json", document), ("simulation.json", variant.to_json())):
            aside = folder / f".{name}.{os.getpid()}"
            aside.write_bytes(msgspec.json.encode(plain_json(what)))
            aside.replace(folder / name)
    except OSError as error:
        raise StorageError(
            f"{folder}: the recording cannot be written: {error.strerror}. Name another folder."
        ) from error
    return path


def _finite(values: Column) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]


def plain_json(value: Any) -> Any:
    """Returns the document with null for what is no number: JSON has no NaN."""
    if isinstance(value, dict):
        return {key: plain_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
