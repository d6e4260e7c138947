"""State changes of prompts, packed: what one commit of the ledger holds."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.drive.store.states import State

_CHANGE = struct.Struct("<BI")

Seqs = npt.NDArray[np.uint32]
Change = tuple[State, Sequence[int] | npt.NDArray[np.integer[Any]]]


def pack_changes(changes: Iterable[Change]) -> bytes:
    """State changes as bytes: per change the state, the count, and the seqs as uint32."""
    parts = []
    for state, seqs in changes:
        packed = np.asarray(seqs, dtype="<u4")
        parts += [_CHANGE.pack(state, len(packed)), packed.tobytes()]
    return b"".join(parts)


def unpack_changes(packed: bytes) -> Iterator[tuple[State, Seqs]]:
    """The inverse of `pack_changes`."""
    at = 0
    while at < len(packed):
        state, count = _CHANGE.unpack_from(packed, at)
        at += _CHANGE.size
        yield State(state), np.frombuffer(packed, dtype="<u4", count=count, offset=at)
        at += 4 * count
