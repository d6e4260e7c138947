"""One holder per folder: an flock that the kernel drops with its process, and who holds it."""

from __future__ import annotations

import fcntl
import getpass
import os
import socket
from pathlib import Path

import msgspec

from headrace.clock import Clock
from headrace.errors import BusyError


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock; `since` in Unix seconds."""

    pid: int
    host: str
    user: str
    since: float


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return str(os.getuid())


class FolderLock:
    """Holds `path` until `release` or the end of the process.

    Works between processes of one host everywhere, and between hosts where the file system carries flock
    (NFS since Linux 2.6.12 and Lustre with `-o flock` do).
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Takes the lock. Raises BusyError, which says who has it, when it is held."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder = Holder(os.getpid(), socket.gethostname(), _user(), clock.wall())
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, msgspec.json.encode(holder) + b"\n", 0)
        except OSError as error:
            os.close(self._descriptor)
            self._descriptor = -1
            if isinstance(error, BlockingIOError):
                raise BusyError(_busy(path, clock)) from None
            raise

    def release(self) -> None:
        """Gives the lock up; a second call does nothing."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def read_holder(path: Path) -> Holder | None:
    """Who the lock file says holds it; None when it says nothing readable."""
    try:
        return msgspec.json.decode(path.read_bytes()[:4096], type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def _busy(path: Path, clock: Clock) -> str:
    holder = read_holder(path)
    folder = path.parent
    if holder is None:
        who = "another process"
    else:
        seconds = max(0.0, clock.wall() - holder.since)
        age = (
            f"{seconds:.0f} s"
            if seconds < 120
            else f"{seconds / 60:.0f} min"
            if seconds < 7200
            else f"{seconds / 3600:.1f} h"
        )
        who = f"pid {holder.pid} on {holder.host} (user {holder.user}), for {age},"
    return (
        f"{folder} is in use: {who} holds {path}; one run at a time may write to a job folder. "
        f"Look with `headrace status {folder}`, stop that run, or give another --out."
    )
