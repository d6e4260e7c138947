"""Writes batches of answers: rows into the open segment, notes into the ledger, full segments into shards.

The order is the promise of this project: the rows of a batch are synced into the open segment, then the
ledger notes them, and only then are they counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from headrace.drive.job import Job
from headrace.drive.prompts import Prompt
from headrace.drive.store.index import PromptIndex
from headrace.drive.store.job_store import Store
from headrace.drive.store.rows import SOURCE_CHANGED, FailedRow, Row, as_json_text
from headrace.drive.store.segments import OpenSegment, encode_rows
from headrace.drive.store.shards import SEGMENT_BYTES, SEGMENT_ROWS, SUFFIXES, seal
from headrace.drive.store.states import State
from headrace.drive.store.stored_answers import stored_rows

Item = tuple[int, Row | FailedRow]


class BatchWriter:
    """Writes batches, on one thread; every method may be called again after the disk was full."""

    def __init__(
        self,
        store: Store,
        job: Job,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_rows: int = SEGMENT_ROWS,
    ) -> None:
        if store.index is None:
            raise ValueError("build the index before writing rows")
        self._store = store
        self._index: PromptIndex = store.index
        self._form = job.output_format
        self._segment_bytes = segment_bytes
        self._segment_rows = segment_rows
        # of a batch whose rows are synced and not yet noted: the seqs done, the failures as JSON, and the
        # duplicates to be asked themselves
        self._synced: tuple[list[int], list[tuple[int, bytes]], list[int]] | None = None
        lengths = store.ledger.segment_lengths
        self._to_seal: list[OpenSegment] = []
        numbers = list(store.folder.segments())
        for number in numbers:
            path = store.folder.segment(number)
            length = lengths.get(number, 0)
            self._to_seal.append(OpenSegment(store.disk, number, path, length=length, rows=_rows_in(path)))
        following = 1 + max([*numbers, *store.folder.shards(), *store.ledger.sealed(), *lengths, -1])
        self._segment = self._to_seal.pop() if self._to_seal else self._new_segment(following)
        self._following = max(following, self._segment.number + 1)

    def _new_segment(self, number: int) -> OpenSegment:
        return OpenSegment(self._store.disk, number, self._store.folder.segment(number))

    def write(self, items: Sequence[Item]) -> tuple[list[int], list[int]]:
        """Makes a batch durable, with the duplicates that share its outcomes.

        A prompt that already has its row keeps it; what comes later for it is dropped.

        Returns:
            The seqs now done, and those now failed.

        Raises:
            OSError, sqlite3.OperationalError: the disk refused. Call again with the same batch: what was
                written stays written, nothing is written twice.
        """
        if self._synced is None:
            rows, failures, asked = self._fan_out(items)
            if rows:
                self._segment.append(encode_rows([row for _, row in rows]), len(rows))
            as_json = [(seq, msgspec.json.encode(failed)) for seq, failed in failures]
            self._synced = [seq for seq, _ in rows], as_json, asked
        done, failures_as_json, asked = self._synced
        failed = [seq for seq, _ in failures_as_json]
        outcomes = (State.DONE, done), (State.FAILED, failed), (State.PENDING, asked)
        changes = [(state, seqs) for state, seqs in outcomes if seqs]
        if changes:
            self._store.ledger.commit(
                changes,
                failures_as_json,
                segment=self._segment.number if done else None,
                length=self._segment.length if done else None,
            )
            for state, seqs in changes:
                self._index.states[seqs] = state
        self._synced = None
        return done, failed

    def _fan_out(
        self, items: Sequence[Item]
    ) -> tuple[list[tuple[int, Row]], list[tuple[int, FailedRow]], list[int]]:
        """One outcome per prompt that has no row yet, and one per duplicate that waits for it.

        The seqs are of duplicates that must be asked themselves: the row they waited for has changed in its
        source, which says nothing of theirs.
        """
        given: dict[int, Row | FailedRow] = {}
        states = self._index.states
        for seq, outcome in items:
            if isinstance(given.get(seq), Row):
                continue
            if isinstance(outcome, Row) or states[seq] != State.DONE:
                given[seq] = outcome
        outcomes = {seq: outcome for seq, outcome in given.items() if states[seq] != State.DONE}
        asked: list[int] = []
        for primary, waiting in self._index.duplicates_of(list(given)).items():
            outcome = given[primary]
            if isinstance(outcome, FailedRow) and outcome.kind == SOURCE_CHANGED:
                asked += waiting
                continue
            for seq, prompt in zip(waiting, self._index.load(waiting), strict=True):
                outcomes.setdefault(seq, self._shared(outcome, prompt))
        rows = [(seq, outcome) for seq, outcome in outcomes.items() if isinstance(outcome, Row)]
        failures = [(seq, outcome) for seq, outcome in outcomes.items() if isinstance(outcome, FailedRow)]
        return rows, failures, asked

    def _shared(self, outcome: Row | FailedRow, prompt: Prompt | FailedRow) -> Row | FailedRow:
        """The primary's outcome under the duplicate's own id, place and other columns."""
        if isinstance(prompt, FailedRow):
            return prompt
        source = self._store.job.sources[prompt.source].name
        if isinstance(outcome, FailedRow):
            return msgspec.structs.replace(
                outcome, id=prompt.id, source=source, row=prompt.row, sample=prompt.sample
            )
        return msgspec.structs.replace(
            outcome,
            id=prompt.id,
            source=source,
            row=prompt.row,
            sample=prompt.sample,
            extra=as_json_text(prompt.extra) if prompt.extra is not None else None,
        )

    def seal_is_due(self) -> bool:
        """True when the open segment is full, or one of an earlier run waits."""
        return self.is_full() or bool(self._to_seal)

    def is_full(self) -> bool:
        """Whether the open segment should become a shard before more rows go into it."""
        return self._segment.length >= self._segment_bytes or self._segment.rows >= self._segment_rows

    def seal(self, between: Callable[[], None] = lambda: None, *, only_full: bool = False) -> None:
        """Makes shards of the open segment and of those of earlier runs.

        Args:
            between: called every few milliseconds; it may write batches, which go into the next segment.
            only_full: leave the open segment unless it is full.

        Raises:
            OSError: the disk refused; call again.
        """
        if self._segment.rows and (self.is_full() or not only_full):
            self._segment.close()
            self._to_seal.append(self._segment)
            self._segment = self._new_segment(self._following)
            self._following += 1
        while self._to_seal:
            segment = self._to_seal[0]
            folder, disk = self._store.folder, self._store.disk
            if segment.rows:
                target = folder.shard(segment.number, SUFFIXES[self._form])
                rows = seal(disk, segment.path, segment.length, target, self._form, between)
                self._store.ledger.seal(segment.number, rows)
            disk.unlink(segment.path)
            self._to_seal.pop(0)
        _release_arrow_memory()

    def put_snapshot(self) -> None:
        """Writes the states of all prompts, so that the next run need not replay what led to them."""
        self._store.ledger.put_snapshot(self._index.states, self._index.sources, self._index.duplicates)

    def stored_answers(self) -> Iterator[Sequence[Item]]:
        """Stored rows that duplicates, which came to the job after the answer, wait for: batches for `write`.

        Duplicates whose primary's row is no longer in the folder become pending: they are asked themselves.
        """
        index = self._index
        pairs = index.duplicates
        answered = index.states[pairs[:, 0]] == State.DONE
        waiting = pairs[answered & (index.states[pairs[:, 1]] == State.DUPLICATE)]
        if not len(waiting) or self._store.pinned is None:
            return
        primaries = np.unique(waiting[:, 0])
        yield from stored_rows(self._store, self._store.pinned.identity, primaries)
        left = waiting[index.states[waiting[:, 1]] == State.DUPLICATE, 1]
        if len(left):
            self._store.ledger.commit([(State.PENDING, left)])
            index.states[left] = State.PENDING

    def close(self) -> None:
        """Closes the open segment; its rows stay durable where they are."""
        self._segment.close()


def _rows_in(path: Path) -> int:
    count = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
    return count


def _release_arrow_memory() -> None:
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    pa.system_memory_pool().release_unused()
