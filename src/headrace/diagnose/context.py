"""What a diagnosis needs beside the observation: the model, the device, the engine's planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.engines.advice import Explanation
from headrace.engines.plan import MemoryPlan, Planner
from headrace.hardware.device import Device
from headrace.models.geometry import ModelGeometry


def _nobody(name: str) -> Device | None:
    return None


@dataclass(frozen=True)
class Context:
    """Resolved by the caller, who may read files; what could not be resolved is None, with a sentence in
    `missing`.

    Attributes:
        expectations: what the user expects, as text (`--expect`), beside the observation's own claims.
        find_device: a device by name, None where it is not known; claims speak of other GPUs.
        allow_accuracy_change: whether levers that touch accuracy may be actions.
    """

    model: ModelGeometry | None = None
    device: Device | None = None
    planner: Planner | None = None
    expectations: tuple[str, ...] = ()
    allow_accuracy_change: bool = False
    missing: tuple[str, ...] = ()
    find_device: Callable[[str], Device | None] = field(default=_nobody)


@dataclass(frozen=True)
class Planned:
    """The memory plan of the flags as told, and of the flags that agree with what the server reported.

    Attributes:
        told: the plan of the line as told.
        explained: the likeliest explanation of the reported sizes; None where nothing was reported, or
            nothing explains it.
        others: further explanations.
        contradiction: a sentence where reported and derived disagree.
    """

    told: MemoryPlan
    explained: Explanation | None = None
    others: tuple[Explanation, ...] = ()
    contradiction: str = ""

    @property
    def plan(self) -> MemoryPlan:
        """The plan to reason with."""
        return self.explained.plan if self.explained is not None else self.told
