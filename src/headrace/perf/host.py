"""Host time of a step: what the GPU waits for, with and without overlap, eager, and by running requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headrace.perf.efficiency import HostTime, is_old
from headrace.perf.load import Numbers
from headrace.perf.options import StepOptions
from headrace.perf.roofline import HIGH, LOW, MID
from headrace.quantities import Quantity, derived


@dataclass(frozen=True)
class Host:
    """How long the GPU idles per step, at one end of the host's figures.

    With overlap the host's own work hides behind the GPU's and shows only where it is longer; without, it
    adds. Eager kernels are launched one by one: a step takes at least that long.
    """

    times: HostTime
    overlaps: bool

    @classmethod
    def of(cls, times: HostTime, options: StepOptions) -> Host:
        """Returns the host of these options; overlap where nobody said is that of the engine's generation."""
        told = options.overlap
        old = is_old(options.engine, options.engine_version)
        return cls(times, (not old) if told is None else told)

    def busy(self, gpu_seconds: Numbers, eager_launches: Numbers, end: int = MID) -> Numbers:
        """Returns the seconds that the pass keeps the GPU, waiting for launches included.

        Args:
            eager_launches: kernels launched one by one; 0 where a graph runs.
        """
        return np.maximum(gpu_seconds, eager_launches * _end(self.times.launch_seconds, end))

    def whole(
        self, gpu_seconds: Numbers, requests: Numbers, eager_launches: Numbers, end: int = MID
    ) -> Numbers:
        """Returns the seconds from one step to the next.

        Args:
            requests: running requests, prompts included.
        """
        times = self.times
        work = _end(times.sequential_seconds, end) + requests * _end(times.per_sequence_seconds, end)
        launching = eager_launches * _end(times.launch_seconds, end)
        through = self.busy(gpu_seconds, eager_launches, end) + _end(times.gap_seconds, end)
        # one thread schedules and launches: with overlap it may be what the step waits for
        return np.maximum(through, work + launching) if self.overlaps else through + work

    def hides_below(self, requests: Numbers, eager_launches: Numbers) -> Numbers:
        """Returns the GPU seconds below which a step is no shorter: the host is what it waits for."""
        times = self.times
        launching = eager_launches * times.launch_seconds.value
        if not self.overlaps:
            return launching
        work = times.sequential_seconds.value + requests * times.per_sequence_seconds.value
        return launching + np.maximum(0.0, work - times.gap_seconds.value)

    def per_step(self) -> Quantity:
        """Returns the seconds that every step takes beside what keeps the GPU busy."""
        times = self.times
        if self.overlaps:
            return times.gap_seconds
        return derived(
            times.gap_seconds.value + times.sequential_seconds.value,
            "s",
            "gap + scheduling",
            gap=times.gap_seconds,
            scheduling=times.sequential_seconds,
        )

    def per_request(self) -> Quantity:
        """Returns the host's seconds per running request that show in a step: with overlap next to none,
        the low end."""
        each = self.times.per_sequence_seconds
        return replace(each, value=each.range[0]) if self.overlaps else each


def _end(quantity: Quantity, end: int) -> float:
    low, high = quantity.range
    return {LOW: low, MID: quantity.value, HIGH: high}[end]
