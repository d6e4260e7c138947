"""Makes the index of a job: from the ledger when the sources are unchanged, else by a scan of all of them.

A scan (`headrace.drive.store.scanning`) leaves one record per prompt on the disk. Then identity is decided or
held to, rows known before are found again by key wherever they now stand, exact duplicates are put together,
and the whole is written to the ledger in one transaction; that takes some 60 bytes per prompt for a moment.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np

from headrace.drive.job import Job
from headrace.drive.sources import fingerprint
from headrace.drive.store.batches import BatchWriter
from headrace.drive.store.changes import Seqs
from headrace.drive.store.exclusion import excluded, exclusion_prints, read_excluded
from headrace.drive.store.identity import Numbers, match, occurrences, settle_duplicates
from headrace.drive.store.index import PromptIndex
from headrace.drive.store.job_store import Store
from headrace.drive.store.ledger_damage import LedgerDamaged
from headrace.drive.store.own_ids import decide_identity
from headrace.drive.store.pinned import (
    FilePrint,
    Identity,
    Pinned,
    PinnedSource,
    file_table,
    pin_source,
    refuse_other_requests,
)
from headrace.drive.store.records import RECORD, RECORDS_PER_BLOCK
from headrace.drive.store.recovery import take_up_rows
from headrace.drive.store.rows import SOURCE_CHANGED
from headrace.drive.store.scanning import ROWS_PER_CHUNK, Progress, Scanned, scan_sources
from headrace.drive.store.spool import SpoolFile
from headrace.drive.store.states import NO_SOURCE, State
from headrace.durable.disk import is_full
from headrace.errors import StorageError


def build_index(store: Store, job: Job, progress: Progress | None = None) -> PromptIndex:
    """The job's index, also set as `store.index`.

    Args:
        progress: told the rows scanned and the fraction done, some times a second; never called when
            nothing has to be scanned.

    Raises:
        UsageError: rows already answered were asked in another way than this job asks.
        InputError: a source cannot be read, or the user's ids clash.
        StorageError: no room for the index.
    """
    try:
        try:
            return _build(store, job, progress)
        except LedgerDamaged as damage:
            store.remake_ledger(damage)
            return _build(store, job, progress)
    except (OSError, sqlite3.OperationalError) as error:
        if not is_full(error):
            raise StorageError(
                f"the index of {job.out} cannot be made: {error}. Mend the disk, or give another --out"
            ) from error
        raise StorageError(
            f"no room for the index of {job.out}: {error}; {store.disk.free_bytes(job.out):,} bytes are "
            "free. Make room, or give another --out"
        ) from error


def _build(store: Store, job: Job, progress: Progress | None) -> PromptIndex:
    before = store.pinned
    sources = [pin_source(source) for source in job.sources]
    files = _number_files(job, before)
    exclude = exclusion_prints(job.exclude)
    if before is not None:
        refuse_other_requests(before, job, files, _answered(store, before))
    if before is not None and (before.sources, before.files, before.exclude) == (sources, files, exclude):
        pinned = before
    else:
        pinned = _scan_all(store, job, sources, files, exclude, progress or (lambda rows, fraction: None))
    store.pinned = pinned
    store.clear_spools(pinned.spool)
    states, owners, duplicates = store.ledger.load()
    paths = file_table(pinned.files, store.folder.spool(pinned.spool))
    index = PromptIndex(store.ledger, job, paths, pinned.identity, states, owners.copy(), duplicates)
    store.index = index
    take_up_rows(store, index, pinned.identity)
    failed = np.flatnonzero(states == State.FAILED)
    if len(failed):  # a row that had changed under an earlier run may stand in its source again
        _ask_failed_again(
            store, index, failed if job.retry_failed else store.ledger.failed_seqs(SOURCE_CHANGED)
        )
    _answer_late_duplicates(store, job, index)
    store.write_failed()
    store.write_job()
    return index


def _number_files(job: Job, before: Pinned | None) -> list[FilePrint]:
    numbers = {file.path: file.number for file in before.files} if before else {}
    following = 1 + max(numbers.values(), default=0)
    files: dict[str, FilePrint] = {}
    for source in job.sources:
        for path in source.paths:
            found = fingerprint(path)
            if found.path in files:
                continue
            number = numbers.get(found.path)
            if number is None:
                number, following = following, following + 1
            files[found.path] = FilePrint(number, found.path, found.size, found.mtime_ns, found.inode)
    return list(files.values())


def _answered(store: Store, before: Pinned) -> dict[str, int]:
    states, owners, _ = store.ledger.load()
    done = np.bincount(owners[states == State.DONE], minlength=len(before.sources))
    return {source.name: int(done[number]) for number, source in enumerate(before.sources)}


def _scan_all(
    store: Store,
    job: Job,
    sources: list[PinnedSource],
    files: list[FilePrint],
    exclude: list[FilePrint],
    progress: Progress,
) -> Pinned:
    before = store.pinned
    generation = before.spool + 1 if before is not None else 1
    spool = SpoolFile(store.disk, store.folder.spool(generation))
    store.disk.unlink(spool.path)  # of a scan that was killed
    with ExitStack() as stack:
        spill = Path(
            stack.enter_context(
                tempfile.NamedTemporaryFile(dir=store.folder.prompts, prefix="scan-", suffix=".tmp")
            ).name
        )
        stack.callback(spool.close)
        scanned = scan_sources(store, job, files, spool, spill, progress)
        spool.finish()
        paths = file_table(files, spool.path)
        identity = decide_identity(
            store, job, before, scanned.owns, scanned.contents, scanned.records, paths, scanned.sharp
        )
        pinned = Pinned(
            ledger_id=store.ledger_id,
            identity=identity,
            api=str(job.api),
            seed=job.seed if before is None else before.seed,
            sources=sources,
            files=files,
            exclude=exclude,
            spool=generation,
        )
        _merge(store, job, scanned, pinned)
    if before is not None:
        store.disk.unlink(store.folder.spool(before.spool))
    return pinned


def _merge(store: Store, job: Job, scanned: Scanned, pinned: Pinned) -> None:
    """Finds known rows again, settles what each prompt's state is, and writes all to the ledger."""
    old_states, old_owners, _ = store.ledger.load()
    old = np.concatenate([np.zeros(0, dtype=RECORD), *store.ledger.all_records()])
    known = len(old)
    keys = scanned.owns if pinned.identity is Identity.OWN else scanned.contents
    times = occurrences(keys)
    seqs = match(old["key"], old["occurrence"], keys, times)
    new = seqs < 0
    seqs[new] = known + np.arange(np.count_nonzero(new))
    total = known + int(np.count_nonzero(new))
    position = np.full(total, -1, dtype=np.int64)
    position[seqs] = np.arange(len(scanned))
    live = position >= 0

    states = np.zeros(total, dtype=np.uint8)
    states[:known] = old_states
    contents = np.zeros((total, 2), dtype=np.uint64)
    contents[:known] = old["content"]
    kept = live & (states == State.DONE)  # a DONE row keeps the content key that was answered
    edited = (contents[seqs] != scanned.contents).any(axis=1)
    changed = np.zeros(total, dtype=bool)
    changed[seqs] = edited
    if count := np.count_nonzero(kept & changed):
        store.notes.append(
            f"{count:,} prompts that are answered were changed since, under the same ids; their answers "
            "stay. To ask them anew, give them new ids"
        )
    failed = states == State.FAILED
    if failed.any():  # a row that had changed under an earlier run stands in its source again
        failed[store.ledger.failed_seqs(SOURCE_CHANGED)] = False
    fresh = live & ~kept & ~(failed & ~changed)
    contents[seqs] = np.where(kept[seqs, None], contents[seqs], scanned.contents)
    states[fresh] = State.PENDING
    states[seqs[scanned.unreadable]] = State.UNREADABLE
    states[~live & (states != State.DONE)] = State.GONE

    owners = np.full(total, NO_SOURCE, dtype=np.uint16)
    owners[:known] = _renumbered(old_owners, store.pinned, job)
    owners[:known][~live[:known]] = NO_SOURCE  # an answer to what is no longer in the input
    owners[seqs] = scanned.records["source"]

    left_out = read_excluded(job, store.notes)
    if len(left_out):
        asked = np.flatnonzero(states == State.PENDING)
        known_by = np.zeros((3, total, 2), dtype=np.uint64)
        known_by[:, seqs] = scanned.asked, scanned.contents, scanned.owns
        out = np.logical_or.reduce([excluded(keys[asked], left_out) for keys in known_by])
        states[asked[out]] = State.EXCLUDED
    states, duplicates = settle_duplicates(states, contents)

    def blocks() -> Iterator[tuple[int, bytes]]:
        for begin in range(0, total, ROWS_PER_CHUNK):
            end = min(total, begin + ROWS_PER_CHUNK)
            records = np.zeros(end - begin, dtype=RECORD)
            records[: max(0, known - begin)] = old[begin:end]
            here = position[begin:end]
            found = np.flatnonzero(here >= 0)
            records[found] = scanned.records[here[found]]
            records["key"][found] = keys[here[found]]
            records["occurrence"][found] = times[here[found]]
            records["content"] = contents[begin:end]
            records["source"] = owners[begin:end]
            for first in range(0, end - begin, RECORDS_PER_BLOCK):
                packed = records[first : first + RECORDS_PER_BLOCK].tobytes()
                was = old[begin + first : begin + first + RECORDS_PER_BLOCK].tobytes()
                if packed != was:
                    yield (begin + first) // RECORDS_PER_BLOCK, packed

    store.ledger.replace_index(
        blocks(),
        states,
        owners,
        duplicates,
        {"pinned": msgspec.json.encode(pinned)},
        ((int(seqs[at]), msgspec.json.encode(failed)) for at, failed in scanned.errors.items()),
    )


