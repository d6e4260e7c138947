"""How fast engine time runs against the wall, changeable while it runs."""

from __future__ import annotations


class Pace:
    """A piecewise linear map between the monotonic clock and engine seconds.

    Args:
        speed: engine seconds per second of the clock; above 0.
        now: the clock's reading at the start; engine time starts at 0.
    """

    def __init__(self, speed: float, now: float) -> None:
        self.speed = speed
        self._clock_base = now
        self._engine_base = 0.0

    def engine_time(self, now: float) -> float:
        """Engine seconds at the clock's `now`."""
        return self._engine_base + (now - self._clock_base) * self.speed

    def clock_time(self, engine_time: float) -> float:
        """The clock's reading at an engine time, if the speed stays."""
        return self._clock_base + (engine_time - self._engine_base) / self.speed

    def set_speed(self, speed: float, now: float) -> None:
        """Goes on at another speed from `now` on. Raises ValueError for a speed of 0 or less."""
        if speed <= 0:
            raise ValueError(f"speed {speed} must be above 0; use hang to stop a server")
        self._engine_base = self.engine_time(now)
        self._clock_base = now
        self.speed = speed
