"""The memory plan: what every engine's planner takes and returns, whatever the engine calls its pools.

All bytes are per GPU; `cap` counts requests per scheduler (one data-parallel rank).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from headrace.engines.flags import FlagTable
from headrace.engines.launch_line import LaunchLine
from headrace.engines.settings import EngineSettings
from headrace.engines.versions import Rules, Version
from headrace.hardware.device import Device
from headrace.models.geometry import ModelGeometry
from headrace.quantities import Origin, Quantity
from headrace.words import Constraint

GIB = 1 << 30


@dataclass(frozen=True)
class PlanInputs:
    """What a plan is made from. What is None takes the device's or the model's default, origin `assumed`."""

    model: ModelGeometry
    device: Device
    rules: Rules
    line: LaunchLine
    free_bytes: Quantity | None = None  # free per GPU before the weights are loaded
    weight_bytes: Quantity | None = None  # what loading takes, per GPU
    context_tokens: float | None = None  # mean tokens resident per running request

    def with_line(self, line: LaunchLine) -> PlanInputs:
        return replace(self, line=line)


@dataclass(frozen=True, slots=True)
class Rung:
    """One cap on running requests: the constraint, how many, and the engine's own term in words."""

    constraint: Constraint
    running: Quantity
    term: str

    def to_json(self) -> dict[str, Any]:
        return {"id": str(self.constraint), "running": self.running.to_json(), "term": self.term}


@dataclass(frozen=True, slots=True)
class Pool:
    """A part of a GPU's memory: what it is, its bytes, and what fits into it."""

    name: str
    bytes: Quantity
    holds: Quantity | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"name": self.name, "bytes": self.bytes.to_json()}
        if self.holds is not None:
            document["holds"] = self.holds.to_json()
        if self.note:
            document["note"] = self.note
        return document


@dataclass(frozen=True)
class MemoryPlan:
    """How an engine would divide a GPU, and how many requests could run.

    `cap` is the engine's effective maximum of running requests, as its server would report it, and
    `cap_bound_by` with `cap_term` what bound it. `ladder` holds every cap, lowest first, each computed with
    all lower ones removed; with a known context it has the KV pool's rung as well. A plan that would not
    start has `refusals`, no cap and no ladder; its figures are what the sizes would be without them.
    """

    inputs: PlanInputs
    settings: EngineSettings
    pools: tuple[Pool, ...]
    cap: Quantity | None
    cap_bound_by: Constraint
    cap_term: str
    ladder: tuple[Rung, ...]
    figures: Mapping[str, Quantity] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()

    @property
    def refusals(self) -> tuple[str, ...]:
        return self.settings.refusals

    @property
    def would_start(self) -> bool:
        return not self.refusals

    @property
    def lowest(self) -> Rung | None:
        """The lowest rung: what bounds running requests at the stated context; None if it would not start."""
        return self.ladder[0] if self.ladder else None

    def figure(self, name: str) -> float | None:
        """Returns a figure's value by name, None where the plan has none of it."""
        found = self.figures.get(name)
        return None if found is None else float(found)

    def pool(self, name: str) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as plain JSON; `headrace plan --json` prints it with what could be changed."""
        keys = (
            "state_slots",
            "slots_per_request",
            "kv_tokens",
            "state_bytes_per_request",
            "kv_bytes_per_token",
        )
        document: dict[str, Any] = {
            "model": self.inputs.model.name,
            "gpu": self.inputs.device.name,
            "would_start": self.would_start,
            "cap": self.cap.to_json() if self.cap else None,
            "cap_bound_by": str(self.cap_bound_by),
            "cap_term": self.cap_term,
        }
        for key in keys:
            found = self.figures.get(key)
            document[key] = found.to_json() if found else None
        for key, found in self.figures.items():
            document[key] = found.to_json()
        lowest = self.lowest
        document["running"] = lowest.running.to_json() if lowest else None
        document["running_bound_by"] = str(lowest.constraint if lowest else self.cap_bound_by)
        document["ladder"] = [rung.to_json() for rung in self.ladder]
        document["pools"] = [pool.to_json() for pool in self.pools]
        document["settings"] = self.settings.to_json()
        document["assumptions"] = list(self.assumptions)
        return document


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that a lever offers: the edit, in words, and what it costs beside a restart.

    `cost_rank` orders by what is given up: 0 nothing that the engine keeps, 1 memory headroom, 2 KV tokens or
    prefix reuse, 3 speed of every step, 4 accuracy.
    """

    lever: str
    change: str  # an edit of the launch line, as LaunchLine.changed takes it
    cost_rank: int
    cost: str


