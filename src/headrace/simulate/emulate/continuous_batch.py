"""Continuous batching in closed form: when emulated requests start, make tokens and finish.

The engine does one thing at a time. At every boundary (the end of a prefill or of a decode step) finished
and aborted requests leave, then as many queued requests as fit are admitted in order and prefilled together,
else the whole batch decodes one more token each. Between two events the batch is constant, so a decode step
lasts `a + b * batch + c * context` seconds and m steps in a row sum up in closed form: nothing here ever
walks token by token.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

from headrace.simulate.emulate.timing import Finished, Load, StepTimes


class _Live:
    """A request inside the engine."""

    __slots__ = (
        "aborted",
        "admitted_at",
        "finish_step",
        "first_token_at",
        "key",
        "output_tokens",
        "prompt_tokens",
        "submitted_at",
    )

    def __init__(self, key: int, prompt_tokens: int, output_tokens: int, submitted_at: float) -> None:
        self.key = key
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.submitted_at = submitted_at
        self.admitted_at = -1.0
        self.first_token_at = -1.0
        self.finish_step = -1  # the decode step, counted since the start, whose end is this request's end
        self.aborted = False


class ContinuousBatch:
    """A continuous-batching engine with a cap, a first-come-first-served queue and a KV pool.

    A request is admitted only when its whole length fits in the pool, so nothing is ever retracted: a
    simplification of the real admission, which bets on a fraction of the length and may lose.

    Args:
        cap: most requests that run at once.
        kv_tokens: size of the KV pool, in tokens.
        step_times: how long the work takes.
        prefill_batch_tokens: most prompt tokens of one prefill (one request may always go alone).
    """

    def __init__(
        self, cap: int, kv_tokens: int, step_times: StepTimes, prefill_batch_tokens: int = 16_384
    ) -> None:
        self._cap = cap
        self._kv_tokens = kv_tokens
        self._times = step_times
        self._prefill_batch_tokens = prefill_batch_tokens
        self._live: dict[int, _Live] = {}
        self._queue: deque[_Live] = deque()  # may hold aborted ones; they are skipped
        self._queued = 0
        self._queued_tokens = 0
        self._decoding: list[tuple[int, int, _Live]] = []  # heap by finish_step, then key
        self._prefilling: list[_Live] = []
        self._doomed: list[_Live] = []  # aborted while decoding: leave at the next boundary
        self._reserved_tokens = 0
        self._context_tokens = 0  # of `_decoding`, as of the start of the phase
        self._phase_start = 0.0
        self._phase_end: float | None = None  # None: idle
        self._stretch_steps = 0  # decode steps in this phase; 0 in a prefill
        self._stretch_linear = 0.0  # m steps of it last linear * m + quadratic * m * m seconds
        self._stretch_quadratic = 0.0
        self._steps_done = 0  # decode steps before this phase
        self._decode_tokens_done = 0
        self._prompt_tokens_done = 0
        self._prefills_done = 0
        self._tokens_per_second = 0.0
        self._outbox: list[Finished] = []

    @property
    def running(self) -> int:
        """Requests admitted and not yet gone."""
        return len(self._decoding) + len(self._prefilling)

    @property
    def queued(self) -> int:
        """Requests that wait for admission."""
        return self._queued

    def submit(self, key: int, prompt_tokens: int, output_tokens: int, now: float) -> None:
        if key in self._live:
            raise ValueError(f"request key {key} is already in the engine; keys must be unique")
        if output_tokens < 1:
            raise ValueError(f"a request makes at least 1 token, not {output_tokens}")
        self._run_to(now)
        live = _Live(key, prompt_tokens, output_tokens, now)
        self._live[key] = live
        self._queue.append(live)
        self._queued += 1
        self._queued_tokens += prompt_tokens
        if self._phase_end is None:
            self._begin_phase(now)
        elif self._stretch_steps and self._fits(self._first_queued()):
            self._stop_at_next_boundary(now)

    def abort(self, key: int, now: float) -> None:
        self._run_to(now)
        live = self._live.get(key)
        if live is None or live.aborted:
            return
        live.aborted = True
        if live.admitted_at < 0:
            self._queued -= 1
            self._queued_tokens -= live.prompt_tokens
            live.admitted_at = live.first_token_at = now
            self._leave(live, 0, now)
            if self._stretch_steps and self._fits(self._first_queued()):
                self._stop_at_next_boundary(now)
        elif live.finish_step >= 0:
            self._doomed.append(live)
            self._stop_at_next_boundary(now)

    def advance(self, now: float) -> list[Finished]:
        self._run_to(now)
        done = self._outbox
        if done:
            self._outbox = []
        return done

    def next_event_time(self) -> float | None:
        if self._outbox:
            return self._outbox[0].finished_at
        return self._phase_end

    def generated(self, key: int, now: float) -> int:
        self._run_to(now)
        live = self._live.get(key)
        if live is None or live.finish_step < 0:
            return 0
        steps = self._steps_done + self._whole_steps(now)
        return live.output_tokens - (live.finish_step - steps)

    def load(self, now: float) -> Load:
        self._run_to(now)
        steps = self._whole_steps(now)
        made = steps * len(self._decoding)
        prefilling = sum(live.prompt_tokens for live in self._prefilling)
        return Load(
            running=self.running,
            queued=self._queued,
            context_tokens=self._context_tokens + made + prefilling,
            queued_tokens=self._queued_tokens,
            prompt_tokens_done=self._prompt_tokens_done,
            decode_tokens_done=self._decode_tokens_done + made,
            prefills_done=self._prefills_done,
            decode_steps_done=self._steps_done + steps,
            tokens_per_second=self._tokens_per_second,
        )

    def check(self) -> None:
        """Raises AssertionError when the books do not balance; for tests."""
        assert self.running <= self._cap
        assert self._queued == sum(1 for live in self._queue if not live.aborted)
        assert self._queued_tokens == sum(live.prompt_tokens for live in self._queue if not live.aborted)
        inside = [live for _, _, live in self._decoding] + self._prefilling
        assert len(self._live) == self._queued + len(inside)
        assert self._reserved_tokens == sum(live.prompt_tokens + live.output_tokens for live in inside)
        context = sum(
            live.prompt_tokens + live.output_tokens - (live.finish_step - self._steps_done)
            for _, _, live in self._decoding
        )
        assert self._context_tokens == context
        assert (self._phase_end is None) == (not inside)

    def _run_to(self, now: float) -> None:
        while self._phase_end is not None and self._phase_end <= now:
            end = self._phase_end
            self._end_phase(end)
            self._begin_phase(end)

    def _end_phase(self, end: float) -> None:
        if self._stretch_steps:
            steps, batch = self._stretch_steps, len(self._decoding)
            self._steps_done += steps
            self._context_tokens += steps * batch
            self._decode_tokens_done += steps * batch
            self._stretch_steps = 0
        else:
            for live in self._prefilling:
                live.first_token_at = end
                live.finish_step = self._steps_done + live.output_tokens - 1
                heapq.heappush(self._decoding, (live.finish_step, live.key, live))
                self._context_tokens += live.prompt_tokens + 1
                self._prompt_tokens_done += live.prompt_tokens
                if live.aborted:
                    self._doomed.append(live)
            if self._prefilling:
                self._prefills_done += 1
            self._prefilling = []
        while self._decoding and self._decoding[0][0] <= self._steps_done:
            _, _, live = heapq.heappop(self._decoding)
            live.aborted = False  # it was through before the abort took effect
            self._release(live, live.output_tokens, end)
        if self._doomed:
            gone = {live.key for live in self._doomed if live.aborted}
            if gone:
                self._decoding = [entry for entry in self._decoding if entry[1] not in gone]
                heapq.heapify(self._decoding)
            for live in self._doomed:
                if live.aborted:
                    tokens = live.output_tokens - (live.finish_step - self._steps_done)
                    self._release(live, tokens, end)
            self._doomed = []

    def _release(self, live: _Live, tokens: int, now: float) -> None:
        self._reserved_tokens -= live.prompt_tokens + live.output_tokens
        self._context_tokens -= live.prompt_tokens + tokens
        self._leave(live, tokens, now)

    def _leave(self, live: _Live, tokens: int, now: float) -> None:
        del self._live[live.key]
        self._outbox.append(
            Finished(
                live.key,
                tokens,
                live.aborted,
                live.submitted_at,
                live.admitted_at,
                live.first_token_at,
                now,
            )
        )

    def _begin_phase(self, now: float) -> None:
        """Admits what fits, then starts a prefill, a decode stretch, or nothing."""
        self._phase_start = now
        batch_tokens = 0
        while (live := self._first_queued()) is not None and self._fits(live):
            if self._prefilling and batch_tokens + live.prompt_tokens > self._prefill_batch_tokens:
                break
            self._queue.popleft()
            self._queued -= 1
            self._queued_tokens -= live.prompt_tokens
            live.admitted_at = now
            self._prefilling.append(live)
            self._reserved_tokens += live.prompt_tokens + live.output_tokens
            batch_tokens += live.prompt_tokens
        times = self._times
        if self._prefilling:
            seconds = times.prefill_step_seconds + times.prefill_seconds_per_token * batch_tokens
            self._phase_end = now + seconds
        elif self._decoding:
            batch = len(self._decoding)
            first_step = (
                times.decode_step_seconds
                + times.decode_seconds_per_request * batch
                + times.decode_seconds_per_context_token * self._context_tokens
            )
            self._stretch_quadratic = times.decode_seconds_per_context_token * batch / 2
            self._stretch_linear = first_step - self._stretch_quadratic
            self._set_stretch(self._decoding[0][0] - self._steps_done)
            self._tokens_per_second = batch / first_step if first_step > 0 else 0.0
        else:
            self._phase_end = None

    def _first_queued(self) -> _Live | None:
        while self._queue and self._queue[0].aborted:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def _fits(self, live: _Live | None) -> bool:
        if live is None or self.running >= self._cap:
            return False
        needed = live.prompt_tokens + live.output_tokens
        return self.running == 0 or self._reserved_tokens + needed <= self._kv_tokens

    def _set_stretch(self, steps: int) -> None:
        self._stretch_steps = steps
        self._phase_end = self._phase_start + self._seconds_of(steps)

    def _seconds_of(self, steps: int) -> float:
        return (self._stretch_linear + self._stretch_quadratic * steps) * steps

    def _whole_steps(self, now: float) -> int:
        """Decode steps of this phase that have ended by `now`."""
        if not self._stretch_steps:
            return 0
        elapsed = now - self._phase_start
        linear, quadratic = self._stretch_linear, self._stretch_quadratic
        if quadratic > 0:
            estimate = (math.sqrt(linear * linear + 4 * quadratic * elapsed) - linear) / (2 * quadratic)
        elif linear > 0:
            estimate = elapsed / linear
        else:
            return self._stretch_steps
        steps = min(int(estimate), self._stretch_steps)
        while steps < self._stretch_steps and self._seconds_of(steps + 1) <= elapsed:
            steps += 1
        while steps > 0 and self._seconds_of(steps) > elapsed:
            steps -= 1
        return steps

    def _stop_at_next_boundary(self, now: float) -> None:
        """Cuts the decode stretch at the end of the step that is under way."""
        if not self._stretch_steps:
            return
        steps = self._whole_steps(now)
        if self._phase_start + self._seconds_of(steps) < now:
            steps += 1
        if steps == 0:  # the stretch has only just begun: this is still the boundary
            self._stretch_steps = 0
            self._end_phase(now)
            self._begin_phase(now)
        elif steps < self._stretch_steps:
            self._set_stretch(steps)
