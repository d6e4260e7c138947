"""The roofline: how much arithmetic a decode step does per byte it reads, and how fast it gets that done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.diagnose.floor import Floor
from headrace.quantities import Quantity, derived


@dataclass(frozen=True, slots=True)
class Roofline:
    """Both roofs of one GPU and the point of a decode step under them.

    Attributes:
        intensity: FLOPs of a step ÷ bytes of a step.
        reached: FLOPs of a step ÷ its seconds, None where no step time is known.
        memory_achievable, memory_datasheet: bytes/s; the slope of the first roof.
        compute_achievable, compute_datasheet: FLOP/s; the second roof. Dense, never sparse.
    """

    intensity: Quantity
    reached: Quantity | None
    memory_achievable: Quantity
    memory_datasheet: Quantity
    compute_achievable: Quantity
    compute_datasheet: Quantity

    def to_json(self) -> dict[str, Any]:
        return {
            "intensity": self.intensity.to_json(),
            "reached_flop_per_s": self.reached.to_json() if self.reached is not None else None,
            "memory_achievable": self.memory_achievable.to_json(),
            "memory_datasheet": self.memory_datasheet.to_json(),
            "compute_achievable": self.compute_achievable.to_json(),
            "compute_datasheet": self.compute_datasheet.to_json(),
        }


def roofline(floor: Floor | None, step: Quantity | None) -> Roofline | None:
    """Returns the roofline of a decode step on one GPU, None where a roof or the bytes are not known."""
    if floor is None or floor.compute is None or floor.bytes.value <= 0:
        return None
    rate, share = floor.compute.inputs["rate"], floor.compute.inputs["share"]
    reachable = derived(
        rate.value * share.value, "FLOP/s", "dense rate × achieved share", rate=rate, share=share
    )
    flops = derived(
        floor.compute.value * reachable.value,
        "FLOP",
        "FLOPs of a step on one GPU: tokens × FLOPs per token ÷ ranks",
        work=floor.compute.inputs["work"],
    )
    intensity = derived(
        flops.value / floor.bytes.value,
        "FLOP/byte",
        "FLOPs ÷ bytes of a step",
        flops=flops,
        bytes=floor.bytes,
    )
    reached = None
    if step is not None and step.range[0] > 0:
        low, high = step.range
        reached = derived(
            flops.value / step.value, "FLOP/s", "FLOPs ÷ seconds of a step", flops=flops, step=step
        ).with_range(flops.value / high, flops.value / low)
    return Roofline(
        intensity,
        reached,
        floor.achievable.inputs["bandwidth"],
        floor.datasheet.inputs["bandwidth"],
        reachable,
        rate,
    )
