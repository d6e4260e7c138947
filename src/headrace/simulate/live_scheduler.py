"""One scheduler of the kernel driven from outside: submit, abort, advance to a moment, the next event.

A timing core for the emulated server (`emulate.timing.TimingCore`): the same kernel that simulates whole
fleets, with requests that come when a client sends them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.simulate.emulate.timing import Finished, Load
from headrace.simulate.fleet import ServerKind
from headrace.simulate.kernel import passes
from headrace.simulate.kernel.pools import pages_after, states_used
from headrace.simulate.kernel.records import (
    ABORTED,
    BOUNDARY,
    DECODE,
    DONE,
    IDLE,
    OUT_OF_MEMORY,
    REQUEST,
    RUNNING,
    World,
    column,
    fill,
    new_requests,
    new_world,
)
from headrace.simulate.kernel.seconds import whole_steps

_FIRST_ROOM = 256


class LiveScheduler:
    """A scheduler that stands still until it is asked. `now` never goes back; keys are unique while live.

    Args:
        kind: rules and seconds of the server.
    """

    def __init__(self, kind: ServerKind) -> None:
        self._rows: dict[int, int] = {}  # key → request
        self._keys: dict[int, int] = {}  # request → key
        self._free = list(range(_FIRST_ROOM - 1, -1, -1))
        self._submitted: dict[int, float] = {}
        self._outbox: list[Finished] = []
        self._world: World = new_world(
            [kind.rules.rules],
            kind.decode_fixed[None, :],
            kind.decode_context[None, :],
            [0],
            _blank(_FIRST_ROOM),
        )

    @property
    def running(self) -> int:
        """Requests admitted and not yet gone."""
        slots = self._world.slots[0]
        return sum(slots[i].flag == RUNNING for i in range(self._scheduler.slots))

    @property
    def queued(self) -> int:
        """Requests that wait for admission."""
        return int(self._scheduler.waiting)

    @property
    def _scheduler(self) -> Any:
        return self._world.schedulers[0]

    def submit(
        self, key: int, prompt_tokens: int, output_tokens: int, now: float, asked_tokens: int | None = None
    ) -> None:
        """Puts a request in the queue; it will make exactly `output_tokens` unless aborted.

        Args:
            asked_tokens: its max_tokens, which admission goes by; None: what it makes.
        """
        if key in self._rows:
            raise ValueError(f"request key {key} is already in the engine; keys must be unique")
        if output_tokens < 1:
            raise ValueError(f"a request makes at least 1 token, not {output_tokens}")
        self._run_to(now)
        if not self._free:
            self._grow()
        row = self._free.pop()
        request = self._world.requests[row]
        request.input, request.output = max(1, prompt_tokens), output_tokens
        request.asked = max(output_tokens, asked_tokens or output_tokens)
        request.rate, request.group, request.after = 1.0, -1, -1
        request.outcome, request.retractions, request.made = 0, 0, 0.0
        request.admitted = request.first_token = request.finished = math.nan
        self._rows[key], self._keys[row], self._submitted[row] = row, key, now
        passes.submit(self._world, 0, row, now)
        self._compose(now)

    def abort(self, key: int, now: float) -> None:
        """Ends a request early: in the queue at once, in the batch at the next boundary."""
        self._run_to(now)
        row = self._rows.get(key)
        if row is None:
            return
        passes.abort(self._world, 0, row, now)
        self._collect()
        self._compose(now)

    def advance(self, now: float) -> list[Finished]:
        """Returns what ended up to `now` and was not reported before, in order."""
        self._run_to(now)
        done, self._outbox = self._outbox, []
        return done

    def next_event_time(self) -> float | None:
        """Engine seconds of the next change by itself; None when idle."""
        if self._outbox:
            return self._outbox[0].finished_at
        end = float(self._scheduler.phase_end)
        return None if end == math.inf else end

    def generated(self, key: int, now: float) -> int:
        """Tokens that a live request has made by `now`; 0 for a queued or unknown one."""
        self._run_to(now)
        row = self._rows.get(key)
        if row is None:
            return 0
        steps = whole_steps(self._scheduler, now)
        slots = self._world.slots[0]
        for i in range(self._scheduler.slots):
            if slots[i].request == row and slots[i].flag == RUNNING:
                return int(slots[i].made + slots[i].rate * steps * (slots[i].todo == 0.0))
        return int(self._world.requests[row].made)

    def load(self, now: float) -> Load:
        """The engine's load at `now`."""
        self._run_to(now)
        scheduler, slots = self._scheduler, self._world.slots[0]
        steps = whole_steps(scheduler, now)
        live = [slots[i] for i in range(scheduler.slots) if slots[i].flag == RUNNING]
        lanes = sum(slot.todo == 0.0 for slot in live)
        made = steps * lanes
        context = sum(float(slot.input + slot.made) for slot in live)
        step_seconds = float(scheduler.linear + scheduler.quadratic) if scheduler.phase == DECODE else 0.0
        return Load(
            running=len(live),
            queued=int(scheduler.waiting),
            context_tokens=int(context + made),
            queued_tokens=int(scheduler.waiting_tokens),
            prompt_tokens_done=int(scheduler.prefilled),
            decode_tokens_done=int(scheduler.generated - scheduler.firsts) + made,
            prefills_done=int(scheduler.prefills),
            decode_steps_done=int(scheduler.passes - scheduler.prefills) + steps,
            tokens_per_second=lanes / step_seconds if step_seconds > 0 else 0.0,
            kv_share=pages_after(self._world, 0, steps) / max(1, self._world.rules[0].pool_pages),
            state_slots=int(states_used(self._world, 0)),
            cached_tokens_done=int(scheduler.cached),
            retractions_done=int(scheduler.retracted),
            steps_done=int(scheduler.passes) + steps,
            first_tokens_done=int(scheduler.firsts),
        )

    def check(self) -> None:
        """Raises AssertionError when the books do not balance; for tests."""
        scheduler, rule = self._scheduler, self._world.rules[0]
        assert scheduler.slots <= rule.cap + 1
        assert len(self._rows) == len(self._keys) == self.running + scheduler.waiting
        assert (scheduler.phase == IDLE) == (scheduler.slots == 0)
        waiting, row = 0, int(scheduler.first_waiting)
        while row >= 0:
            waiting, row = waiting + 1, int(self._world.requests[row].after)
        assert waiting == scheduler.waiting

    def _run_to(self, now: float) -> None:
        while self._scheduler.phase_end <= now:
            at = float(self._scheduler.phase_end)
            passes.end(self._world, 0)
            self._collect()
            self._compose(at)

    def _compose(self, now: float) -> None:
        scheduler = self._scheduler
        if scheduler.phase == BOUNDARY or (scheduler.phase == IDLE and scheduler.waiting > 0):
            passes.begin(self._world, 0, now)
            self._collect()

    def _collect(self) -> None:
        scheduler = self._scheduler
        for at in range(scheduler.ended):
            row = int(self._world.ended[0, at])
            request = self._world.requests[row]
            assert request.outcome in (DONE, ABORTED, OUT_OF_MEMORY)
            key = self._keys.pop(row)
            del self._rows[key]
            finished = float(request.finished)
            admitted, first = float(request.admitted), float(request.first_token)
            self._outbox.append(
                Finished(
                    key,
                    int(request.made),
                    request.outcome != DONE,
                    self._submitted.pop(row),
                    finished if math.isnan(admitted) else admitted,
                    finished if math.isnan(first) else first,
                    finished,
                )
            )
            self._free.append(row)
        scheduler.ended = 0

    def _grow(self) -> None:
        """Makes room for as many requests again."""
        old = self._world.requests
        count = len(old)
        larger = _blank(2 * count)
        for name in REQUEST:
            values = column(larger, name).copy()
            values[:count] = column(old, name)
            fill(larger, name, values)
        self._world = self._world._replace(requests=larger)
        self._free = list(range(2 * count - 1, count - 1, -1))


def _blank(count: int) -> Any:
    return new_requests(np.ones(count), np.ones(count), np.ones(count))
