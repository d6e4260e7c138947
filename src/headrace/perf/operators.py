"""A step's operators: bytes, FLOPs, seconds with their range, the roof each is at, its share of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.perf.efficiency import Efficiencies, OperatorClass
from headrace.perf.load import Load
from headrace.perf.roofline import HIGH, LOW, MID, Roofline
from headrace.quantities import Estimate, Origin


@dataclass(frozen=True, slots=True)
class Operator:
    """One kind of kernel in a step, all layers together.

    Attributes:
        roof: what most of its time goes with: "bandwidth", "compute", "link" or "launch".
        achieved_fraction: bytes or FLOPs of that roof ÷ (data-sheet rate × seconds); None at a launch roof.
        share: of the seconds of the GPU's operators, middle values.
        origin: where the efficiency is from.
    """

    name: str
    kind: OperatorClass
    dtype: str
    launches: float
    bytes: float
    flops: float
    seconds: Estimate
    roof: str
    achieved_fraction: float | None
    share: float
    origin: Origin
    source: str

    def to_json(self) -> dict[str, Any]:
        """Returns the operator as plain JSON."""
        return {
            "name": self.name,
            "kind": str(self.kind),
            "dtype": self.dtype,
            "launches": self.launches,
            "bytes": self.bytes,
            "flops": self.flops,
            "seconds": self.seconds.to_json(),
            "roof": self.roof,
            "achieved_fraction": self.achieved_fraction,
            "share": self.share,
            "origin": str(self.origin),
            "source": self.source,
        }


def operators(roofline: Roofline, eff: Efficiencies, load: Load) -> tuple[Operator, ...]:
    """Returns the operators that run under one load, in the order of the pass; equal names are one."""
    work = roofline.work(load)
    ends = []
    for end in (LOW, MID, HIGH):
        roofs, launches = roofline.seconds(work, end)
        ends.append((roofs + launches)[:, 0])
    floor, moving, counting = (each[:, 0] for each in roofline.parts(work))
    total = float(ends[MID].sum()) or 1.0
    grouped: dict[tuple[str, str], list[int]] = {}
    for at, kernel in enumerate(roofline.kernels):
        if work.launches[at, 0] > 0.0:
            grouped.setdefault((kernel.name, kernel.dtype), []).append(at)
    found = []
    for (name, dtype), rows in grouped.items():
        kernel = roofline.kernels[rows[0]]
        reached = eff.of(kernel.kind, dtype)
        low, mid, high = (float(sum(end[at] for at in rows)) for end in ends)
        by_roof = {
            "launch": _total(floor, rows),
            "link" if kernel.link else "bandwidth": _total(moving, rows),
            "compute": _total(counting, rows),
        }
        roof = max(by_roof, key=lambda each: by_roof[each])
        fraction = reached.flop_fraction if roof == "compute" else reached.bandwidth_fraction
        if roof == "launch":
            fraction = reached.floor_seconds
        found.append(
            Operator(
                name,
                kernel.kind,
                dtype,
                _total(work.launches[:, 0], rows),
                _total(work.bytes[:, 0], rows),
                _total(work.flops[:, 0], rows),
                Estimate(low, mid, high, "s"),
                roof,
                None if roof == "launch" else by_roof[roof] * fraction.value / mid,
                mid / total,
                fraction.origin,
                fraction.source,
            )
        )
    return tuple(found)


def _total(column: Any, rows: Sequence[int]) -> float:
    return float(sum(column[at] for at in rows))
