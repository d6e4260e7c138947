"""A job folder, opened: the lock on it, its ledger, and what is told about its state.

Opening makes the folder, takes the lock, finds or remakes the ledger and clears what a crash left behind.
`headrace.drive.store.indexing.build_index` then adds the index, and takes up rows that the ledger lacks.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from headrace.clock import Clock, SystemClock
from headrace.drive.job import Job
from headrace.drive.store.folder import JobFolder
from headrace.drive.store.index import PromptIndex
from headrace.drive.store.job_json import job_as_json
from headrace.drive.store.ledger import Ledger
from headrace.drive.store.ledger_damage import LedgerDamaged, is_ledger
from headrace.drive.store.pinned import Pinned, refuse_other_model
from headrace.drive.store.rows import FailedRow
from headrace.drive.store.states import State
from headrace.durable.disk import Disk, RealDisk, is_full
from headrace.durable.filesystem import filesystem_of, is_network
from headrace.durable.lock import FolderLock
from headrace.errors import StorageError, UsageError


class LedgerAt(msgspec.Struct, frozen=True):
    """Contents of OUT/ledger-at: which ledger is this job's, where it does not lie in OUT."""

    path: str
    host: str
    ledger_id: str


class Store:
    """An open job folder.

    Attributes:
        notes: sentences for the user about what was found on opening.
        pinned: what the last scan saw; None before the first.
        index: set by `build_index`.
        unknown_rows: rows that were taken up from the files without a prompt of theirs in the job.
        is_rebuild: the ledger is missing although there are rows; `build_index` takes them up again.
    """

    def __init__(
        self, job: Job, disk: Disk, clock: Clock, lock: FolderLock, folder: JobFolder, network: str | None
    ) -> None:
        self.job = job
        self.disk = disk
        self.clock = clock
        self.folder = folder
        self.notes: list[str] = []
        self.index: PromptIndex | None = None
        self._lock = lock
        for leftover in folder.leftovers():
            disk.unlink(leftover)
        path = self._ledger_path(network)
        self._refuse_foreign(path)
        self.is_rebuild = False
        try:
            self._take_ledger(path)
        except LedgerDamaged as damage:
            self._make_new_ledger(path, damage)

    def _take_ledger(self, path: Path) -> None:
        """Opens the ledger and reads what it pins. Raises LedgerDamaged with it closed again."""
        self.disk.make_folder(path.parent)
        self.ledger = Ledger(path, self.disk)
        try:
            self.pinned = self._read_pinned()
            self.ledger_id = self._identify(path)
            self.unknown_rows = int(self.ledger.read_meta("unknown_rows") or 0)
        except BaseException:
            self.ledger.close()
            raise
        shards, segments = self.folder.shards(), self.folder.segments()
        if self.pinned is None and (shards or segments):
            self.is_rebuild = True
            self.notes.append(
                f"the ledger of {self.folder.out} is missing; it is remade from {len(shards)} shards and "
                f"{len(segments)} open files. Nothing that they hold is asked again"
            )

    def _read_pinned(self) -> Pinned | None:
        pinned = self.ledger.read_meta("pinned")
        try:
            return msgspec.json.decode(pinned, type=Pinned) if pinned else None
        except msgspec.DecodeError as error:
            raise self.ledger.damaged(error) from error

    def _make_new_ledger(self, path: Path, damage: LedgerDamaged) -> None:
        aside = self._set_aside(path, "damaged")
        self.notes.append(f"{damage}. It was moved to {aside}, and a new one is made from the shards")
        self._take_ledger(path)

    def remake_ledger(self, damage: LedgerDamaged) -> None:
        """Sets the open ledger aside and begins a new one, which `build_index` fills from the rows."""
        if self.index is not None:
            self.index.close()
            self.index = None
        self.ledger.close()
        self._make_new_ledger(self.ledger.path, damage)

    @classmethod
    def open(
        cls,
        job: Job,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        filesystem: Callable[[Path], str] = filesystem_of,
    ) -> Store:
        """Opens the job's folder, made if missing.

        Raises:
            BusyError: another process holds the folder.
            StorageError: the disk refuses, or is full.
            UsageError: the job has a ledger elsewhere than `job.ledger` says, or that is another file.
        """
        disk = disk if disk is not None else RealDisk()
        clock = clock if clock is not None else SystemClock()
        folder = JobFolder(job.out)
        lock = None
        try:
            for path in folder.folders():
                disk.make_folder(path)
            lock = FolderLock(folder.lock, clock)
            kind = filesystem(job.out)
            return cls(job, disk, clock, lock, folder, kind if is_network(kind) else None)
        except (OSError, sqlite3.OperationalError) as error:
            if lock is not None:
                lock.release()
            raise StorageError(_refused(job.out, error, disk)) from error
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def clear_spools(self, generation: int) -> None:
        """Removes the spools of all scans but the one pinned: a crash may have left them."""
        for path in self.folder.spools():
            if path != self.folder.spool(generation):
                self.disk.unlink(path)

    def _ledger_path(self, network: str | None) -> Path:
        told = _told(self.folder)
        asked = self.job.ledger
        if asked is not None:
            asked = Path(os.path.abspath(asked))
            other = Path(told.path) if told else self.folder.ledger
            if asked != other and other.exists():
                raise UsageError(
                    f"--ledger says {asked}, but the ledger of {self.folder.out} lies at {other}: "
                    "leave --ledger out, or move the file there while no run is going on"
                )
            return asked
        if told is not None:
            return Path(told.path)
        if self.folder.ledger.exists():
            if network is not None:
                self.notes.append(
                    f"the ledger {self.folder.ledger} lies on {network}, a network file system, on which "
                    "SQLite is not safe: run from one host only"
                )
            return self.folder.ledger
        if network is not None:
            path = _state_folder() / _name_of(self.folder.out) / "ledger.db"
            self.notes.append(
                f"{self.folder.out} lies on {network}, a network file system, on which SQLite is not safe: "
                f"the ledger is kept at {path} (--ledger says otherwise)"
            )
            return path
        return self.folder.ledger

    def _refuse_foreign(self, path: Path) -> None:
        """Raises UsageError when --ledger names a file that is not a ledger: it is the user's, and stays."""
        told = _told(self.folder)
        ours = path == self.folder.ledger or (told is not None and Path(told.path) == path)
        if ours or not path.exists() or is_ledger(path):
            return
        raise UsageError(
            f"--ledger says {path}, a file of {path.stat().st_size:,} bytes that is no ledger of "
            "headrace, or a damaged one. It was left as it is: name another file, or leave --ledger out"
        )

    def _set_aside(self, path: Path, why: str) -> Path:
        number = 1
        while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
            number += 1
        self.disk.replace(path, aside)
        for suffix in ("-wal", "-shm"):
            beside = path.with_name(path.name + suffix)
            if beside.exists():
                self.disk.replace(beside, aside.with_name(aside.name + suffix))
        self.disk.fsync_folder(path.parent)
        return aside

    def _identify(self, path: Path) -> str:
        """The ledger's own id; a ledger that another host has left behind is set aside."""
        told = _told(self.folder)
        found = self.ledger.read_meta("ledger_id")
        known = found.decode() if found else None
        if told is not None and known is not None and told.ledger_id != known:
            self.ledger.close()
            aside = self._set_aside(path, "stale")
            self.notes.append(
                f"the ledger {path} is older than the one that {told.host} made for {self.folder.out}; it "
                f"was moved to {aside}"
            )
            self.ledger = Ledger(path, self.disk)
            self.pinned = None
            known = None
        if known is None:
            known = uuid.uuid4().hex
            self.ledger.write_meta("ledger_id", known.encode())
        if path != self.folder.ledger:
            self._refuse_shared(path)
        if path != self.folder.ledger and (
            told is None or told.ledger_id != known or Path(told.path) != path
        ):
            at = LedgerAt(str(path), socket.gethostname(), known)
            self.disk.write_atomic(self.folder.ledger_at, msgspec.json.encode(at) + b"\n")
        return known

    def _refuse_shared(self, path: Path) -> None:
        """Raises UsageError when the ledger is that of another folder, which this one may be a copy of."""
        here = os.path.realpath(self.folder.out)
        owner = self.ledger.read_meta("out")
        if owner is not None and os.fsdecode(owner) != here:
            other = JobFolder(Path(os.fsdecode(owner)))
            at = _told(other)
            theirs = at is not None and Path(at.path) == path
            if theirs and not other.out.samefile(self.folder.out):
                raise UsageError(
                    f"the ledger {path} is that of {other.out}; a ledger holds one job. Name another file "
                    f"with --ledger (and delete {self.folder.ledger_at}, if this folder is a copy): it is "
                    "made from the rows that are there"
                )
        if owner is None or os.fsdecode(owner) != here:
            self.ledger.write_meta("out", os.fsencode(here))

    def pin_model(self, model: str) -> None:
        """Notes which model answers this job. Raises UsageError when another one has answered rows of it."""
        pinned = self.ledger.read_meta("model")
        if pinned is not None:
            answered = self.index.count(State.DONE) if self.index is not None else 0
            refuse_other_model(pinned.decode(), model, answered, self.folder.out)
        if pinned is None or pinned.decode() != model:
            self.ledger.write_meta("model", model.encode())

    def add_unknown_rows(self, count: int) -> None:
        """Notes that the files hold so many more rows of which the job has no prompt."""
        if count:
            self.unknown_rows += count
            self.ledger.write_meta("unknown_rows", str(self.unknown_rows).encode())

    def write_failed(self) -> None:
        """Rewrites failed/failed.jsonl from the ledger; removes it when nothing failed."""
        if self.index is None:
            return
        path = self.folder.failed_rows
        beside = path.with_name(path.name + ".tmp")
        file = None
        for failed in self.ledger.failures(self.index.states):
            if file is None:
                file = self.disk.append_open(beside, fresh=True)
            file.write(failed + b"\n")
        if file is None:
            self.disk.unlink(path)
            return
        file.fsync()
        file.close()
        self.disk.replace(beside, path)
        self.disk.fsync_folder(path.parent)

    def write_job(self) -> None:
        """Writes job.json, what this run was asked to do, where it says something else."""
        text = job_as_json(self.job)
        if not self.folder.job.exists() or self.folder.job.read_bytes() != text:
            self.disk.write_atomic(self.folder.job, text)

    def failure_counts(self) -> dict[str, int]:
        """Rows in failed/ by kind."""
        counts: dict[str, int] = {}
        if self.index is not None:
            for failed in self.ledger.failures(self.index.states):
                kind = msgspec.json.decode(failed, type=FailedRow).kind
                counts[kind] = counts.get(kind, 0) + 1
        return counts

    def close(self) -> None:
        """Closes the ledger and gives the folder back."""
        if self.index is not None:
            self.index.close()
        self.ledger.close()
        self._lock.release()

    def check(self) -> None:
        """Raises AssertionError when ledger, index and files contradict each other."""
        self.ledger.check()
        sealed = set(self.ledger.sealed())
        assert not sealed & set(self.folder.segments()), "a sealed segment is still open"
        if self.index is not None:
            self.index.check()


def ledger_of(folder: JobFolder) -> Path:
    """Where the ledger of the folder lies, or would."""
    told = _told(folder)
    return Path(told.path) if told is not None else folder.ledger


def _told(folder: JobFolder) -> LedgerAt | None:
    try:
        return msgspec.json.decode(folder.ledger_at.read_bytes(), type=LedgerAt)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StorageError(
            f"{folder.ledger_at} does not say where the ledger lies: {error}. Delete it: the ledger "
            "is then remade from the shards"
        ) from error


def _state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "headrace"


def _name_of(out: Path) -> str:
    return hashlib.blake2b(os.fsencode(os.path.realpath(out)), digest_size=16).hexdigest()


def _refused(out: Path, error: OSError | sqlite3.OperationalError, disk: Disk) -> str:
    if is_full(error):
        return (
            f"no room to begin in {out} ({error}); {disk.free_bytes(out):,} bytes are free. Make room, or "
            "give another --out"
        )
    return f"{out} cannot be used: {error}. Give another --out, or mend its permissions"
