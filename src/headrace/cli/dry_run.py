"""`headrace run --dry-run`: says what would be sent, and sends nothing that makes a server generate."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, UsageError
from headrace.report.figures import printable, several

if TYPE_CHECKING:
    from headrace.drive.fleet_view import FirstLook
    from headrace.drive.job import Job, Source
    from headrace.drive.job.file import ResolvedJob
    from headrace.drive.prompts import Request

PEEKED_ROWS = 1000
SHOWN_ERRORS = 3


@dataclass(slots=True)
class _Ids:
    """The users' own ids in the rows looked at: they hold for all sources of a job, or for none."""

    seen: set[str] = field(default_factory=set)
    rows: int = 0
    without: list[str] = field(default_factory=list)

    def is_hash(self) -> bool:
        """Whether no ids of the user's own can hold."""
        return bool(self.without) or len(self.seen) < self.rows

    def verdict(self) -> str:
        """What rows would be known by."""
        if self.without:
            return f"hash of what is sent (source {self.without[0]} has rows without an id)"
        if len(self.seen) < self.rows:
            return f"hash of what is sent (ids stand twice: {self.rows - len(self.seen):,})"
        return f"your own ids (unique in the {self.rows:,} rows looked at)"


def show_dry_run(resolved: ResolvedJob) -> int:
    """Prints everything that can be known without generating; 0 when the job could start, else 2."""
    problems: list[str] = []
    job, ids = resolved.job, _Ids()
    for line in itertools.chain(
        _job_lines(resolved),
        _source_lines(job, ids, problems),
        _row_lines(job, ids, problems),
        _server_lines(job, problems),
    ):
        sys.stdout.write(printable(line) + "\n")
    for problem in problems:
        sys.stdout.write(f"Problem: {printable(problem)}\n")
    sys.stdout.write(
        several(len(problems), "problem") + "; nothing was sent.\n"
        if problems
        else "No problems; nothing was sent.\n"
    )
    return 2 if problems else 0


def _job_lines(resolved: ResolvedJob) -> Iterator[str]:
    job = resolved.job
    for note in resolved.overrides:
        yield f"Override: {note}"
    new = "goes on with what is there" if holds_job(job.out) else "new"
    yield f"Output: {job.out} ({new}), {job.output_format.value} shards"
    per_server = "auto" if job.in_flight is None else str(job.in_flight)
    yield f"In flight: {per_server} per server, {several(len(job.servers), 'server')}"
    for path in job.exclude:
        yield f"Exclude: prompts answered in {path}"
    yield ""


def holds_job(out: Path) -> bool:
    """Whether a run has begun in the folder: its description is there, or a ledger."""
    return any((out / name).exists() for name in ("job.json", "ledger.db", "ledger-at"))


def _source_lines(job: Job, ids: _Ids, problems: list[str]) -> Iterator[str]:
    for source in job.sources:
        try:
            yield from _one_source(job, source, ids)
        except HeadraceError as error:
            problems.append(f"source {source.name}: {error}")
        yield ""


def _row_lines(job: Job, ids: _Ids, problems: list[str]) -> Iterator[str]:
    """How many rows there are in all, and what becomes of them: by a scan of all sources."""
    from headrace.drive.store.preview import preview

    if problems:
        yield f"Identity: {ids.verdict()}"
        yield ""
        return
    try:
        found = preview(job)
    except HeadraceError as error:
        problems += error.problems if isinstance(error, UsageError) else [str(error)]
        return
    by_hash = ids.verdict() if ids.is_hash() else "hash of what is sent"
    yield f"Identity: {'your own ids' if found.own_ids else by_hash}"
    yield f"Rows: {found.rows:,} in total, samples counted"
    for count, name, meaning in (
        (found.done, "done already", ""),
        (found.excluded, "excluded", "  answered in what --exclude names"),
        (found.duplicates, "duplicates", "  share the answer of a row that asks the same"),
        (found.failed, "failed before", "  --retry-failed asks them again"),
        (found.unreadable, "unreadable", "  go to failed/"),
    ):
        if count or name in ("done already", "excluded", "duplicates"):
            yield f"  {name:<14}{count:>13,}{meaning}"
    yield f"  {'to send':<14}{found.to_send:>13,}"
    if found.other_rows:
        yield f"Other rows: {found.other_rows:,} in {job.out} answer none of this job's prompts"
    yield from (f"Note: {note}" for note in found.notes)
    yield ""


def _one_source(job: Job, source: Source, ids: _Ids) -> Iterator[str]:
    from headrace.drive.request import build_request
    from headrace.drive.sources import NoSpool, scan, shape_of

    shape = shape_of(source)
    files = source.paths
    numbers = {path: at + 1 for at, path in enumerate(files)}
    looked = readable = 0
    errors: list[str] = []
    first: Request | None = None
    for row in itertools.islice(scan(source, numbers, NoSpool(), shape=shape), PEEKED_ROWS):
        looked += 1
        if row.prompt is None:
            errors.append(row.error or "")
            continue
        readable += 1
        ids.rows += 1
        if row.prompt.own_id is not None:
            ids.seen.add(row.prompt.own_id)
        elif source.name not in ids.without:
            ids.without.append(source.name)
        if first is None:
            first = build_request(row.prompt, source, job, 0)
    size_bytes = sum(path.stat().st_size for path in files)
    amount = f"{several(len(files), 'file')}, {several(size_bytes, 'byte')}"
    yield f"Source {source.name}: {amount}; first {files[0]}"
    more = " (there are more)" if looked == PEEKED_ROWS else " (all of it)"
    yield f"  rows looked at: {looked:,}{more}, readable {readable:,}, unreadable {len(errors):,}"
    if source.limit is not None or source.samples != 1:
        count = "all" if source.limit is None else f"{source.limit:,}"
        yield f"  count: {count}; samples per row: {source.samples}"
    yield f"  shape: {shape.describe()}"
    for error in errors[:SHOWN_ERRORS]:
        yield f"  unreadable: {error}"
    if first is not None:
        yield f"  first request: POST {first.path}"
        body = {**({"model": job.model} if job.model else {}), **first.body}
        yield from ("    " + line for line in json.dumps(body, indent=2, ensure_ascii=False).splitlines())


def _server_lines(job: Job, problems: list[str]) -> Iterator[str]:
    from headrace.drive.fleet_view import served_model
    from headrace.drive.job.api_key import read_api_key

    looks = asyncio.run(_look(job, read_api_key(job)))
    for look in looks:
        if look.why is not None:
            said = f"does not answer: {look.why}"
        elif look.models is None:
            said = "answers, names no models"
        else:
            said = f"serves {', '.join(look.models)}"
        yield f"Server {look.url}: {said}"
    try:
        model = served_model(job.model, looks)
        yield f"Model: {model or 'not named in requests'}"
    except HeadraceError as error:
        problems.append(str(error))
    yield ""


async def _look(job: Job, api_key: str | None) -> list[FirstLook]:
    from headrace.drive.fleet_view import look_at_all
    from headrace.net.http import HttpClient

    async with HttpClient(api_key) as http:
        return await look_at_all(http, job.servers)