def _renumbered(
    owners: np.ndarray[tuple[int], np.dtype[np.uint16]], before: Pinned | None, job: Job
) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    table = np.full(0x1_0000, NO_SOURCE, dtype=np.uint16)
    names = {source.name: number for number, source in enumerate(job.sources)}
    for number, source in enumerate(before.sources if before is not None else ()):
        table[number] = names.get(source.name, NO_SOURCE)
    return table[owners]


def _ask_failed_again(store: Store, index: PromptIndex, seqs: Seqs | Numbers) -> None:
    """FAILED prompts among `seqs` become pending; of equal ones that all do, only the first is asked."""
    failed = np.zeros(len(index), dtype=bool)
    failed[seqs] = True
    failed &= index.states == State.FAILED
    if not failed.any():
        return
    waiting = np.zeros(len(index), dtype=bool)
    both = failed[index.duplicates[:, 0]] & failed[index.duplicates[:, 1]]
    waiting[index.duplicates[both, 1]] = True
    asked = np.flatnonzero(failed & ~waiting)
    shared = np.flatnonzero(waiting)
    store.ledger.commit([(State.PENDING, asked), (State.DUPLICATE, shared)])
    index.states[asked] = State.PENDING
    index.states[shared] = State.DUPLICATE


def _answer_late_duplicates(store: Store, job: Job, index: PromptIndex) -> None:
    """Prompts that came after the answer to an equal one get it now, or are pending where its row is gone."""
    if index.count(State.DUPLICATE):
        writer = BatchWriter(store, job)
        try:
            for items in writer.stored_answers():
                writer.write(items)
        finally:
            writer.close()
