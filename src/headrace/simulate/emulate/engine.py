"""The timing core driven by the event loop: submit a request, await its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.simulate.emulate.pace import Pace
from headrace.simulate.emulate.timing import Finished, Load, TimingCore

_SHORTEST_TICK_SECONDS = 0.01


class Flight:
    """One request inside the engine. `done` ends with it; cancelling `done` does not abort it."""

    __slots__ = ("done", "key", "streaming", "tokens_sent")

    def __init__(self, key: int, done: asyncio.Future[Finished], streaming: bool) -> None:
        self.key = key
        self.done = done
        self.streaming = streaming
        self.tokens_sent = -1


class Engine:
    """One timer for the whole batch: it wakes at the core's next event, not at every token.

    Args:
        core: a fresh timing core.
        speed: engine seconds per second.
        on_pass: told the load after every event of the core.
    """

    def __init__(self, core: TimingCore, speed: float, on_pass: Callable[[Load], None] | None = None) -> None:
        self._on_pass = on_pass
        self._loop = asyncio.get_running_loop()
        self._core = core
        self._pace = Pace(speed, self._loop.time())
        self._engine_now = 0.0
        self._flights: dict[int, Flight] = {}
        self._next_key = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_event = 0.0
        self._tick = asyncio.Event()
        self._tick_timer: asyncio.TimerHandle | None = None

    def submit(
        self,
        prompt_tokens: int,
        output_tokens: int,
        *,
        streaming: bool = False,
        asked_tokens: int | None = None,
    ) -> Flight:
        """Puts a request in the engine's queue; `asked_tokens` as `TimingCore.submit` takes it."""
        self._next_key += 1
        flight = Flight(self._next_key, self._loop.create_future(), streaming)
        self._flights[flight.key] = flight
        self._core.submit(flight.key, prompt_tokens, output_tokens, self._now(), asked_tokens)
        self._settle()
        return flight

    def abort(self, flight: Flight) -> None:
        """Ends a request at the next step; its slot becomes free and `done` says it was aborted."""
        self._core.abort(flight.key, self._now())
        self._settle()

    def generated(self, flight: Flight) -> int:
        """Tokens that a live request has made by now."""
        return self._core.generated(flight.key, self._now())

    def load(self) -> Load:
        """The engine's load now."""
        return self._core.load(self._now())

    def clock_seconds(self, engine_seconds: float) -> float:
        """A duration by the clock, at the present speed."""
        return engine_seconds / self._pace.speed

    def tokens_per_second(self, load: Load) -> float:
        """Generation by the clock: of the last decode step."""
        return load.tokens_per_second * self._pace.speed

    def set_speed(self, speed: float) -> None:
        """Goes on at another speed."""
        self._pace.set_speed(speed, self._loop.time())
        self._cancel_timer()
        self._settle()

    async def next_tick(self) -> None:
        """Waits until streams have something new: about a step, at least 10 ms, or a stream's end."""
        if self._tick_timer is None:
            load = self.load()
            rate = self.tokens_per_second(load) / max(1, load.running)
            step_seconds = 1 / rate if rate > 0 else _SHORTEST_TICK_SECONDS
            delay = min(max(step_seconds, _SHORTEST_TICK_SECONDS), 1.0)
            self._tick_timer = self._loop.call_later(delay, self._on_tick)
        await self._tick.wait()

    def stop(self) -> None:
        """Stops the timers; nothing ends by itself any more."""
        self._cancel_timer()
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None

    def _now(self) -> float:
        self._engine_now = max(self._engine_now, self._pace.engine_time(self._loop.time()))
        return self._engine_now

    def _settle(self) -> None:
        """Hands out what has finished and sets the timer to the next event."""
        stream_ended = False
        for finished in self._core.advance(self._now()):
            flight = self._flights.pop(finished.key)
            if not flight.done.done():
                flight.done.set_result(finished)
            stream_ended |= flight.streaming
        if stream_ended:
            self._on_tick()
        if self._on_pass is not None:
            self._on_pass(self.load())
        event = self._core.next_event_time()
        if event is None:
            self._cancel_timer()
        elif self._timer is None or event != self._timer_event:
            self._cancel_timer()
            self._timer_event = event
            self._timer = self._loop.call_at(self._pace.clock_time(event), self._on_timer)

    def _on_timer(self) -> None:
        # Loops may fire a little early (their timers count milliseconds): the event is due all the same.
        self._timer = None
        self._engine_now = max(self._engine_now, self._timer_event)
        self._settle()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_tick(self) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None
        self._tick.set()
        self._tick = asyncio.Event()
