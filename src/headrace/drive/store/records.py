"""The index record of one prompt: 60 bytes, packed 64 to a block so that a block fills one ledger page."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

RECORD = np.dtype(
    [
        ("key", "<u8", (2,)),  # identity: of the own id, or the content key
        ("content", "<u8", (2,)),  # content key: of what is sent
        ("offset", "<u8"),  # bytes into the file
        ("length", "<u4"),  # bytes
        ("row", "<u4"),  # 1-based row of the source
        ("occurrence", "<u4"),  # how many earlier rows have the same key
        ("file", "<u4"),  # position in the file table; 0 is the spool
        ("source", "<u2"),  # index into Job.sources
        ("sample", "<u2"),
    ]
)
RECORDS_PER_BLOCK = 64  # × 60 B = 3,840 B: one row of 4,096-byte pages (largest local payload 4,061 B)

Records = npt.NDArray[np.void]
Keys = npt.NDArray[np.uint64]  # shape (n, 2): 16-byte keys

_UNPACK = struct.Struct("<16s16sQIIIIHH")


class Record(NamedTuple):
    """One unpacked record; keys are 16 bytes."""

    key: bytes
    content: bytes
    offset: int
    length: int
    row: int
    occurrence: int
    file: int
    source: int
    sample: int


def unpack(block: bytes, position: int) -> Record:
    """The record at `position` of a block."""
    return Record(*_UNPACK.unpack_from(block, position * _UNPACK.size))


def as_keys(keys: list[bytes]) -> Keys:
    """16-byte keys as an array of shape (n, 2)."""
    return np.frombuffer(b"".join(keys), dtype="<u8").reshape(-1, 2)


def as_records(rows: list[tuple[Any, ...]], keys: Keys, contents: Keys) -> Records:
    """Records from their keys and (offset, length, row, file, source, sample); occurrence is 0."""
    records = np.zeros(len(rows), dtype=RECORD)
    records["key"] = keys
    records["content"] = contents
    if rows:
        for name, column in zip(
            ("offset", "length", "row", "file", "source", "sample"), zip(*rows, strict=True), strict=True
        ):
            records[name] = column
    return records