@dataclass(frozen=True, slots=True)
class Untold:
    """A setting that nobody told and that would change the sizes: as an edit, and in words."""

    change: str
    text: str
    rank: int  # the likelier, the lower


@dataclass(frozen=True, slots=True)
class Solution:
    """What one knob must be to reach a wanted cap; `change` is None where the knob cannot do it."""

    knob: str
    change: str | None
    text: str
    cost_rank: int


class Planner(Protocol):
    """What an engine offers to the planner's callers."""

    engine: str
    table: FlagTable
    oldest: Version
    newest: Version

    def rules(self, told: str) -> Rules:
        """Returns the rules for a version as told."""
        ...

    def plan(self, inputs: PlanInputs) -> MemoryPlan:
        """Returns the memory plan; raises UsageError only where the inputs make no sense at all."""
        ...

    def candidates(self, plan: MemoryPlan) -> Iterator[Candidate]:
        """Yields the changes that might lift the cap."""
        ...

    def untold(self, plan: MemoryPlan, reported: Mapping[str, float]) -> Iterator[Untold]:
        """Yields the settings that might be set without anybody having said so."""
        ...

    def solve(self, plan: MemoryPlan, cap: int) -> Iterator[Solution]:
        """Yields, knob by knob, what would give that cap with the context the inputs state."""
        ...


_POOLS = (Constraint.KV_POOL, Constraint.STATE_POOL)


def holds(plan: MemoryPlan, cap: int) -> bool:
    """Returns whether the plan starts, runs `cap` requests, and its pools hold as many of the stated
    context.
    """
    if not plan.would_start or plan.cap is None or plan.cap.value < cap:
        return False
    return all(rung.running.value >= cap for rung in plan.ladder if rung.constraint in _POOLS)


def free_before_load(inputs: PlanInputs) -> Quantity:
    """Returns the bytes free per GPU before the weights: as told, else the device's figure (assumed)."""
    return inputs.free_bytes or inputs.device.free_before_load_bytes


# What loading takes beside the tensors themselves: allocator rounding and buffers made while loading. On one
# 27B checkpoint 0.1 to 0.3 GiB (facts on engines, §1.8); 0.15 is used, and the range kept.
LOADING_OVERHEAD_BYTES = Quantity(
    0.15 * GIB,
    "bytes",
    Origin.ASSUMED,
    "0.1 to 0.3 GiB more than the tensors on one 27B checkpoint",
    low=0.1 * GIB,
    high=0.3 * GIB,
)


def weights_on_gpu(
    inputs: PlanInputs, tp: int, pp: int, *, vision: bool = True, mtp: bool = False
) -> Quantity:
    """Returns the bytes that loading takes on one GPU: as told, else the model's tensors and an overhead."""
    if inputs.weight_bytes is not None:
        return inputs.weight_bytes
    tensors = inputs.model.weight_bytes(tp, vision=vision, mtp=mtp)
    value = tensors.value / pp + LOADING_OVERHEAD_BYTES.value
    low, high = (tensors.value / pp + edge for edge in LOADING_OVERHEAD_BYTES.range)
    return Quantity(
        value,
        "bytes",
        Origin.ASSUMED,
        "tensors of one rank ÷ pipeline stages + loading overhead",
        {"tensors": tensors, "overhead": LOADING_OVERHEAD_BYTES},
        low,
        high,
    )
