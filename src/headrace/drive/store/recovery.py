"""Takes up what a crash left between the files and the ledger: rows that are durable but not noted.

Order of a batch: rows are synced into the open segment, then the ledger notes them. Order of a seal: the
shard is synced and renamed, the ledger notes it, the open file goes. So a crash leaves at most: rows (or a
torn line) beyond what the ledger vouches for, a shard it does not know, or a segment whose shard exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.drive.request import key_of_id, own_key
from headrace.drive.store.identity import Numbers, match
from headrace.drive.store.index import PromptIndex
from headrace.drive.store.job_store import Store
from headrace.drive.store.pinned import Identity
from headrace.drive.store.records import RECORDS_PER_BLOCK, Keys, as_keys
from headrace.drive.store.segments import read_tail, set_bad_lines_aside
from headrace.drive.store.shards import read_shard
from headrace.drive.store.states import State

_OCCURRENCE_DIGITS = 9
_IDS_AT_ONCE = 8192
_NO_KEY = bytes(16)  # of an id that no prompt of the job can have


def take_up_rows(store: Store, index: PromptIndex, identity: Identity) -> None:
    """Brings ledger and files together; afterwards each open segment ends where the ledger says."""
    shards = store.folder.shards()
    known = store.ledger.sealed()
    _take_up_shards(store, index, identity, {n: path for n, path in shards.items() if n not in known})
    missing = [number for number in known if number not in shards]
    if missing:
        store.notes.append(
            f"{len(missing):,} of {len(known):,} finished shards are no longer in {store.folder.completions} "
            "(moved?); their rows count as answered"
        )
    vouched = dict(store.ledger.segment_lengths)
    for number, path in store.folder.segments().items():
        if number in shards:
            store.disk.unlink(path)
            continue
        _take_up_segment(store, index, identity, number, path, vouched.pop(number, 0))
    for number, length in vouched.items():
        if length and number not in shards:
            _ask_again(store, index, number, set(), 0)


def _take_up_shards(store: Store, index: PromptIndex, identity: Identity, shards: dict[int, Path]) -> None:
    """Notes the rows of shards that the ledger does not know; with a lost ledger that is all of them."""
    counts: dict[int, int] = {}

    def ids() -> Iterator[tuple[str, int]]:
        for number, path in shards.items():
            counts[number] = 0
            for columns in read_shard(path, ("id", "sample")):
                counts[number] += len(columns["id"])
                yield from zip(columns["id"], columns["sample"], strict=True)

    if shards:
        _note_done(store, index, find_seqs(store, identity, ids()))
    for number, rows in counts.items():
        store.ledger.seal(number, rows)


def _take_up_segment(
    store: Store, index: PromptIndex, identity: Identity, number: int, path: Path, vouched: int
) -> None:
    if bad := set_bad_lines_aside(store.disk, path, vouched):
        store.notes.append(
            f"{bad:,} lines of {path} could not be read as rows: the disk has not kept what was written. "
            f"They were moved to {path.name}.bad, and their prompts are asked again"
        )
    size = path.stat().st_size
    begin = vouched if size >= vouched else 0
    tail = read_tail(path, begin)
    if size == begin == tail.good_length:
        return
    file = store.disk.append_open(path)
    if tail.good_length < size:
        file.truncate(tail.good_length)
    file.fsync()
    file.close()
    store.disk.fsync_folder(path.parent)
    found = find_seqs(store, identity, [(row.id, row.sample) for row in tail.rows])
    _note_done(store, index, found, number, tail.good_length)
    if size < vouched:
        _ask_again(store, index, number, {int(seq) for seq in found}, tail.good_length)


def _note_done(
    store: Store, index: PromptIndex, seqs: Numbers, segment: int | None = None, length: int | None = None
) -> None:
    store.add_unknown_rows(int(np.count_nonzero(seqs < 0)))
    seqs = seqs[seqs >= 0]
    store.ledger.commit([(State.DONE, seqs)], segment=segment, length=length)
    index.states[seqs] = State.DONE


def _ask_again(store: Store, index: PromptIndex, segment: int, there: set[int], length: int) -> None:
    """Rows that the ledger noted in a segment which the disk lost: to be asked again."""
    lost = [int(seq) for seq in store.ledger.seqs_in_segment(segment) if int(seq) not in there]
    lost = [seq for seq in lost if index.states[seq] == State.DONE]
    primaries = dict(index.duplicates[:, ::-1].tolist())
    shared = [seq for seq in lost if index.states[primaries.get(seq, seq)] == State.DONE and seq in primaries]
    asked = sorted(set(lost) - set(shared))
    store.ledger.commit([(State.PENDING, asked), (State.DUPLICATE, shared)], segment=segment, length=length)
    index.states[asked] = State.PENDING
    index.states[shared] = State.DUPLICATE
    if lost:
        store.notes.append(
            f"the disk lost {len(lost):,} rows of {store.folder.segment(segment)} that were synced; they are "
            "asked again. See whether the disk keeps its promises (write cache, network mount)"
        )


def find_seqs(store: Store, identity: Identity, ids: Iterable[tuple[str, int]]) -> Numbers:
    """For each (id, sample) the seq of its prompt, or -1 when the job has none of that id.

    Takes 40 bytes per id, and 60 per prompt of the job where the ids are many.
    """
    likely: list[Keys] = [as_keys([])]
    times: list[npt.NDArray[np.uint32]] = [np.zeros(0, dtype=np.uint32)]
    unlikely: dict[int, tuple[bytes, int]] = {}
    count = 0
    remaining = iter(ids)
    while chunk := list(islice(remaining, _IDS_AT_ONCE)):
        readings = [keys_of_id(text, sample, identity) or [(_NO_KEY, 0)] for text, sample in chunk]
        likely.append(as_keys([keys[0][0] for keys in readings]))
        times.append(np.array([keys[0][1] for keys in readings], dtype=np.uint32))
        unlikely |= {count + at: keys[1] for at, keys in enumerate(readings) if len(keys) > 1}
        count += len(chunk)
    found = _look_up(store, np.concatenate(likely), np.concatenate(times))
    again = [at for at in unlikely if found[at] < 0]
    if again:
        keys = as_keys([unlikely[at][0] for at in again])
        found[again] = _look_up(store, keys, np.array([unlikely[at][1] for at in again], dtype=np.uint32))
    return found


def keys_of_id(text: str, sample: int, identity: Identity) -> list[tuple[bytes, int]]:
    """What an id may stand for, the likelier first: (key, occurrence).

    An own id that ends in `-2` may be just that, or the third row with the id before it.
    """
    base = text.removesuffix(f"#{sample}") if sample else text
    head, occurrence = _split(base)
    if identity is Identity.HASH:
        key = key_of_id(text)
        return [(key, occurrence)] if key is not None else []
    own = [(own_key(base, sample), 0)]
    return [*own, (own_key(head, sample), occurrence)] if occurrence else own


def _split(base: str) -> tuple[str, int]:
    """The id without its occurrence, and the occurrence."""
    head, dash, tail = base.rpartition("-")
    if dash and tail.isascii() and tail.isdigit() and len(tail) <= _OCCURRENCE_DIGITS and tail[0] != "0":
        return head, int(tail)
    return base, 0


def _look_up(store: Store, keys: Keys, times: npt.NDArray[np.uint32]) -> Numbers:
    # files put together by hand may hold a row twice: each is looked for once
    both, inverse = np.unique(np.column_stack([keys, times.astype(np.uint64)]), axis=0, return_inverse=True)
    seqs = np.full(len(both), -1, dtype=np.int64)
    begin = 0
    for records in store.ledger.all_records(max(256, len(both) // RECORDS_PER_BLOCK)):
        here = match(records["key"], records["occurrence"], both[:, :2], both[:, 2].astype(np.uint32))
        seqs = np.where(here >= 0, here + begin, seqs)
        begin += len(records)
    found: Numbers = seqs[inverse.reshape(-1)]
    return found
