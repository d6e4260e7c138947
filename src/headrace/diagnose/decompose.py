"""Step 3, decompose: running × rate; running against every cap; the step into floor and remainder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.diagnose.baseline import Baseline
from headrace.diagnose.expected import Expected
from headrace.diagnose.floor import Floor
from headrace.perf.calibrate import Calibration
from headrace.quantities import Quantity, derived


@dataclass(frozen=True)
class Decomposition:
    """The factors of one server's throughput.

    Attributes:
        step: seconds of a step, as a range where the rate is one.
        floor: the achievable floor of that step, seconds.
        remainder: step − floor, seconds, as a range; its high end has the uncorrected rate in it.
        floor_share: floor ÷ step.
        prefill_share: share of the time that prompts take, as a range, where it can be told.
        expected_step: seconds that such a step takes by the step model, before anything was observed.
        unexplained: what the step takes above the high end of that, seconds: kernels or host.
        calibration: what the observed step makes of the step model.
    """

    running: Quantity | None
    rate_per_running: Quantity | None
    step: Quantity | None
    floor: Quantity | None = None
    remainder: Quantity | None = None
    floor_share: Quantity | None = None
    prefill_share: Quantity | None = None
    expected_step: Quantity | None = None
    unexplained: Quantity | None = None
    calibration: Calibration | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            name: quantity.to_json() if quantity is not None else None
            for name, quantity in (
                ("running", self.running),
                ("output_tokens_per_s_per_running", self.rate_per_running),
                ("step_seconds", self.step),
                ("floor_seconds", self.floor),
                ("remainder_seconds", self.remainder),
                ("floor_share", self.floor_share),
                ("prefill_share", self.prefill_share),
                ("expected_step_seconds", self.expected_step),
                ("unexplained_seconds", self.unexplained),
            )
        }


def decompose(
    baseline: Baseline,
    floor: Floor | None,
    prefill_share: Quantity | None,
    expected: Expected | None = None,
) -> Decomposition:
    """Returns the factors of the baseline; what cannot be told is None."""
    running, each = baseline.get("running"), baseline.get("output_tokens_per_s_per_running")
    step = baseline.get("step_seconds")
    if floor is None or step is None or step.value <= 0:
        return Decomposition(
            running,
            each,
            step,
            prefill_share=prefill_share,
            expected_step=expected.step if expected is not None else None,
        )
    least = floor.seconds
    low, high = step.range
    finished = baseline.get("output_tokens_per_s_finished_only")
    if finished is not None and running is not None and finished.value > 0:
        high = max(high, running.value / finished.value)  # the uncorrected rate bounds the step from above
    remainder = derived(step.value - least.value, "s", "step − achievable floor", step=step, floor=least)
    remainder = remainder.with_range(low - least.value, high - least.value)
    share = derived(
        min(1.0, least.value / step.value), "fraction", "achievable floor ÷ step", floor=least, step=step
    ).with_range(min(1.0, floor.datasheet.value / high), min(1.0, least.range[1] / low))
    found = Decomposition(running, each, step, least, remainder, share, prefill_share)
    if expected is None:
        return found
    return replace(
        found,
        expected_step=expected.step,
        unexplained=_unexplained(step, expected.step),
        calibration=expected.calibration,
    )


def _unexplained(step: Quantity, usual: Quantity) -> Quantity:
    """What a step takes above the high end of what is expected; nothing where it is below."""
    most = usual.range[1]
    low, high = (max(0.0, edge - most) for edge in step.range)
    return derived(
        max(0.0, step.value - most),
        "s",
        "step − high end of what is expected, at least 0",
        step=step,
        expected=usual,
    ).with_range(low, high)
