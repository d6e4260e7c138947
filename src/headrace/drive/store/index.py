"""The index of a running job: one state byte per prompt in memory, everything else in the ledger."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.drive.job import Job, Source
from headrace.drive.prompts import Prompt
from headrace.drive.request import build_request, content_key, own_key, row_id
from headrace.drive.sources import Shape, read_row, shape_of
from headrace.drive.store.changes import Seqs
from headrace.drive.store.ledger import Ledger, States
from headrace.drive.store.pinned import Identity
from headrace.drive.store.records import Record
from headrace.drive.store.rows import SOURCE_CHANGED, FailedRow
from headrace.drive.store.states import NO_SOURCE, State
from headrace.errors import InputError, StorageError, UsageError

_OPEN_FILES = 32
_COUNTED_AT_ONCE = 65_536  # prompts, so that counting takes two megabytes for a moment and not thirty
_DENSE = 0.02  # share of pending prompts above which drawing at random beats listing them


class SourceUnavailable(StorageError):
    """A source file cannot be opened or read just now; nothing is known to be wrong with its rows."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(
            f"the source {path} cannot be read: {error}. Its rows wait, and none of them fails: put the file "
            "back or mend its disk, and the job goes on"
        )
        self.path = path


class PromptIndex:
    """All prompts of a job by seq.

    Attributes:
        states: uint8, one per prompt (`State`); written by the writer thread and the retry of failed rows.
        sources: uint16, index into `Job.sources` per prompt; `NO_SOURCE` where the source left the job.
        duplicates: shape (n, 2), uint32: primary and duplicate, ascending by primary.
    """

    def __init__(
        self,
        ledger: Ledger,
        job: Job,
        files: Sequence[Path],
        identity: Identity,
        states: States,
        sources: npt.NDArray[np.uint16],
        duplicates: Seqs,
    ) -> None:
        self.states = states
        self.sources = sources
        self.duplicates = duplicates
        self._ledger = ledger
        self._job = job
        self._files = files
        self._identity = identity
        self._descriptors: OrderedDict[int, int] = OrderedDict()
        self._reading = threading.Lock()

    def __len__(self) -> int:
        return len(self.states)

    def pending_count(self) -> int:
        """Prompts still to be asked, those in flight included."""
        return self.count(State.PENDING)

    def count(self, state: State) -> int:
        """Prompts in `state`."""
        return int(np.count_nonzero(self.states == state))

    def other_rows(self) -> int:
        """Rows that are done, but answer nothing that this job asks: another input had them."""
        return int(np.count_nonzero((self.states == State.DONE) & (self.sources == NO_SOURCE)))

    def counts(self) -> dict[State, int]:
        """Prompts by state."""
        return {state: self.count(state) for state in State}

    def counts_by_source(self) -> npt.NDArray[np.int64]:
        """Prompts by source and state, of shape (sources of the job, states)."""
        width = len(State)
        counts = np.zeros(len(self._job.sources) * width, dtype=np.int64)
        for begin in range(0, len(self.states), _COUNTED_AT_ONCE):
            sources = self.sources[begin : begin + _COUNTED_AT_ONCE]
            states = self.states[begin : begin + _COUNTED_AT_ONCE]
            known = sources != NO_SOURCE
            mixed = sources[known].astype(np.int64) * width + states[known]
            counts += np.bincount(mixed, minlength=len(counts))
        return counts.reshape(-1, width)

    def random_pending(
        self, count: int, rng: np.random.Generator, taken: npt.NDArray[np.uint8] | npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64]:
        """Up to `count` different pending prompts that are not `taken`, in random order.

        Fewer than `count` only when no more are left. Every free prompt is equally likely.
        """
        total = len(self.states)
        if not total or count <= 0:
            return np.zeros(0, dtype=np.int64)
        probe = rng.integers(0, total, size=min(total, max(1024, 4 * count)))
        share = float(np.mean(self._free(probe, taken)))
        if total > 65_536 and share > _DENSE:
            drawn = rng.integers(0, total, size=int(1.3 * count / share) + 16)
            drawn = drawn[self._free(drawn, taken)]
            _, first = np.unique(drawn, return_index=True)
            found = drawn[np.sort(first)][:count]
            if len(found) == count:
                return found
        free = np.flatnonzero((self.states == State.PENDING) & (np.asarray(taken) == 0))
        return rng.permutation(free)[:count]

    def _free(
        self, seqs: npt.NDArray[np.int64], taken: npt.NDArray[np.uint8] | npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        free: npt.NDArray[np.bool_] = (self.states[seqs] == State.PENDING) & (taken[seqs] == 0)
        return free

    def duplicates_of(self, seqs: Sequence[int]) -> dict[int, list[int]]:
        """The prompts that wait for the answers of `seqs`, by primary; those without any are left out."""
        if not len(self.duplicates):
            return {}
        wanted = np.asarray(seqs, dtype=np.uint32)
        primaries = self.duplicates[:, 0]
        begins = np.searchsorted(primaries, wanted, side="left")
        ends = np.searchsorted(primaries, wanted, side="right")
        found: dict[int, list[int]] = {}
        for seq, begin, end in zip(seqs, begins, ends, strict=True):
            others = self.duplicates[begin:end, 1].tolist()
            waiting = [other for other in others if self.states[other] == State.DUPLICATE]
            if waiting:
                found[seq] = waiting
        return found

    def load(self, seqs: Sequence[int]) -> list[Prompt | FailedRow]:
        """The prompts of `seqs`, ready to be sent, in their order.

        A prompt whose bytes in the source are no longer those that were scanned comes as a FailedRow of
        kind `source_changed`.

        Raises:
            SourceUnavailable: a file cannot be read at all; the same call may be made again later.
            LedgerDamaged: the ledger's records make no sense.
        """
        records = self._ledger.records(seqs)
        with self._reading:
            return [self._load(int(seq), record) for seq, record in zip(seqs, records, strict=True)]

    def _load(self, seq: int, record: Record) -> Prompt | FailedRow:
        if record.source == NO_SOURCE:
            return self._changed(record, None, "its source is no longer part of the job")
        if record.source >= len(self._job.sources) or record.file >= len(self._files):
            raise self._ledger.damaged(f"prompt {seq:,} is said to come from a source that is not there")
        source = self._job.sources[record.source]
        raw = self._read(record)
        own_id: str | None = None
        try:
            row = read_row(source, raw, record.row, shape=self._shape(source))
            own_id = row.own_id
            request = build_request(row, source, self._job, record.sample)
            content = content_key(request, record.sample)
        except (InputError, UsageError) as error:
            return self._changed(record, own_id, str(error))
        if content != record.content:
            what = f"{self._files[record.file]} was changed after it was scanned"
            return self._changed(record, own_id, what)
        if self._identity is Identity.OWN and not _is_own(own_id, record):
            return self._changed(record, None, "its own id was changed after it was scanned")
        return Prompt(
            seq=seq,
            id=self._id(record, own_id),
            source=record.source,
            row=record.row,
            sample=record.sample,
            request=request,
            extra=row.extra,
        )

    def _read(self, record: Record) -> bytes:
        try:
            return os.pread(self._descriptor(record.file), record.length, record.offset)
        except OSError as error:
            self._forget_descriptor(record.file)  # a stale one never works again
            raise SourceUnavailable(self._files[record.file], error) from error

    def _shape(self, source: Source) -> Shape:
        try:
            return shape_of(source)
        except InputError as error:
            if isinstance(error.__cause__, OSError):
                raise SourceUnavailable(source.paths[0], error.__cause__) from error
            raise

    def _id(self, record: Record, own_id: str | None) -> str:
        """The prompt's id, as far as it can be known: an own id is nowhere but in the source."""
        own = self._identity is Identity.OWN and _is_own(own_id, record)
        name: bytes | str = own_id if own and own_id is not None else record.key
        return row_id(name, record.occurrence, record.sample)

    def _changed(self, record: Record, own_id: str | None, what: str) -> FailedRow:
        known = record.source < len(self._job.sources)
        return FailedRow(
            id=self._id(record, own_id),
            source=self._job.sources[record.source].name if known else "",
            row=record.row,
            sample=record.sample,
            kind=SOURCE_CHANGED,
            reason=f"the source row cannot be read as it was scanned: {what}. Run again: changed sources are "
            "scanned anew, and what was answered stays answered",
            status=None,
            server=None,
            tries=0,
            failed_at=time.time(),
        )

    def _descriptor(self, file: int) -> int:
        descriptor = self._descriptors.get(file)
        if descriptor is None:
            descriptor = os.open(self._files[file], os.O_RDONLY | os.O_CLOEXEC)
            self._descriptors[file] = descriptor
            if len(self._descriptors) > _OPEN_FILES:
                os.close(self._descriptors.popitem(last=False)[1])
        else:
            self._descriptors.move_to_end(file)
        return descriptor

    def _forget_descriptor(self, file: int) -> None:
        descriptor = self._descriptors.pop(file, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Closes the source files."""
        with self._reading:
            while self._descriptors:
                os.close(self._descriptors.popitem()[1])

    def check(self) -> None:
        """Raises AssertionError when states and duplicate pairs contradict each other."""
        assert len(self.states) == len(self.sources)
        assert not len(self.states) or int(self.states.max()) <= max(State)
        waiting = np.flatnonzero(self.states == State.DUPLICATE)
        assert np.isin(waiting, self.duplicates[:, 1]).all(), "a duplicate without a primary"
        assert (np.diff(self.duplicates[:, 0].astype(np.int64)) >= 0).all()


def _is_own(own_id: str | None, record: Record) -> bool:
    return own_id is not None and own_key(own_id, record.sample) == record.key
