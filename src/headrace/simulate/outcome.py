"""What a simulated job came to: times, rates, pools over time, and what bound for which share of the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.simulate.kernel.records import CAUSES

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """Samples of every scheduler on one grid.

    `columns` maps a name of `kernel.series.COLUMNS` to schedulers × samples; gauges as of that moment, totals
    since the start.
    """

    seconds: Floats
    columns: Mapping[str, Floats]


@dataclass(frozen=True)
class Outcome:
    """A job simulated on a fleet of servers.

    Attributes:
        seconds: simulated: the makespan where all is done.
        prompts, finished, failed: requests; failed ones did not fit even alone.
        stuck: why nothing went on although requests were unfinished, or "".
        generated_tokens, completed_tokens, lost_tokens: made; of finished requests; made and thrown away.
        prefilled_tokens, cached_tokens: prompt tokens computed, again after a retraction too; found cached.
        mean_latency_seconds, mean_first_token_seconds: of finished requests, from sending.
        mean_token_seconds: mean over finished requests of seconds per output token after the first.
        ramp_seconds: the first mean latency: until then few have finished, and they alone mislead.
        tail_seconds: from the sending of the last prompt to the end.
        cap, kv_capacity_tokens, state_slots, page_tokens: of one scheduler.
        cause_shares: of all schedulers' time, by CAUSES: idle; client (fewer running than the cap, nothing
            queued); slots (the cap); tokens (KV pool or admission); prefill; tail (no prompt left).
        retractions: of requests (preemptions).
        passes, prefills: of all schedulers.
        servers, schedulers, gpus: of the whole fleet.
        finish_seconds: when each finished request did, in order.
    """

    seconds: float
    prompts: int
    finished: int
    failed: int
    stuck: str
    generated_tokens: float
    completed_tokens: float
    lost_tokens: float
    prefilled_tokens: float
    cached_tokens: float
    mean_latency_seconds: float
    mean_first_token_seconds: float
    mean_token_seconds: float
    ramp_seconds: float
    tail_seconds: float
    cap: int
    kv_capacity_tokens: float
    state_slots: float | None
    page_tokens: int
    cause_shares: Mapping[str, float]
    retractions: int
    passes: int
    prefills: int
    servers: int
    schedulers: int
    gpus: float
    timeline: Timeline
    finish_seconds: Floats
    notes: tuple[str, ...] = field(default=())

    @property
    def tokens_per_second(self) -> float:
        """Tokens generated per second, of the whole fleet and time."""
        return self.generated_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def completed_tokens_per_second(self) -> float:
        """Tokens of finished requests per second: what a client that counts answers sees."""
        return self.completed_tokens / self.seconds if self.seconds > 0 else 0.0

    def finished_at(self, seconds: float) -> int:
        """Requests finished by then."""
        return int(np.searchsorted(self.finish_seconds, seconds, side="right"))

    def steady_window(self) -> tuple[float, float]:
        """(begin, end) of the stretch between ramp and tail; all but the first tenth where there is none."""
        begin, end = self.ramp_seconds, self.seconds - self.tail_seconds
        if end - begin < max(self.ramp_seconds, 2 * self._step()):
            begin, end = 0.1 * self.seconds, self.seconds
        return begin, end

    def _step(self) -> float:
        times = self.timeline.seconds
        return float(times[1] - times[0]) if len(times) > 1 else 0.0

    def _window(self) -> NDArray[np.bool_]:
        begin, end = self.steady_window()
        times = self.timeline.seconds
        inside = (times >= begin) & (times <= end)
        return inside if np.any(inside) else np.ones_like(inside)

    def mean(self, column: str) -> float:
        """Mean of a gauge in the steady window, of one scheduler."""
        values = self.timeline.columns[column][:, self._window()]
        return float(values.mean()) if values.size else 0.0

    def rate(self, column: str) -> float:
        """Rise of a total per second in the steady window, of the whole fleet."""
        inside = np.flatnonzero(self._window())
        if len(inside) < 2:
            return self.tokens_per_second if column == "generated" else 0.0
        times, values = self.timeline.seconds, self.timeline.columns[column]
        rise = values[:, inside[-1]].sum() - values[:, inside[0]].sum()
        return float(rise / (times[inside[-1]] - times[inside[0]]))

    def steady(self) -> dict[str, float | None]:
        """What one scheduler shows in the steady window: requests, fractions of pools, rates per GPU."""
        steps = self.rate("passes") / self.schedulers
        shown: dict[str, float | None] = {
            "running": self.mean("running"),
            "queued": self.mean("queued"),
            "context_tokens": self.mean("context_tokens"),
            "kv_usage": self.mean("kv_pages") * self.page_tokens / max(1.0, self.kv_capacity_tokens),
            "state_usage": self.mean("state_slots") / self.state_slots if self.state_slots else None,
            "output_tokens_per_s": self.rate("generated"),
            "output_tokens_per_s_per_gpu": self.rate("generated") / self.gpus,
            "requests_per_s": self._finished_per_second(),
            "step_seconds": 1 / steps if steps > 0 else None,
        }
        return shown

    def _finished_per_second(self) -> float:
        begin, end = self.steady_window()
        if end <= begin:
            return 0.0
        return (self.finished_at(end) - self.finished_at(begin)) / (end - begin)

    def to_json(self) -> dict[str, Any]:
        """Returns everything but the series as plain JSON."""
        return {
            "seconds": self.seconds,
            "prompts": self.prompts,
            "finished": self.finished,
            "failed": self.failed,
            "stuck": self.stuck or None,
            "servers": self.servers,
            "gpus": self.gpus,
            "cap": self.cap,
            "kv_capacity_tokens": self.kv_capacity_tokens,
            "state_slots": self.state_slots,
            "generated_tokens": self.generated_tokens,
            "completed_tokens": self.completed_tokens,
            "lost_tokens": self.lost_tokens,
            "prefilled_tokens": self.prefilled_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens_per_s": self.tokens_per_second,
            "output_tokens_per_s_per_gpu": self.tokens_per_second / self.gpus,
            "output_tokens_per_s_finished_only": self.completed_tokens_per_second,
            "mean_latency_s": self.mean_latency_seconds,
            "mean_ttft_s": self.mean_first_token_seconds,
            "mean_tpot_s": self.mean_token_seconds,
            "ramp_seconds": self.ramp_seconds,
            "tail_seconds": self.tail_seconds,
            "retractions": self.retractions,
            "passes": self.passes,
            "prefills": self.prefills,
            "time_shares": {name: self.cause_shares[name] for name in CAUSES},
            "steady": self.steady(),
            "notes": list(self.notes),
        }
