"""Time, injected: a monotonic clock for durations, and a virtual one for tests.

Durations are always differences of `monotonic()` seconds. `wall()` is only ever a label.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of headrace knows of time."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch; for labels, never for durations."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class VirtualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_seconds: float = 0.0, wall_seconds: float = 1_767_225_600.0) -> None:
        self._now = start_seconds
        self._wall = wall_seconds - start_seconds

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall + self._now

    def advance(self, seconds: float) -> None:
        """Moves the clock forward. Raises ValueError for a negative step."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back: {seconds} s")
        self._now += seconds
