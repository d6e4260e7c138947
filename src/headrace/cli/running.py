"""What `headrace run` does with its flags: check everything, then try, detach, or run and show."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.checked import refuse_with
from headrace.cli.interrupts import interrupts_end_at_once
from headrace.cli.streams import never_waiting, trouble_of_stdout
from headrace.errors import JobStopped

if TYPE_CHECKING:
    from headrace.drive.job import Job
    from headrace.drive.job.file import ResolvedJob
    from headrace.drive.status import JobStatus
    from headrace.drive.store.rows import FailedRow

MAX_FAILED_LINES = 20_000  # of failed.jsonl, looked at for words to quote


def run_from_flags(values: Mapping[str, Any], arguments: Sequence[str], problems: Sequence[str] = ()) -> int:
    """The exit code of the run that these flags describe.

    Args:
        values: the options by name.
        arguments: the words of the command line after `headrace`, for a detached run.
        problems: what is wrong with the words already; it is told with the job's own mistakes.
    """
    with interrupts_end_at_once():
        from headrace.drive.job.file import load_job
        from headrace.drive.job.options import flag, given_options

    resolved: ResolvedJob = refuse_with(
        problems, lambda: load_job(values.get("job_file"), given_options(values, flag))
    )
    if values["dry_run"]:
        from headrace.cli.dry_run import show_dry_run

        return show_dry_run(resolved)
    if values["detach"]:
        from headrace.cli.detach import run_detached

        return run_detached(resolved.job, arguments)
    with interrupts_end_at_once():
        from headrace.api.drive import seconds_between_looks

    every_seconds = seconds_between_looks(values["record_every"])
    again = command_line([word for word in arguments if word != "--retry-failed"])
    return run_and_show(
        resolved.job,
        progress=str(values["progress"]),
        again=again,
        metrics_port=values["metrics_port"],
        metrics_host=str(values["metrics_host"]),
        record_every_seconds=every_seconds,
    )


def command_line(arguments: Sequence[str]) -> str:
    """The command as it can be typed again."""
    return shlex.join(["headrace", *arguments])


def run_and_show(
    job: Job,
    *,
    progress: str,
    again: str,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
    record_every_seconds: float = 10.0,
) -> int:
    """Runs a checked job in front of the user; the exit code.

    Raises:
        HeadraceError: the job could not begin; or, after its summary was printed, JobStopped: it ended early,
            or not one row of it was answered.
    """
    with interrupts_end_at_once():
        import headrace.drive.driver
        import headrace.engines.any_load  # noqa: F401 (what the job imports when it begins)
        from headrace import api
        from headrace.cli.show import choose, view_of

    columns = shutil.get_terminal_size().columns
    form = choose(progress, terminal=sys.stdout.isatty(), columns=columns)
    last: JobStatus | None = None
    tell_of_lost_view = _once_lost(job.out)
    with never_waiting(), view_of(form) as view:

        def tell(status: JobStatus) -> None:
            nonlocal last
            last = status
            view.show(status)
            if form != "none":
                tell_of_lost_view()

        stopped: JobStopped | None = None
        try:
            last = api.run_resolved(
                job,
                on_status=tell,
                status_every_seconds=view.every_seconds,
                metrics_port=metrics_port,
                metrics_host=metrics_host,
                record_every_seconds=record_every_seconds,
            )
        except JobStopped as error:
            stopped = error
    if last is not None and form in ("table", "plain"):
        _print_summary(last, again, columns if sys.stdout.isatty() else 100)
    if stopped is not None:
        raise stopped
    if last is None or last.phase != "finished":
        return JobStopped.exit_code
    if last.failed and not last.done:
        raise JobStopped(
            f"Not one row was answered: all {last.failed:,} failed. Read why in "
            f"{last.out}/failed/failed.jsonl, mend the cause, then run again with --retry-failed."
        )
    return 0


def _once_lost(out: Path) -> Callable[[], None]:
    """Says on standard error, once, that standard output takes nothing: the job goes on all the same."""
    told = False

    def tell() -> None:
        nonlocal told
        trouble = trouble_of_stdout()
        if trouble is not None and not told:
            told = True
            sys.stderr.write(
                f"headrace: standard output takes nothing more ({trouble.strerror}); the job goes on. "
                f"See it with `headrace status {out}`.\n"
            )
            sys.stderr.flush()

    return tell


def _print_summary(status: JobStatus, again: str, columns: int) -> None:
    from headrace.report.job_summary import summary_lines

    failures = one_failure_of_each_kind(Path(status.out)) if status.failed else []
    sys.stdout.write("\n" + "\n".join(summary_lines(status, failures, again, min(columns, 100))) + "\n")
    sys.stdout.flush()


def one_failure_of_each_kind(out: Path) -> list[FailedRow]:
    """The first failed row of each kind in OUT/failed; what cannot be read is passed over."""
    import msgspec

    from headrace.drive.store.rows import FailedRow

    decoder = msgspec.json.Decoder(FailedRow)
    found: dict[str, FailedRow] = {}
    try:
        with open(out / "failed" / "failed.jsonl", "rb") as lines:
            for _, line in zip(range(MAX_FAILED_LINES), lines, strict=False):
                try:
                    failure = decoder.decode(line)
                except msgspec.DecodeError:
                    continue
                found.setdefault(failure.kind, failure)
    except OSError:
        return []
    return list(found.values())
