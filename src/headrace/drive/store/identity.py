"""Which rows are the same: pure functions over arrays of 16-byte keys, exact and in a few sorts.

Arrays of keys have shape (n, 2), uint64. A sort is done on the last half of the key (the keys of one
prompt's samples differ there); only rows whose half is shared are compared in full, so a job without
duplicates costs one sort of 8 bytes a row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.drive.store.records import Keys
from headrace.drive.store.states import State

Numbers = npt.NDArray[np.int64]


def shared(keys: Keys) -> Numbers:
    """Positions of the rows whose last 8 bytes occur more than once, ascending."""
    order = np.argsort(keys[:, 1], kind="stable")
    ordered = keys[order, 1]
    same = ordered[1:] == ordered[:-1]
    member = np.zeros(len(keys), dtype=bool)
    member[order[1:][same]] = True
    member[order[:-1][same]] = True
    return np.flatnonzero(member)


def occurrences(keys: Keys) -> npt.NDArray[np.uint32]:
    """For each row, how many rows before it have the same key."""
    counts = np.zeros(len(keys), dtype=np.uint32)
    rows = shared(keys)
    if not len(rows):
        return counts
    order = rows[np.lexsort((rows, keys[rows, 1], keys[rows, 0]))]
    begins = _group_begins(keys[order])
    position = np.arange(len(order))
    counts[order] = position - np.maximum.accumulate(np.where(begins, position, 0))
    return counts


def match(
    old: Keys,
    old_occurrences: npt.NDArray[np.uint32],
    new: Keys,
    new_occurrences: npt.NDArray[np.uint32],
) -> Numbers:
    """For each new row the position of the old row with the same key and occurrence, or -1.

    No (key, occurrence) may stand twice on one side.
    """
    found = np.full(len(new), -1, dtype=np.int64)
    if not len(old) or not len(new):
        return found
    keys = np.concatenate([old, new])
    times = np.concatenate([old_occurrences, new_occurrences])
    order = np.lexsort((times, keys[:, 1], keys[:, 0]))  # stable: of a pair, the old one comes first
    ordered, ordered_times = keys[order], times[order]
    same = (ordered[1:] == ordered[:-1]).all(axis=1) & (ordered_times[1:] == ordered_times[:-1])
    first, second = order[:-1][same], order[1:][same]
    found[second - len(old)] = first
    return found


def settle_duplicates(
    states: npt.NDArray[np.uint8], contents: Keys
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    """Decides which of the prompts with equal contents is asked, and which share its answer.

    Of prompts with one content, an answered one is the primary, else the first that is still to be asked,
    else the first that failed. The others that are still to be asked become duplicates.

    Returns:
        The new states, and the pairs (primary, duplicate) of shape (n, 2), ascending by primary.
    """
    states = states.copy()
    states[states == State.DUPLICATE] = State.PENDING
    rank = np.full(256, 255, dtype=np.uint8)
    rank[State.DONE], rank[State.PENDING], rank[State.FAILED] = 0, 1, 2
    taking_part = np.flatnonzero(rank[states] != 255)
    rows = taking_part[shared(contents[taking_part])]
    if not len(rows):
        return states, np.zeros((0, 2), dtype=np.uint32)
    keys = contents[rows]
    order = rows[np.lexsort((rows, rank[states[rows]], keys[:, 1], keys[:, 0]))]
    begins = _group_begins(contents[order])
    primaries = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    others = ~begins & (states[order] != State.DONE)
    # a failed prompt shares nothing with an answered one that came later: it is in failed/, and counted
    others &= ~((states[order] == State.FAILED) & (states[primaries] != State.FAILED))
    primary, duplicate = primaries[others], order[others]
    waiting = duplicate[states[duplicate] == State.PENDING]
    states[waiting] = State.DUPLICATE
    pairs = np.stack([primary, duplicate], axis=1).astype(np.uint32)
    return states, pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _group_begins(ordered: Keys) -> npt.NDArray[np.bool_]:
    begins = np.ones(len(ordered), dtype=bool)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return begins
