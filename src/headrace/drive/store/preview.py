"""What a run would find: how many rows there are, which are done, and how many would be sent.

The job folder stays as it is: its ledger and its open rows are copied to a temporary folder, its shards are
linked there, and a run begins on that. A job that runs in the folder meanwhile is not disturbed.
"""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.drive.job import Job
from headrace.drive.store.folder import JobFolder
from headrace.drive.store.indexing import build_index
from headrace.drive.store.job_store import Store, ledger_of
from headrace.drive.store.pinned import Identity
from headrace.drive.store.states import State
from headrace.errors import HeadraceError, StorageError, UsageError


@dataclass(frozen=True, slots=True)
class Preview:
    """The rows of a job, each counted once: what stands beside `rows` adds up to it.

    Attributes:
        done: answered already.
        failed: in failed/, and not to be asked again in this run.
        unreadable: rows of a source that cannot be read.
        excluded: left out because of --exclude.
        duplicates: ask exactly what another row asks, and will share its answer.
        to_send: requests.
        other_rows: rows in the folder that answer none of this job's prompts; not among `rows`.
        own_ids: rows are known by the user's own ids; else by the hash of what is sent.
        notes: what else was noted.
    """

    rows: int
    done: int
    failed: int
    unreadable: int
    excluded: int
    duplicates: int
    to_send: int
    other_rows: int
    own_ids: bool
    notes: tuple[str, ...]


def preview(job: Job) -> Preview:
    """What a run of the job would find now; reads all of its sources.

    Raises:
        HeadraceError: as the run would at its start.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-dry-run-") as name:
        copy = JobFolder(Path(name) / "out")

        def of_job(text: str) -> str:
            return text.replace(str(copy.out), str(job.out))

        try:
            _copy(JobFolder(job.out), copy)
        except (OSError, sqlite3.Error) as error:
            raise StorageError(
                f"{job.out} cannot be looked at in a copy in {name}: {error}. Make room there, or set TMPDIR"
            ) from error
        try:
            return _look(dataclasses.replace(job, out=copy.out, ledger=None), of_job)
        except UsageError as error:
            raise UsageError(map(of_job, error.problems)) from None
        except HeadraceError as error:
            raise type(error)(of_job(str(error))) from None


def _look(job: Job, of_job: Callable[[str], str]) -> Preview:
    store = Store.open(job, filesystem=lambda path: "temporary")
    try:
        index = build_index(store, job)
        counts, others = index.counts(), index.other_rows()
        return Preview(
            rows=sum(count for state, count in counts.items() if state != State.GONE) - others,
            done=counts[State.DONE] - others,
            failed=counts[State.FAILED],
            unreadable=counts[State.UNREADABLE],
            excluded=counts[State.EXCLUDED],
            duplicates=counts[State.DUPLICATE],
            to_send=counts[State.PENDING],
            other_rows=others + store.unknown_rows,
            own_ids=store.pinned is not None and store.pinned.identity is Identity.OWN,
            notes=tuple(map(of_job, store.notes)),
        )
    finally:
        store.close()


def _copy(there: JobFolder, here: JobFolder) -> None:
    """Copies in the order in which a run writes backwards: what the ledger vouches for is there after it."""
    for folder in here.folders():
        folder.mkdir(parents=True, exist_ok=True)
    ledger = ledger_of(there)
    if ledger.exists():
        _copy_ledger(ledger, here.ledger)
    for number, path in there.segments().items():
        with suppress(FileNotFoundError):  # it has become a shard
            shutil.copyfile(path, here.segment(number))
    for path in there.shards().values():
        (here.completions / path.name).symlink_to(path.absolute())
    for path in there.spools():
        (here.prompts / path.name).symlink_to(path.absolute())


def _copy_ledger(there: Path, here: Path) -> None:
    """Copies a database that may be in use; another, and one left by a kill, as its files."""
    try:
        if not there.with_name(there.name + "-wal").exists():
            shutil.copyfile(there, here)
            return
        with (
            closing(sqlite3.connect(f"{there.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(here)) as target,
        ):
            source.backup(target)
    except sqlite3.Error:
        for suffix in ("", "-wal"):
            path = there.with_name(there.name + suffix)
            if path.exists():
                shutil.copyfile(path, here.with_name(here.name + suffix))
