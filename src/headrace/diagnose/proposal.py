"""A proposal: what to change, what it is worth, and what it needs and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.quantities import Estimate
from headrace.words import Lever


@dataclass(frozen=True)
class Proposal:
    """What to change, with what it needs beside it.

    Attributes:
        levers: what moves; several where one needs the other.
        change: in words, one line.
        flags: the edit of the launch line, "" where no flag changes.
        launch_line: the resulting flags as the planner checked them, "" where there is no planner or no line.
        needs_restart: whether servers must start again.
        running: requests per server that could run after it, None where that does not change or is unknown.
        gain: factor on the fleet's throughput, None where it cannot be told.
        estimate: output tokens/s of the fleet after it.
        costs: what it gives up or risks.
        effects: what else moves with it, each with its size; the estimate has them in it.
        checks: what to look at before it.
        accuracy: it changes numbers that the model computes with.
        narrows: what would narrow the estimate.
    """

    levers: tuple[Lever, ...]
    change: str
    flags: str = ""
    launch_line: str = ""
    needs_restart: bool = False
    running: int | None = None
    gain: tuple[float, float, float] | None = None
    estimate: Estimate | None = None
    costs: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    accuracy: bool = False
    narrows: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "levers": [str(lever) for lever in self.levers],
            "change": self.change,
            "flags": self.flags,
            "launch_line": self.launch_line,
            "needs_restart": self.needs_restart,
            "running": self.running,
            "gain": dict(zip(("low", "mid", "high"), (round(v, 3) for v in self.gain), strict=True))
            if self.gain
            else None,
            "estimate": self.estimate.to_json() if self.estimate else None,
            "costs": list(self.costs),
            "effects": list(self.effects),
            "checks": list(self.checks),
            "accuracy": self.accuracy,
            "narrowed_by": self.narrows,
        }
