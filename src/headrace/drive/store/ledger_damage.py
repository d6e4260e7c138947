"""Which file is a ledger, and which faults of the database mean that it no longer is one."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path

from headrace.errors import StorageError


class LedgerDamaged(StorageError):
    """The ledger file cannot be read as one. The next opening sets it aside and makes a new one."""


_SQLITE = b"SQLite format 3\0"  # the first 16 bytes of any SQLite file (sqlite.org/fileformat2.html)

# what garbage in the file, or in what its tables hold, comes to the reader as
NONSENSE = (sqlite3.Error, zlib.error, struct.error, ValueError, IndexError, TypeError)


def is_damage(error: BaseException) -> bool:
    """False for a ledger that cannot be had just now: locked, no room, a disk that does not answer."""
    if isinstance(error, sqlite3.OperationalError):
        code = getattr(error, "sqlite_errorcode", None)  # None: not text in a text column, says the module
        return code in (None, sqlite3.SQLITE_ERROR)  # ERROR: no such table, no such column
    return type(error) is sqlite3.DatabaseError or not isinstance(error, sqlite3.Error)


def is_ledger(path: Path) -> bool:
    """True for a ledger of any headrace, or an empty file; nothing is written to the file."""
    if not path.is_file():
        return False
    if not path.stat().st_size:
        return True
    with path.open("rb") as file:
        if not file.read(len(_SQLITE)).startswith(_SQLITE):
            return False
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT 1 FROM meta WHERE name = 'schema'").fetchone() is not None
    except sqlite3.DatabaseError:
        return False
