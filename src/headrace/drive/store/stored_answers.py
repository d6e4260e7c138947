"""Finds the stored rows of given prompts again, for duplicates that came to the job after the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.drive.store.job_store import Store
from headrace.drive.store.pinned import Identity
from headrace.drive.store.recovery import keys_of_id
from headrace.drive.store.rows import Row
from headrace.drive.store.segments import line_chunks, stored_rows_of
from headrace.drive.store.shards import read_shard

_ROWS_AT_ONCE = 64  # each may be handed to any number of duplicates


def stored_rows(
    store: Store, identity: Identity, seqs: Sequence[int] | Any
) -> Iterator[list[tuple[int, Row]]]:
    """Yields the durable rows of `seqs` with their seqs, a few at a time; those without a row are left out.

    Reads the ids of all shards, and whole rows only of shards that hold one that is wanted.
    """
    numbers = [int(seq) for seq in seqs]
    wanted = {
        (record.key, record.occurrence): seq
        for seq, record in zip(numbers, store.ledger.records(numbers), strict=True)
    }

    def seq_of(text: str, sample: int) -> int | None:
        return next((wanted[key] for key in keys_of_id(text, sample, identity) if key in wanted), None)

    found: list[tuple[int, Row]] = []
    for row in _candidates(store, seq_of):
        seq = seq_of(row.id, row.sample)
        if seq is not None:
            found.append((seq, row))
        if len(found) == _ROWS_AT_ONCE:
            yield found
            found = []
    if found:
        yield found


def _candidates(store: Store, seq_of: Any) -> Iterator[Row]:
    shards = store.folder.shards()
    for path in shards.values():
        ids = read_shard(path, ("id", "sample"))
        if any(
            seq_of(text, sample) is not None
            for columns in ids
            for text, sample in zip(columns["id"], columns["sample"], strict=True)
        ):
            for columns in read_shard(path):
                for values in zip(*columns.values(), strict=True):
                    yield Row(**dict(zip(columns, values, strict=True)))
    for number, path in store.folder.segments().items():
        if number not in shards:
            for chunk in line_chunks(path, 0, store.ledger.segment_lengths.get(number, 0)):
                yield from stored_rows_of(chunk, path)
