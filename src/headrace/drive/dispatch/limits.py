"""How many requests in flight one server gets: as configured, or found out (`auto`). Pure.

auto, cap reported: the cap and a small standing queue, so that a finished request is replaced in the
same step. auto, cap unknown: climb while nothing queues at the server; once it queues, what runs is its
cap. 429 and 503 step back, once a second at most; the way up again is quick while nothing queues there.
"""

from __future__ import annotations

from headrace.drive.signals import LoadSignal

FIRST_LIMIT = 16  # before anything is known
STANDING_SHARE = 8  # the standing queue is an eighth of the cap, at least …
STANDING_MIN = 2
CLIMB = 1.25
STEP_BACK = 0.75
STEP_BACK_SECONDS = 1.0  # a burst of refusals is one refusal
UNKNOWN_MAX = 32  # servers that tell nothing at all: no climbing in the dark


def standing_queue(cap: int) -> int:
    """Requests that should wait at a server with this cap, so that no slot idles between two requests."""
    return max(STANDING_MIN, cap // STANDING_SHARE)


class InFlightLimit:
    """The limit of one server.

    Args:
        configured: the user's number; None = auto.
    """

    def __init__(self, configured: int | None) -> None:
        self._configured = configured
        self.value = configured if configured is not None else FIRST_LIMIT
        self.origin = "configured" if configured is not None else "climbing"
        self._held_back = False
        self._stepped_back = float("-inf")

    def on_signal(self, signal: LoadSignal | None, in_flight: int) -> int:
        """The limit after a look at the server's load."""
        if self._configured is not None:
            return self.value
        if signal is None or (signal.cap is None and signal.queued is None):
            self.origin, self.value = "climbing", UNKNOWN_MAX
        elif signal.cap is not None:
            self.origin = "reported"
            target = signal.cap + standing_queue(signal.cap)
            if self._held_back and self.value < target:
                share = 4 if signal.queued == 0 else 20
                self.value = min(target, self.value + max(1, target // share))
            else:
                self._held_back, self.value = False, target
        else:
            self._climb(signal, in_flight)
        return self.value

    def on_later(self, in_flight: int, now: float) -> int:
        """The limit after a 429 or 503 at `now` (monotonic seconds)."""
        if self._configured is None and now - self._stepped_back >= STEP_BACK_SECONDS:
            self._stepped_back = now
            self.value = max(1, min(self.value, int(in_flight * STEP_BACK)))
            self._held_back = True
        return self.value

    def _climb(self, signal: LoadSignal, in_flight: int) -> None:
        self.origin = "climbing"
        running, queued = signal.running or 0, signal.queued or 0
        if queued > standing_queue(max(running, 1)):
            self.value = max(1, running + standing_queue(max(running, 1)))
        elif queued == 0 and in_flight >= 0.9 * self.value:
            self.value = int(self.value * CLIMB) + 1
