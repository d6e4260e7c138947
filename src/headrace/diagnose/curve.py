"""Throughput against running requests: what the floor of a step and the time above it let a server make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.diagnose.estimate import more_running
from headrace.diagnose.ladder import LadderRung
from headrace.diagnose.view import View

_LEAST = 0.25  # of the batch of now: below it a mixture wakes fewer experts, and the floor is another
_MOST = 8.0  # times the batch of now: rungs beyond it are on the ladder only
_STEPS = 24  # points between both ends, evenly on a logarithmic scale


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What one server would make with so many running.

    Attributes:
        bound_tokens_per_s: output tokens/s at the achievable floor of that batch, at the context of now.
        expected_tokens_per_s: (low, mid, high) as an estimate has it; None below the batch of now, where no
            change is looked at, and where no rate is known.
    """

    running: float
    bound_tokens_per_s: float
    expected_tokens_per_s: tuple[float, float, float] | None

    def to_json(self) -> dict[str, Any]:
        expected = self.expected_tokens_per_s
        return {
            "running": self.running,
            "bound_tokens_per_s": self.bound_tokens_per_s,
            "expected_tokens_per_s": dict(zip(("low", "mid", "high"), expected, strict=True))
            if expected is not None
            else None,
        }


def throughput_curve(view: View, ladder: Sequence[LadderRung]) -> tuple[CurvePoint, ...]:
    """Returns the curve from a quarter of the batch of now to its highest rung, the rungs among its points.

    Output tokens per second of one server. Empty where the floor or running is not known, and where no cap
    lies above the batch of now: then there is nothing to look at. The curve holds the context of now, and has
    no traffic between GPUs and no prefill in it.
    """
    floor, now = view.floor, view.baseline.value("running")
    if floor is None or now is None or now < 1:
        return ()
    limits = {rung.limit.value for rung in ladder if rung.limit is not None}
    rungs = {limit for limit in limits if now < limit <= _MOST * now}
    if not rungs:
        return ()
    first, last = max(1.0, _LEAST * now), max(rungs) * 1.1
    grid = {first * (last / first) ** (step / (_STEPS - 1)) for step in range(_STEPS)}
    return tuple(_point(view, running) for running in sorted(grid | rungs | {now}))


def _point(view: View, running: float) -> CurvePoint:
    floor, baseline = view.floor, view.baseline
    assert floor is not None
    accepted = max(baseline.value("accept_length") or 1.0, 1.0)
    expected = None
    rate, now = baseline.get("output_tokens_per_s"), baseline.value("running")
    if rate is not None and now is not None and running >= now:
        low, mid, high = (rate.value * gain for gain in more_running(view, running))
        expected = (low, mid, high)
    return CurvePoint(running, running * accepted / floor.at(running), expected)
