"""The seam between the emulated server and time: what a timing core is asked, and what it answers.

The core is the simulator's own scheduler (`simulate.live_scheduler`, made by `core`). All times are engine
seconds, injected as `now`: speed factors live in `pace`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of the engine's two kinds of work.

    The defaults are placeholders (origin: assumed) until the simulator derives them from model and device.
    They stand for a 27 B parameter bf16 hybrid on one GPU of 1.8 TB/s and about 200 achieved TFLOP/s:
    54 GB of weights read at 83 % of the bandwidth = 0.036 s per decode step; about 0.3 GB of recurrent
    state read and written per request = 0.17 ms; 65,536 bytes of KV per context token at 80 % of the
    bandwidth = 46 ns; 2 x 27e9 FLOP per prompt token = 0.27 ms.
    """

    decode_step_seconds: float = 0.036
    decode_seconds_per_request: float = 0.00017
    decode_seconds_per_context_token: float = 46e-9
    prefill_step_seconds: float = 0.036
    prefill_seconds_per_token: float = 0.00027


class Finished(NamedTuple):
    """One request that left the engine. Times are engine seconds."""

    key: int
    tokens: int  # generated; for an aborted one, as many as it had
    aborted: bool
    submitted_at: float
    admitted_at: float  # = finished_at for one that was aborted in the queue
    first_token_at: float
    finished_at: float


@dataclass(frozen=True, slots=True)
class Load:
    """What the engine holds and has done, at one moment.

    Attributes:
        running, queued: requests.
        context_tokens: resident tokens of the running requests (prompt and generated so far).
        queued_tokens: prompt tokens that wait for prefill.
        prompt_tokens_done, decode_tokens_done, prefills_done, decode_steps_done: since the start.
        tokens_per_second: of the last decode step, in engine seconds; 0 before the first.
        kv_share: of the KV pool's pages that running requests hold, 0 to 1.
        state_slots: held, where there is a pool of them.
        cached_tokens_done, retractions_done: since the start.
        steps_done: passes of any kind, since the start.
        first_tokens_done: requests whose prompt is through, since the start.
    """

    running: int
    queued: int
    context_tokens: int
    queued_tokens: int
    prompt_tokens_done: int
    decode_tokens_done: int
    prefills_done: int
    decode_steps_done: int
    tokens_per_second: float
    kv_share: float = 0.0
    state_slots: int = 0
    cached_tokens_done: int = 0
    retractions_done: int = 0
    steps_done: int = 0
    first_tokens_done: int = 0


class TimingCore(Protocol):
    """What the emulated server asks of time. `now` never goes back; keys are unique among live requests."""

    @property
    def running(self) -> int: ...

    @property
    def queued(self) -> int: ...

    def submit(
        self, key: int, prompt_tokens: int, output_tokens: int, now: float, asked_tokens: int | None = None
    ) -> None:
        """Puts a request in the queue; it will make exactly `output_tokens` (at least 1) unless aborted.

        `asked_tokens` is its max_tokens, which admission goes by; None: what it makes.
        """
        ...

    def abort(self, key: int, now: float) -> None:
        """Ends a request early; it leaves at the next boundary. Unknown keys are let pass."""
        ...

    def advance(self, now: float) -> list[Finished]:
        """Returns the requests that finished up to `now` and were not reported before, in order."""
        ...

    def next_event_time(self) -> float | None:
        """Engine seconds of the next change by itself; None when idle."""
        ...

    def generated(self, key: int, now: float) -> int:
        """Tokens that a live request has made by `now`; 0 for a queued or unknown one."""
        ...

    def load(self, now: float) -> Load:
        """The engine's load at `now`."""
        ...
