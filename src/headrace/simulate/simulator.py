"""Runs a fleet through a workload, with progress, and says what came of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.errors import UsageError
from headrace.simulate.fleet import FleetSpec, build
from headrace.simulate.kernel import fleet as kernel
from headrace.simulate.kernel.records import CAUSES, DONE, World, column
from headrace.simulate.kernel.series import COLUMNS, Series, new_series
from headrace.simulate.outcome import Outcome, Timeline
from headrace.simulate.workload import Workload

Progress = Callable[[int, int], None]
_ROWS = 1024  # samples kept per scheduler at most; the grid coarsens when they are full
_MOMENTS = 100_000  # between two reports of progress: well under a second
_MOST_CELLS = 50_000_000  # schedulers × groups of shared prefixes


def simulate(
    spec: FleetSpec,
    workload: Workload,
    *,
    until_seconds: float | None = None,
    sample_seconds: float = 1.0,
    gpus_per_server: float = 1.0,
    progress: Progress | None = None,
    notes: tuple[str, ...] = (),
) -> Outcome:
    """Returns what the fleet makes of the workload.

    Args:
        until_seconds: simulated; None: until all is done.
        sample_seconds: first step of the series; it doubles as the time grows.
        progress: called with (requests done, requests) now and then.

    Raises:
        UsageError: the fleet or the workload makes no sense, or has too many shared prefixes.
    """
    schedulers = spec.servers * spec.ranks
    if schedulers * len(workload.group_tokens) > _MOST_CELLS:
        raise UsageError(
            f"{len(workload.group_tokens):,} shared prefixes on {schedulers:,} schedulers are more than "
            f"{_MOST_CELLS:,} together. Simulate fewer servers, or leave the prefixes out."
        )
    world, client = build(spec, workload.validated())
    series = new_series(schedulers, _ROWS, sample_seconds)
    until = np.inf if until_seconds is None else until_seconds
    code = kernel.PAUSED
    while code == kernel.PAUSED:
        code = kernel.run(world, client, series, until, _MOMENTS)
        if progress is not None:
            progress(int(column(client.state, "done")[0]), len(workload))
    seconds = float(column(client.state, "now")[0])
    return _outcome(spec, workload, world, client, series, seconds, code, gpus_per_server, notes)


def _outcome(
    spec: FleetSpec, workload: Workload, world: World, client: kernel.Client, series: Series, seconds: float,
    code: int, gpus_per_server: float, notes: tuple[str, ...],
) -> Outcome:  # fmt: skip
    made, asked = world.schedulers, world.requests
    finished_at, submitted = column(asked, "finished"), column(asked, "submitted")
    done = column(asked, "outcome") == DONE
    latency = (finished_at - submitted)[done]
    first = (column(asked, "first_token") - submitted)[done]
    made_tokens = column(asked, "made")[done]
    after_first = (latency - first)[made_tokens > 1] / (made_tokens[made_tokens > 1] - 1)
    mean_latency = float(latency.mean()) if len(latency) else float("nan")
    sent_all = bool(np.all(np.isfinite(submitted)))
    tail = seconds - float(np.max(submitted)) if sent_all and code == kernel.ALL_DONE else 0.0
    busy = world.cause_seconds.sum(axis=0)
    whole = max(busy.sum(), seconds * len(world.cause_seconds), 1e-12)
    shares = {name: float(busy[at] / whole) for at, name in enumerate(CAUSES)}
    # what no phase accounts for is time at the end or the beginning with nothing to do
    shares["idle"] += max(0.0, 1.0 - sum(shares.values()))
    rules = spec.kinds[spec.kind_of[0]].rules

    def total(name: str) -> float:
        return float(column(made, name).sum())

    stuck = ""
    if code == kernel.STUCK:
        stuck = _why_stuck(client, workload, rules.kv_capacity_tokens)
    elif code == kernel.REACHED:
        seconds = float(column(client.state, "now")[0])
    return Outcome(
        seconds=seconds, prompts=len(workload), finished=int(done.sum()),
        failed=int(column(client.state, "failed")[0]), stuck=stuck, generated_tokens=total("generated"),
        completed_tokens=total("completed"), lost_tokens=total("lost"), prefilled_tokens=total("prefilled"),
        cached_tokens=total("cached"), mean_latency_seconds=mean_latency,
        mean_first_token_seconds=float(first.mean()) if len(first) else float("nan"),
        mean_token_seconds=float(after_first.mean()) if len(after_first) else float("nan"),
        ramp_seconds=0.0 if np.isnan(mean_latency) else min(mean_latency, seconds), tail_seconds=tail,
        cap=rules.cap, kv_capacity_tokens=rules.kv_capacity_tokens, state_slots=rules.state_slots,
        page_tokens=_page(spec), cause_shares=shares, retractions=int(total("retracted")),
        passes=int(total("passes")), prefills=int(total("prefills")), servers=spec.servers,
        schedulers=spec.servers * spec.ranks, gpus=spec.servers * gpus_per_server,
        timeline=_timeline(series), finish_seconds=np.sort(finished_at[done]), notes=notes,
    )  # fmt: skip


def _page(spec: FleetSpec) -> int:
    return int(spec.kinds[spec.kind_of[0]].rules.rules["page_tokens"])


def _timeline(series: Series) -> Timeline:
    """The grid that all schedulers have; one that was idle to the end keeps its last totals."""
    rows = int(series.filled.max())
    step = float(series.step_seconds[0])
    columns = {}
    for at, name in enumerate(COLUMNS):
        values = series.columns[:, :rows, at].copy()
        for s, count in enumerate(series.filled):
            if count < rows and count > 0:
                is_gauge = name in ("running", "queued", "context_tokens", "kv_pages", "state_slots")
                values[s, count:] = 0.0 if is_gauge else values[s, count - 1]
        columns[name] = values
    return Timeline(np.arange(rows, dtype=float) * step, columns)


def _why_stuck(client: kernel.Client, workload: Workload, pool: float) -> str:
    if not np.any(column(client.servers, "up") == kernel.UP):
        return "no server is up and none comes back; requests are left over."
    longest = int((workload.input_tokens + np.minimum(workload.asked_tokens, 4096)).max())
    return (
        f"a request fits into no server: prompt and reserve of the longest are {longest:,} tokens, the KV "
        f"pool "
        f"holds {pool:,.0f}. A real server would let it wait for ever: ask for fewer tokens, or enlarge "
        f"the pool."
    )
