"""What the ledger pins of a job, so that a later run on the same folder means the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from headrace.drive.job import Job, Source
from headrace.errors import UsageError


class Identity(StrEnum):
    """Where the ids of a job come from; decided once."""

    OWN = "own"  # the user's id column
    HASH = "hash"  # the content hash


class PinnedSource(msgspec.Struct, frozen=True, eq=True):
    """One source as it was when it was scanned: everything that decides its rows and requests."""

    name: str
    paths: list[str]
    columns: dict[str, str]
    id_column: str | None
    limit: int | None
    samples: int
    system: str | None
    thinking: bool | None
    sampling: Any
    extra_body: Any


class FilePrint(msgspec.Struct, frozen=True, eq=True):
    """A file as it was when it was scanned. `number` is its place in the file table (0 is the spool)."""

    number: int
    path: str
    size: int
    mtime_ns: int
    inode: int


class Pinned(msgspec.Struct, frozen=True):
    """What the last scan saw.

    Attributes:
        ledger_id: 32 hex digits, drawn when the ledger was made.
        seed: of the dispatch order.
        exclude: fingerprints of what `Job.exclude` names.
        spool: generation of the spool file.
    """

    ledger_id: str
    identity: Identity
    api: str
    seed: int
    sources: list[PinnedSource]
    files: list[FilePrint]
    exclude: list[FilePrint]
    spool: int


def pin_source(source: Source) -> PinnedSource:
    """The source as it is pinned."""
    return PinnedSource(
        name=source.name,
        paths=[str(path) for path in source.paths],
        columns=dict(source.columns),
        id_column=source.id_column,
        limit=source.limit,
        samples=source.samples,
        system=source.system,
        thinking=source.thinking,
        sampling=_plain(source.sampling),
        extra_body=_plain(source.extra_body),
    )


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def file_table(files: list[FilePrint], spool: Path) -> list[Path]:
    """Paths by file number."""
    table = [spool] * (1 + max((file.number for file in files), default=0))
    for file in files:
        table[file.number] = Path(file.path)
    return table


def refuse_other_requests(
    pinned: Pinned, job: Job, files: Sequence[FilePrint], answered: dict[str, int]
) -> None:
    """Raises UsageError when rows already answered were asked in another way than this job asks.

    A source is known again by its name; one of a new name by its files, also where they were renamed.

    Args:
        files: of this job, as they are now.
        answered: rows done, by source name as pinned.
    """
    problems = []
    if pinned.api != job.api and any(answered.values()):
        problems.append(_differs("", "api", pinned.api, str(job.api), sum(answered.values()), job.out))
    before = {source.name: source for source in pinned.sources}
    kept = {source.name for source in job.sources}
    gone = [source for source in pinned.sources if source.name not in kept]
    for source in map(pin_source, job.sources):
        old = before.get(source.name) or _renamed(source, files, gone, pinned.files)
        count = answered.get(old.name, 0) if old is not None else 0
        if old is None or not count:
            continue
        for name in ("system", "thinking"):
            was, now = getattr(old, name), getattr(source, name)
            if was != now:
                problems.append(_differs(source.name, name, was, now, count, job.out))
        for name in ("sampling", "extra_body"):
            was, now = getattr(old, name), getattr(source, name)
            problems += [
                _differs(source.name, f"{name}.{key}", was.get(key), now.get(key), count, job.out)
                for key in sorted(was.keys() | now.keys())
                if was.get(key) != now.get(key)
            ]
    if problems:
        raise UsageError(problems)


def _renamed(
    source: PinnedSource, files: Sequence[FilePrint], gone: Sequence[PinnedSource], old: Sequence[FilePrint]
) -> PinnedSource | None:
    """The source of an earlier run, no longer there by its name, that read one of this source's files."""
    here = {mark for file in files if file.path in source.paths for mark in _marks(file)}
    for candidate in gone:
        theirs = (file for file in old if file.path in candidate.paths)
        if any(not here.isdisjoint(_marks(file)) for file in theirs):
            return candidate
    return None


def _marks(file: FilePrint) -> tuple[tuple[str, int, int], ...]:
    """What stays when a file is renamed (its inode), or moved to another disk (its time)."""
    return ("inode", file.inode, file.size), ("time", file.mtime_ns, file.size)


def refuse_other_model(was: str, now: str, answered: int, out: Path) -> None:
    """Raises UsageError when rows were answered by another model than the job now asks."""
    if was != now and answered:
        raise UsageError(_differs("", "model", was, now, answered, out))


def _differs(source: str, name: str, was: Any, now: Any, answered: int, out: Path) -> str:
    of = f" of source '{source}'" if source else ""
    return (
        f"{name}{of} is {_short(now)}, but the {answered:,} rows answered in {out} were asked with "
        f"{_short(was)}: one job folder holds one kind of answer. "
        "Set it back, or give another --out"
    )


def _short(value: Any) -> str:
    if value is None:
        return "unset"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:77] + "..."
