"""A disk that also writes down, in order, all that was done to it, and what would be left of it had the
power gone at any step.

What a crash may leave is modelled as POSIX promises it and no better: bytes are sure after the file's
fsync, names after the folder's, a ledger transaction after its commit (SQLite's own crash safety is
SQLite's to test). Everything else may be lost, kept, or torn.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from headrace.durable.disk import AppendFile, RealDisk


class Loss(StrEnum):
    """What becomes of that which was not synced."""

    DROPPED = "dropped"  # power loss: none of it reached the disk
    KEPT = "kept"  # kill -9: the kernel still writes all of it
    TORN = "torn"  # power loss: names arrived, and half of the bytes


@dataclass(frozen=True, slots=True)
class Event:
    """One thing done. `what` is make_folder, create, write, fsync, truncate, replace, unlink, fsync_folder,
    ledger or mark; `data` is the bytes written, a length, the new path, the ledger's image or the mark.
    """

    what: str
    path: Path
    data: Any = None


class _RecordedFile:
    def __init__(self, inner: AppendFile, events: list[Event]) -> None:
        self._inner = inner
        self._events = events
        self.path = inner.path

    @property
    def length(self) -> int:
        return self._inner.length

    @length.setter
    def length(self, value: int) -> None:
        self._inner.length = value

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self._events.append(Event("write", self.path, bytes(data)))
        return self._inner.write(data)

    def fsync(self) -> None:
        self._inner.fsync()
        self._events.append(Event("fsync", self.path))

    def truncate(self, length: int) -> None:
        self._inner.truncate(length)
        self._events.append(Event("truncate", self.path, length))

    def close(self) -> None:
        self._inner.close()


class RecordingDisk(RealDisk):
    """A `RealDisk` whose `events` say what was done; tests add marks of their own with `mark`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._databases: dict[int, Path] = {}

    def mark(self, data: Any) -> None:
        """Puts the test's own note between the events."""
        self.events.append(Event("mark", Path(), data))

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self.events.append(Event("make_folder", path))

    def append_open(self, path: Path, *, fresh: bool = False) -> AppendFile:
        existed = path.exists()
        inner = super().append_open(path, fresh=fresh)
        if not existed:
            self.events.append(Event("create", path))
        elif fresh:
            self.events.append(Event("truncate", path, 0))
        return _RecordedFile(inner, self.events)

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.events.append(Event("replace", source, target))

    def unlink(self, path: Path) -> None:
        if path.exists():
            super().unlink(path)
            self.events.append(Event("unlink", path))

    def fsync_folder(self, path: Path) -> None:
        super().fsync_folder(path)
        self.events.append(Event("fsync_folder", path))

    def open_database(self, path: Path) -> sqlite3.Connection:
        connection = super().open_database(path)
        self._databases[id(connection)] = path
        return connection

    def commit(self, connection: sqlite3.Connection) -> None:
        super().commit(connection)
        self.events.append(Event("ledger", self._databases[id(connection)], connection.serialize()))


@dataclass
class _Inode:
    sure: bytearray = field(default_factory=bytearray)
    pending: list[tuple[str, Any]] = field(default_factory=list)

    def apply(self, onto: bytearray, changes: list[tuple[str, Any]]) -> bytearray:
        for what, data in changes:
            if what == "write":
                onto += data
            else:
                del onto[data:]
        return onto

    def after_crash(self, loss: Loss) -> bytes:
        if loss is Loss.DROPPED:
            return bytes(self.sure)
        changes = list(self.pending)
        if loss is Loss.TORN and changes and changes[-1][0] == "write":
            what, data = changes[-1]
            changes[-1] = (what, data[: len(data) // 2])
        return bytes(self.apply(bytearray(self.sure), changes))


def after_crash(events: list[Event], loss: Loss) -> tuple[dict[Path, bytes], set[Path], list[Any]]:
    """What is left of the disk when the power goes right after the last of `events`.

    Returns:
        The files with their bytes, the folders, and the marks made before the crash.
    """
    live: dict[Path, _Inode] = {}
    sure: dict[Path, _Inode] = {}
    ledgers: dict[Path, bytes] = {}
    folders: set[Path] = set()
    marks: list[Any] = []
    for event in events:
        match event.what:
            case "make_folder":
                folders.add(event.path)
            case "create":
                live[event.path] = _Inode()
            case "write" | "truncate":
                live[event.path].pending.append((event.what, event.data))
            case "fsync":
                inode = live[event.path]
                inode.apply(inode.sure, inode.pending)
                inode.pending.clear()
            case "replace":
                live[event.data] = live.pop(event.path)
            case "unlink":
                live.pop(event.path, None)
                ledgers.pop(event.path, None)
            case "fsync_folder":
                for path in [path for path in sure if path.parent == event.path]:
                    del sure[path]
                sure |= {path: inode for path, inode in live.items() if path.parent == event.path}
            case "ledger":
                ledgers[event.path] = event.data
            case "mark":
                marks.append(event.data)
    names = sure if loss is Loss.DROPPED else live
    return {path: inode.after_crash(loss) for path, inode in names.items()} | ledgers, folders, marks
