"""The status document of a driver at this moment."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.drive.dispatch.endpoint import Endpoint, EndpointState
from headrace.drive.status import EndpointStatus, JobStatus, SourceStatus
from headrace.drive.store.index import PromptIndex
from headrace.drive.store.states import State
from headrace.words import Flag

if TYPE_CHECKING:
    from headrace.drive.driver import Driver

TOLD_SECONDS = 2.0  # a shorter wait for all servers at once is not worth a word


def snapshot(driver: Driver, index: PromptIndex | None) -> JobStatus:
    """How the job stands now. `index` is None while the prompts are still being read."""
    now = driver.clock.monotonic()
    progress, dispatcher = driver.progress, driver.dispatcher
    over = driver.phase in ("finished", "stopped")
    rates = progress.whole_run(now) if over else progress.rates()
    ages = sum(e.in_flight * now - e.started_sum for e in dispatcher.endpoints.values())
    in_flight_tokens = progress.in_flight_tokens(max(ages, 0.0))
    rows = index.counts() if index is not None else {}
    others = index.other_rows() if index is not None else 0
    sources = _sources(driver, index)
    pending = rows.get(State.PENDING, 0)
    remaining = [source.rows - source.done - source.failed - source.excluded for source in sources]
    return JobStatus(
        out=str(driver.job.out),
        pid=os.getpid(),
        host=socket.gethostname(),
        phase="paused" if driver.phase == "running" and _paused(driver) else driver.phase,
        message=_message(driver),
        wall_time=driver.clock.wall(),
        elapsed_seconds=now - driver.started,
        rows=sum(count for state, count in rows.items() if state != State.GONE) - others,
        done=rows.get(State.DONE, 0) - others,
        failed=rows.get(State.FAILED, 0) + rows.get(State.UNREADABLE, 0),
        excluded=rows.get(State.EXCLUDED, 0),
        duplicates=len(index.duplicates) if index is not None else 0,
        pending=pending,
        in_flight=dispatcher.in_flight(),
        in_flight_limit=dispatcher.limit(),
        done_this_run=progress.answers,
        tries_this_run=driver.sender.sent,
        requests_per_second=rates.requests_per_second,
        output_tokens_per_second=rates.tokens_per_second,
        output_tokens_per_second_finished=rates.finished_tokens_per_second,
        in_flight_tokens=in_flight_tokens,
        settled=progress.settled(now),
        mean_output_tokens=progress.mean_tokens(),
        median_latency_seconds=progress.median_latency(),
        eta_seconds=0.0 if over else _eta(driver, now, remaining, in_flight_tokens, rates.tokens_per_second),
        flags=_flags(driver),
        errors=dict(progress.errors),
        failures=dict(driver.failures),
        hedged=progress.hedged,
        endpoints=[_endpoint(driver, e, rates.by_server) for e in dispatcher.endpoints.values()],
        sources=sources,
        other_rows=others + (driver.store.unknown_rows if index is not None else 0),
        notes=list(driver.notes),
    )


def _sources(driver: Driver, index: PromptIndex | None) -> list[SourceStatus]:
    by_source = index.counts_by_source() if index is not None else None
    found = []
    for number, source in enumerate(driver.job.sources):
        counts: Sequence[int] | np.ndarray = by_source[number] if by_source is not None else [0] * len(State)
        answers = driver.progress.sources[number]
        found.append(
            SourceStatus(
                name=source.name,
                rows=int(sum(counts)) - int(counts[State.GONE]),
                done=int(counts[State.DONE]),
                failed=int(counts[State.FAILED]) + int(counts[State.UNREADABLE]),
                excluded=int(counts[State.EXCLUDED]),
                mean_output_tokens=answers.mean_tokens(),
                truncated=answers.truncated,
            )
        )
    return found


def _endpoint(driver: Driver, endpoint: Endpoint, by_server: dict[str, float]) -> EndpointStatus:
    load = driver.servers.signals.get(endpoint.url)
    state = EndpointState.BROKEN if endpoint.state is EndpointState.TRIAL else endpoint.state
    return EndpointStatus(
        url=endpoint.url,
        state=state.value,
        why=endpoint.why,
        in_flight=endpoint.in_flight,
        limit=endpoint.limit,
        limit_origin=driver.servers.limits[endpoint.url].origin,
        cap=load.cap if load else None,
        running=load.running if load else None,
        queued=load.queued if load else None,
        answered=endpoint.answered,
        errors=dict(endpoint.errors),
        output_tokens_per_second=_server_rate(endpoint, by_server),
        median_latency_seconds=endpoint.median_latency(),
    )


def _server_rate(endpoint: Endpoint, by_server: dict[str, float]) -> float | None:
    """Its output tokens per second: none while it runs nothing, whatever it did a minute ago."""
    if not endpoint.answered:
        return None
    return by_server.get(endpoint.url) if endpoint.in_flight else 0.0


def _flags(driver: Driver) -> dict[str, int]:
    refused = driver.failures[Flag.REFUSED.value]
    return dict(driver.progress.flags) | ({Flag.REFUSED.value: refused} if refused else {})


def _eta(
    driver: Driver, now: float, remaining: list[int], in_flight_tokens: float | None, rate: float | None
) -> float | None:
    """Seconds left by tokens; at least what the youngest request in flight may still need."""
    by_tokens = driver.progress.eta_seconds(remaining, in_flight_tokens or 0.0, rate)
    longest = driver.dispatcher.longest_latency()
    if by_tokens is None or longest is None or not driver.dispatcher.flights:
        return by_tokens
    youngest = max(flight.started for flight in driver.dispatcher.flights)
    return max(by_tokens, longest - (now - youngest), 1.0)


def _paused(driver: Driver) -> bool:
    takes = (EndpointState.REACHABLE, EndpointState.LIMITED, EndpointState.TRIAL)
    return driver.trouble is not None or not any(
        e.state in takes for e in driver.dispatcher.endpoints.values()
    )


def _message(driver: Driver) -> str:
    if driver.trouble is not None:
        return driver.trouble
    if driver.phase == "running" and _paused(driver):
        endpoints = list(driver.dispatcher.endpoints.values())
        if not endpoints:
            return f"no server is left: `headrace fleet add URL --job {driver.job.out}`"
        said = "; ".join(f"{e.url}: {e.state.value}, {e.why}" for e in endpoints[:3])
        return f"no server takes requests ({said}); the job goes on when one does"
    if driver.phase == "running":
        now = driver.clock.monotonic()
        endpoints = list(driver.dispatcher.endpoints.values())
        waits = [e.not_before - now for e in endpoints if e.state is EndpointState.LIMITED]
        if waits and len(waits) == len(endpoints) and min(waits) > TOLD_SECONDS:
            said = endpoints[0].why
            return f"every server says later ({said}); the next try is in {min(waits):.0f} s"
    return driver.message
