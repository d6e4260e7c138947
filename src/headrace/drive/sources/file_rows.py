"""What every file format yields: one raw JSON object per row, or what is wrong with it."""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import InputError

ROW_BYTES_LIMIT = 64 << 20  # one row, decompressed; the longest context sold today is about 10 MB of text


class FileRow(NamedTuple):
    """One row of a file, not yet read as a prompt.

    Attributes:
        raw: the row as one JSON object on one line; what the file holds instead where `error` says so.
        error: what is wrong with the row, or None.
        place: 1-based line or item in the file, for messages.
        offset: byte offset of `raw` in the (decompressed) file; 0 where the format has no such thing.
        length: bytes that the row takes there.
    """

    raw: bytes
    error: str | None
    place: int
    offset: int
    length: int


class DamagedFile(InputError):
    """The file ends early or stops making sense: what was read before stands, the rest cannot be read."""


def too_long(length_bytes: int) -> str:
    """What is said of a row over the limit; `length_bytes` as far as it is known."""
    return (
        f"the row is over {length_bytes:,} bytes long; at most {ROW_BYTES_LIMIT:,} are read. "
        "Shorten it or take it out"
    )
