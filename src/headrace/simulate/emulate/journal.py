"""The server's own record of what it answered, for counting exactly-once where it happens.

One line per request that reached its end: 16 hex digits of the body's hash, a space, and the outcome: the
HTTP status of a whole answer (`200`, `400`, `503`, …) or `dropped`, `truncated`, `html`, `aborted`, `lost`.
Lines ending in ` 200` are the good answers that left the server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

_MASK = (1 << 64) - 1
_BASIS = 1469598103934665603
_PRIME = 1099511628211


def body_hash(body: bytes) -> str:
    """Returns 16 hex digits: 64-bit FNV-1a of the bytes as received, from basis 1469598103934665603."""
    value = _BASIS
    for byte in body:
        value = ((value ^ byte) * _PRIME) & _MASK
    return f"{value:016x}"


class Journal:
    """An append-only text file, written line by line. Shared by all replicas of one process."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", buffering=1, encoding="ascii")

    def note(self, body: bytes, outcome: str) -> None:
        """Writes one line."""
        self._file.write(f"{body_hash(body)} {outcome}\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
