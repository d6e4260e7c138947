"""Plans in one line, for the tests: a model by id or config, a GPU in GiB, flags as text."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.engines import planner
from headrace.engines.launch_line import LaunchLine
from headrace.engines.plan import GIB, MemoryPlan, PlanInputs
from headrace.hardware.device import Device
from headrace.models.catalogue import resolve_model
from headrace.models.geometry import ModelGeometry
from headrace.quantities import Origin, Quantity

GOLDEN = (
    "--context-length 8192 --attention-backend flashinfer --mamba-scheduler-strategy extra_buffer "
    "--max-running-requests 64 --mem-fraction-static 0.85"
)


def told(value: float, unit: str = "bytes") -> Quantity:
    return Quantity(value, unit, Origin.USER, "the test")


def card(total_gib: float = 95.59, *, capability: float = 12.0, usable_gib: float | None = None) -> Device:
    """A GPU of that memory; free before load is 1.3 GiB less."""
    usable = (usable_gib or total_gib) * GIB
    return Device(
        "test card",
        "nvidia",
        "",
        capability,
        told(total_gib * GIB),
        told(usable),
        told((total_gib - 1.3) * GIB),
        None,
        {},
        {},
        None,
        None,
        None,
        "",
        None,
        "the test",
    )


def plan(
    flags: str = "",
    *,
    engine: str = "sglang",
    version: str = "0.5.12",
    model: str | ModelGeometry = "Qwen/Qwen3.6-27B",
    device: Device | None = None,
    free_gib: float | None = 94.3,
    weights_gib: float | None = 51.1,
    context: float | None = None,
) -> MemoryPlan:
    """Returns the plan; by default the model, card and memory of the golden case."""
    planned_by = planner(engine)
    rules = planned_by.rules(version)
    line = LaunchLine.parse(flags, planned_by.table, rules.version)
    geometry = resolve_model(model) if isinstance(model, str) else model
    return planned_by.plan(
        PlanInputs(
            geometry,
            device or card(),
            rules,
            line,
            None if free_gib is None else told(free_gib * GIB),
            None if weights_gib is None else told(weights_gib * GIB),
            context,
        )
    )


def sizes(found: MemoryPlan) -> tuple[float | None, float | None, float | None]:
    """(slots, cap, KV tokens)."""
    return found.figure("state_slots"), found.cap.value if found.cap else None, found.figure("kv_tokens")


def shared() -> Path | None:
    """The folder with cases and engines' sources, where it is at hand."""
    candidates = [os.environ.get("HEADRACE_SHARED"), str(Path(__file__).resolve().parents[4] / "shared")]
    return next((Path(found) for found in candidates if found and Path(found, "cases").is_dir()), None)
