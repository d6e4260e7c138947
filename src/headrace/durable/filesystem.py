"""What kind of file system a path lies on, and whether SQLite's WAL may be trusted there."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")

# WAL keeps its index in shared memory, which hosts on a network file system do not share, and needs byte
# locks that many of them do not keep (sqlite.org/wal.html, "All processes using a database must be on the
# same host"; sqlite.org/howtocorrupt.html §2.1).
NETWORK_FILESYSTEMS = frozenset(
    {
        "nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "ceph", "beegfs", "9p", "afs", "ocfs2",
        "gfs2", "pvfs2", "orangefs", "panfs", "wekafs", "virtiofs", "glusterfs", "fuse.glusterfs",
        "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys", "fuse.rclone", "fuse.juicefs",
        "fuse.mount-s3", "fuse.cephfs", "fuse.ceph-fuse", "fuse.weka", "fuse.alluxio-fuse",
    }
)  # fmt: skip


def filesystem_of(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that holds `path` (`ext4`, `nfs4`, …); `unknown` where none is listed.

    Of a path that does not exist yet, that of its nearest existing parent. The last mount listed over a
    point wins, as in the kernel. Format: proc(5), /proc/pid/mountinfo.
    """
    try:
        lines = mountinfo.read_bytes().splitlines()
    except OSError:
        return "unknown"
    real = os.path.realpath(path)
    best, found = -1, "unknown"
    for line in lines:
        fields = line.split(b" ")
        try:
            separator = fields.index(b"-", 6)
            kind = fields[separator + 1].decode()
            point = os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), fields[4]))
        except (ValueError, IndexError, UnicodeError):
            continue
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, found = len(point), kind
    return found


def is_network(filesystem: str) -> bool:
    """True for a file system on which SQLite's WAL must not lie."""
    return filesystem in NETWORK_FILESYSTEMS
