"""The one way to the disk: appending, syncing, renaming, and the transactions of SQLite.

`Disk` is what the rest of headrace may do to durable files; `RealDisk` does it; `RecordingDisk` (in
`recording`) also writes down the order, so that tests can cut the power at every step.

The rules that make a write last: bytes last after `AppendFile.fsync`; a new, renamed or removed name
lasts after `fsync_folder` of its folder; a ledger transaction lasts after `commit`.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Protocol

FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})

# A ledger write that failed for want of room says one of these. SQLite maps ENOSPC to FULL but EDQUOT to
# IOERR_WRITE, and a shared-memory file that cannot grow to IOERR_SHMSIZE (sqlite.org/rescode.html).
_FULL_SQLITE_CODES = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
)


def is_full(error: BaseException) -> bool:
    """True when `error` says that the disk, or the user's quota on it, has no room left."""
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", None) in _FULL_SQLITE_CODES
    return isinstance(error, OSError) and error.errno in FULL_ERRNOS


class AppendFile(Protocol):
    """A file open for appending. `length` counts the bytes written through it and before it."""

    path: Path
    length: int

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Appends all of `data` and returns its length. After an OSError part may be there: truncate."""
        ...

    def fsync(self) -> None:
        """Returns when everything written is on the disk."""
        ...

    def truncate(self, length: int) -> None:
        """Cuts the file to `length` bytes."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """What may be done to durable files."""

    def make_folder(self, path: Path) -> None:
        """Makes the folder and those above it, if missing, durably."""
        ...

    def append_open(self, path: Path, *, fresh: bool = False) -> AppendFile:
        """The file, made if missing; emptied when `fresh`."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Renames, taking the place of `target`."""
        ...

    def unlink(self, path: Path) -> None:
        """Removes the file; a missing one is no error."""
        ...

    def fsync_folder(self, path: Path) -> None:
        """Returns when the names in the folder are on the disk."""
        ...

    def write_atomic(self, path: Path, data: bytes) -> None:
        """After it, also after a crash within it, `path` holds either its old bytes or `data`."""
        ...

    def open_database(self, path: Path) -> sqlite3.Connection:
        """A connection to the SQLite file (WAL, synchronous=FULL, explicit transactions)."""
        ...

    def commit(self, connection: sqlite3.Connection) -> None:
        """Ends the open transaction; returns when it is on the disk."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Bytes that an ordinary user may still write where `path` lies."""
        ...


class RealAppendFile:
    """An `AppendFile` on the operating system's own; nothing is buffered in this process."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if fresh else 0)
        self.path = path
        self._descriptor = os.open(path, flags, 0o644)
        self.length = os.fstat(self._descriptor).st_size

    def write(self, data: bytes | bytearray | memoryview) -> int:
        rest = memoryview(data)
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
        self.length += len(data)
        return len(data)

    def fsync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)
        self.length = length

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """The machine's disk."""

    def make_folder(self, path: Path) -> None:
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self.fsync_folder(folder.parent)

    def append_open(self, path: Path, *, fresh: bool = False) -> AppendFile:
        return RealAppendFile(path, fresh=fresh)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def fsync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_atomic(self, path: Path, data: bytes) -> None:
        beside = path.with_name(path.name + ".tmp")
        file = self.append_open(beside, fresh=True)
        try:
            file.write(data)
            file.fsync()
        except OSError:
            file.close()
            self.unlink(beside)  # on a full disk the half-written copy is part of what fills it
            raise
        file.close()
        self.replace(beside, path)
        self.fsync_folder(path.parent)

    def open_database(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA journal_size_limit=16777216")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")

    def free_bytes(self, path: Path) -> int:
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).free
