"""The status document of a job: the one thing that the live table, status.json, `--progress json`,
`headrace status` and the Prometheus exporter all say, with the same names and numbers."""

from __future__ import annotations

import msgspec

SCHEMA_VERSION = 1


class EndpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One server as the driver sees it.

    Attributes:
        state: `reachable`, `limited` (429/503: stepping back), `broken` (breaker open), `refusing`
            (401/403: it takes nothing of ours), `draining`, `drained`, `removed`.
        why: what it said or did, when not reachable; else "".
        in_flight, limit: requests.
        limit_origin: `configured`, `reported` (cap and a standing queue) or `climbing`.
        cap, running, queued: as the server reports them; None where it does not.
        answered: rows answered by this server; `errors`: tries that failed there, by kind.
        output_tokens_per_second: over the last window, the estimate for what is in flight included.
        median_latency_seconds: of its recent answers; None before the first.
    """

    url: str
    state: str
    why: str
    in_flight: int
    limit: int
    limit_origin: str
    cap: int | None
    running: int | None
    queued: int | None
    answered: int
    errors: dict[str, int]
    output_tokens_per_second: float | None
    median_latency_seconds: float | None


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One source: how many of its rows stand where, and how long its answers are.

    Attributes:
        mean_output_tokens: over finished rows (finished ones only: long answers are still missing early on).
    """

    name: str
    rows: int
    done: int
    failed: int
    excluded: int
    mean_output_tokens: float | None
    truncated: int


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one moment.

    Attributes:
        phase: `starting`, `running`, `paused` (see `message`), `draining`, `finished`, `stopped`.
        message: what a person should know now (disk full, every server broken, …), or "".
        wall_time: Unix seconds of this snapshot; `elapsed_seconds` since this run began.
        rows: prompts in the job (duplicates and samples counted, excluded ones too).
        done, failed, excluded, pending: rows; `done` is durable on disk.
        duplicates: rows that ask exactly what another one asks, and share its answer.
        other_rows: rows in `out` that answer no prompt of this job, but of another input; in no other count.
        in_flight: requests now, of at most `in_flight_limit`.
        done_this_run, tries_this_run: since this run began.
        requests_per_second: answers per second over the last window.
        output_tokens_per_second: finished and in flight; None before anything finished.
        output_tokens_per_second_finished: finished requests only; too low until `settled`.
        in_flight_tokens: estimate of output tokens already made by requests in flight.
        settled: two median latencies have passed, so the finished-only figure can be trusted.
        eta_seconds: by tokens: remaining rows × mean output tokens of their source ÷ rate; None when unknown.
        flags: rows by flag, those of earlier runs included.
        errors: failed tries of this run by kind; failures: rows in failed/ by kind.
        hedged: rows asked of a second server near the end.
        notes: what a person should know of how the job began (a ledger remade, a network disk, …).
    """

    schema_version: int = SCHEMA_VERSION
    out: str
    pid: int
    host: str
    phase: str
    message: str
    wall_time: float
    elapsed_seconds: float
    rows: int
    done: int
    failed: int
    excluded: int
    duplicates: int
    pending: int
    in_flight: int
    in_flight_limit: int
    done_this_run: int
    tries_this_run: int
    requests_per_second: float | None
    output_tokens_per_second: float | None
    output_tokens_per_second_finished: float | None
    in_flight_tokens: float | None
    settled: bool
    mean_output_tokens: float | None
    median_latency_seconds: float | None
    eta_seconds: float | None
    flags: dict[str, int]
    errors: dict[str, int]
    failures: dict[str, int]
    hedged: int
    endpoints: list[EndpointStatus]
    sources: list[SourceStatus]
    other_rows: int = 0
    notes: list[str] = []
