"""Run a job, see where it stands, take its rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.drive.companion import Companion
    from headrace.drive.job import Job
    from headrace.drive.status import JobStatus

_Several = str | Path | Sequence[str | Path] | None


def run(
    job_file: str | Path | None = None,
    *,
    prompts: _Several = None,
    server: str | Sequence[str] | None = None,
    out: str | Path | None = None,
    model: str | None = None,
    api: str | None = None,
    in_flight: int | str | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] | None = None,
    thinking: bool | None = None,
    system: str | None = None,
    count: int | None = None,
    samples: int | None = None,
    columns: Mapping[str, str] | None = None,
    id_column: str | None = None,
    exclude: _Several = None,
    format: str | None = None,
    token_ids: bool | None = None,
    flags_policy: Mapping[str, str] | None = None,
    retry_failed: bool | None = None,
    extra_body: Mapping[str, Any] | None = None,
    request_timeout: float | str | None = None,
    max_tries: int | None = None,
    row_checks: bool | None = None,
    hedge: bool | None = None,
    api_key_env: str | None = None,
    api_key_file: str | Path | None = None,
    ledger: str | Path | None = None,
    on_status: Callable[[JobStatus], None] | None = None,
    status_every_seconds: float = 1.0,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
    record_every: float | str = "10s",
) -> JobStatus:
    """The last status of the job, after asking all prompts (or going on where it stopped).

    The keywords are the options of `headrace run`; beside a job file they go before what it says. While it
    runs, SIGINT drains it as Ctrl-C does.

    Args:
        on_status: called with a fresh status about every `status_every_seconds`.
        metrics_port: serves Prometheus metrics there while the job runs.
        record_every: between two looks at a server for OUT/recording; 0 records nothing.

    Raises:
        UsageError: with every mistake at once; nothing was started.
        JobStopped: the job ended early; the same call goes on with it.
        HeadraceError: see `headrace.errors`.
    """
    from headrace.drive.job.file import load_job
    from headrace.drive.job.options import given_options, keyword

    values = dict(locals())
    resolved = load_job(Path(job_file) if job_file else None, given_options(values, keyword))
    return run_resolved(
        resolved.job,
        on_status=on_status or (lambda status: None),
        status_every_seconds=status_every_seconds,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        record_every_seconds=seconds_between_looks(record_every),
    )


def seconds_between_looks(text: float | str) -> float:
    """Seconds of `record_every`. Raises UsageError for what is no duration."""
    from headrace.diagnosing import seconds_of

    return seconds_of(str(text), "--record-every")


def run_resolved(
    job: Job,
    *,
    on_status: Callable[[JobStatus], None],
    status_every_seconds: float,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
    record_every_seconds: float = 0.0,
) -> JobStatus:
    """The last status of a job that is checked already. Wires driver, load readers and metrics together."""
    from headrace.drive.driver import run_job
    from headrace.engines.any_load import AnyEngineLoad

    companion = _recorder(job, record_every_seconds) if record_every_seconds > 0 else None
    if metrics_port is None:
        return run_job(
            job,
            on_status=on_status,
            status_every_seconds=status_every_seconds,
            load_reader=AnyEngineLoad,
            companion=companion,
        )
    from headrace.report.metrics import MetricsServer

    with MetricsServer(metrics_host, metrics_port) as metrics:

        def tell(status: JobStatus) -> None:
            metrics.show(status)
            on_status(status)

        return run_job(
            job,
            on_status=tell,
            status_every_seconds=status_every_seconds,
            load_reader=AnyEngineLoad,
            companion=companion,
        )


def _recorder(job: Job, every_seconds: float) -> Companion:
    from headrace.clock import SystemClock
    from headrace.durable.disk import RealDisk
    from headrace.observe.recording.of_job import JobRecorder

    limits = {source.name: source.sampling.get("max_tokens") for source in job.sources}
    return JobRecorder(
        job.out,
        RealDisk(),
        SystemClock(),
        every_seconds=every_seconds,
        sources={name: most if isinstance(most, int) else None for name, most in limits.items()},
    )


def status(out: str | Path) -> JobStatus:
    """Where the job in `out` stands: live if it runs on this machine, else its last snapshot.

    Raises:
        InputError: `out` is no job folder.
    """
    from headrace.drive.commands import read_status

    return read_status(Path(out))[0]


def export(
    out: str | Path,
    *,
    to: str,
    file: str | Path | None = None,
    reasoning: str = "field",
    without: Iterable[str] = (),
    force: bool = False,
) -> tuple[Path, int]:
    """(the file written, its rows): a job's finished rows as `jsonl`, `parquet` or `conversations`.

    Args:
        file: by default OUT/export.jsonl, .parquet or .conversations.jsonl.
        reasoning: `inline`, `field` or `drop`; for conversations.
        without: flags whose rows are left out.
        force: replace the file if it is there.
    """
    from headrace.drive.store.export import export as export_rows

    suffix = {"conversations": "conversations.jsonl"}.get(to, to)
    path = Path(file) if file is not None else Path(out) / f"export.{suffix}"
    rows = export_rows(Path(out), to, path, reasoning=reasoning, without=list(without), force=force)
    return path, rows
