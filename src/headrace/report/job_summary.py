"""What a job came to: printed once, when it ends."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence

from headrace.drive.status import JobStatus
from headrace.drive.store.rows import FailedRow
from headrace.report.figures import count, cut, duration, listing, printable, rate, several, share

MAX_WORDS = 5  # kinds of failure, and troubled servers, that are spelled out


def summary_lines(
    status: JobStatus, failures: Sequence[FailedRow] = (), again: str | None = None, width: int = 80
) -> list[str]:
    """What was done, where it lies, what is wrong with it and by whose words, what to do next.

    Args:
        status: the job's last.
        failures: some rows of failed/, whose words stand for all of their kind.
        again: the command that goes on with the job.
        width: columns; commands to be copied stay whole all the same.
    """
    lines = [_headline(status)]
    lines += _field("answers", f"{several(status.done, 'row')}, durable in {status.out}/completions", width)
    if status.other_rows:
        said = f"{count(status.other_rows)} more rows lie there that answer none of this job's prompts, but"
        lines += _field("other rows", f"{said} those of another input; export writes them too", width)
    if status.excluded:
        lines += _field("excluded", f"{several(status.excluded, 'row')} answered elsewhere", width)
    if status.duplicates:
        lines += _field("duplicates", f"{several(status.duplicates, 'row')} got the answer of a twin", width)
    if status.done_this_run:
        lines += _field("this run", _this_run(status), width)
    if any(status.flags.values()):
        looked_at = status.done + status.failed + status.other_rows
        flagged = [
            f"{name} {count(number)} ({share(number, looked_at)})"
            for name, number in sorted(status.flags.items(), key=lambda item: -item[1])
            if number
        ]
        lines += _field("flags", ", ".join(flagged), width)
    if any(status.errors.values()):
        lines += _field("failed tries", listing(status.errors) + " (asked again)", width)
    lines += _failures(status, failures, width)
    lines += _servers(status, width)
    for at, note in enumerate(status.notes):
        lines += _field("" if at else "notes", printable(note), width)
    lines.append("")
    lines += _next(status, again)
    return lines


def _headline(status: JobStatus) -> str:
    settled = status.done + status.failed + status.excluded
    rows = f"{count(settled)} of {count(status.rows)} rows"
    if status.phase == "finished":
        failed = f", {count(status.failed)} of them failed" if status.failed else ""
        return f"Finished: {rows}{failed}, in {duration(status.elapsed_seconds)}."
    after = duration(status.elapsed_seconds)
    return f"{status.phase.capitalize()} after {after}: {rows}, {count(status.pending)} left."


def _this_run(status: JobStatus) -> str:
    average = status.done_this_run / status.elapsed_seconds if status.elapsed_seconds > 0 else None
    parts = [f"{count(status.done_this_run)} answers to {count(status.tries_this_run)} requests"]
    parts.append(f"{rate(average)} per second")
    if status.mean_output_tokens is not None:
        parts.append(f"{rate(status.mean_output_tokens)} output tokens each")
    return ", ".join(parts)


def _failures(status: JobStatus, failures: Sequence[FailedRow], width: int) -> list[str]:
    if not status.failed:
        return []
    lines = _field("failed", f"{several(status.failed, 'row')}, in {status.out}/failed/failed.jsonl", width)
    by_kind: dict[str, FailedRow] = {}
    for failure in failures:
        by_kind.setdefault(failure.kind, failure)
    ordered = sorted(status.failures.items(), key=lambda item: -item[1])
    for kind, number in [item for item in ordered if item[1]][:MAX_WORDS]:
        lines += _field("", f"{kind} {count(number)}", width)
        if example := by_kind.get(kind):
            said = cut(" ".join(printable(example.reason).split()), 200)
            lines += _field("", f"  “{said}” (row {example.row} of {printable(example.source)})", width)
    return lines


def _servers(status: JobStatus, width: int) -> list[str]:
    troubled = [
        endpoint for endpoint in status.endpoints if endpoint.state in ("broken", "refusing", "limited")
    ]
    lines: list[str] = []
    for endpoint in troubled[:MAX_WORDS]:
        why = f": {printable(endpoint.why)}" if endpoint.why else ""
        said = f"{printable(endpoint.url)} is {endpoint.state}{why} ({count(endpoint.answered)} answered)"
        lines += _field("servers" if not lines else "", said, width)
    if len(troubled) > MAX_WORDS:
        lines += _field("", f"and {len(troubled) - MAX_WORDS} more in trouble", width)
    return lines


def _next(status: JobStatus, again: str | None) -> list[str]:
    out = shlex.quote(status.out)
    lines = []
    if status.phase != "finished":
        lines.append(("go on", again or "the same command as before"))
    if status.failed and status.phase == "finished":
        lines.append(("failed rows", f"{again or 'the same command'} --retry-failed"))
    if status.done:
        lines.append(("export", f"headrace export {out} --to conversations"))
    return [f"  {name:<13} {command}" for name, command in lines]


def _field(name: str, text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, width=max(width - 16, 30), break_long_words=True, break_on_hyphens=False) or [
        ""
    ]
    return [f"  {name if at == 0 else '':<13} {line}".rstrip() for at, line in enumerate(lines)]
