"""The disk, the lock, what file system a path lies on, and the model of a crash."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from pathlib import Path

import pytest

from headrace.clock import VirtualClock
from headrace.durable.disk import RealAppendFile, RealDisk, is_full
from headrace.durable.filesystem import filesystem_of, is_network
from headrace.durable.lock import FolderLock, read_holder
from headrace.durable.recording import Loss, RecordingDisk, after_crash
from headrace.errors import BusyError


def test_an_append_file_counts_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    file = RealDisk().append_open(path)
    assert file.length == 3
    assert file.write(memoryview(b"defg")) == 4
    file.truncate(5)
    file.write(b"X")
    file.fsync()
    file.close()
    file.close()
    assert (path.read_bytes(), file.length) == (b"abcdeX", 6)


def test_write_atomic_keeps_the_old_bytes_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = RealDisk(), tmp_path / "status.json"
    disk.write_atomic(path, b"old")

    def full(self: RealAppendFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RealAppendFile, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        disk.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["status.json"]


def test_is_full_knows_the_words_for_no_room() -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = 13  # SQLITE_FULL, sqlite.org/rescode.html
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = 5
    assert is_full(full)
    assert not is_full(busy)
    assert is_full(OSError(28, ""))  # ENOSPC on Linux
    assert is_full(OSError(122, ""))  # EDQUOT on Linux
    assert not is_full(OSError(5, ""))
    assert not is_full(ValueError())


def test_the_lock_says_who_holds_it(tmp_path: Path) -> None:
    clock = VirtualClock()
    path = tmp_path / "lock"
    lock = FolderLock(path, clock)
    holder = read_holder(path)
    assert holder is not None
    assert (holder.pid, holder.since) == (os.getpid(), clock.wall())
    clock.advance(3 * 3600)
    with pytest.raises(BusyError, match=rf"pid {os.getpid()} on .* for 3.0 h, holds {path}"):
        FolderLock(path, clock)
    lock.release()
    lock.release()
    assert read_holder(path) is None
    FolderLock(path, clock).release()


@pytest.mark.parametrize(("seconds", "age"), [(5, "5 s"), (600, "10 min"), (10_800, "3.0 h")])
def test_who_holds_a_folder_is_told_with_for_how_long(tmp_path: Path, seconds: float, age: str) -> None:
    clock = VirtualClock()
    lock = FolderLock(tmp_path / "lock", clock)
    clock.advance(seconds)
    with pytest.raises(BusyError, match=f"for {age}, holds"):
        FolderLock(tmp_path / "lock", clock)
    lock.release()


def test_a_lock_file_left_by_a_dead_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text(json.dumps({"pid": 1, "host": "gone", "user": "x", "since": 0.0}))
    FolderLock(path, VirtualClock()).release()


# Lines as in proc(5), /proc/pid/mountinfo; a space in a mount point stands as \040
_MOUNTINFO = r"""22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 0:35 / /data rw,relatime shared:20 master:3 - nfs4 server:/export rw,vers=4.2
41 40 0:36 / /data/local rw - xfs /dev/nvme0n1 rw
42 22 0:37 / /my\040disk rw - fuse.sshfs me@host: rw
43 22 0:38 / /scratch rw - tmpfs none rw
44 22 0:39 / /scratch rw - lustre mgs:/fs rw
half a line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me", "ext4"),
        ("/data/job", "nfs4"),
        ("/data", "nfs4"),
        ("/database", "ext4"),
        ("/data/local/job", "xfs"),
        ("/my disk/job", "fuse.sshfs"),
        ("/scratch/job", "lustre"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str, tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(_MOUNTINFO)
    assert filesystem_of(Path(path), mountinfo) == kind


def test_file_systems_that_sqlite_must_not_lie_on() -> None:
    assert all(map(is_network, ("nfs", "nfs4", "lustre", "gpfs", "cifs", "9p", "fuse.sshfs", "ceph")))
    assert not any(map(is_network, ("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "unknown")))
    assert filesystem_of(Path("/"), Path("/no/such/mountinfo")) == "unknown"


def test_what_a_crash_leaves(tmp_path: Path) -> None:
    disk = RecordingDisk()
    sure, aside, target = tmp_path / "sure", tmp_path / "aside", tmp_path / "target"
    file = disk.append_open(sure)
    file.write(b"synced ")
    file.fsync()
    disk.fsync_folder(tmp_path)
    file.write(b"not synced")
    other = disk.append_open(aside)
    other.write(b"whole")
    other.fsync()
    disk.replace(aside, target)
    disk.mark("renamed")
    left = {loss: after_crash(disk.events, loss)[0] for loss in Loss}
    assert left[Loss.DROPPED] == {sure: b"synced "}
    assert left[Loss.KEPT] == {sure: b"synced not synced", target: b"whole"}
    assert left[Loss.TORN] == {sure: b"synced not s", target: b"whole"}
    disk.fsync_folder(tmp_path)
    files, _, marks = after_crash(disk.events, Loss.DROPPED)
    assert files == {sure: b"synced ", target: b"whole"}
    assert marks == ["renamed"]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == left[Loss.KEPT]
