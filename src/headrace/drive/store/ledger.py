"""The ledger: what is known of every prompt, in one SQLite file. It is the truth about a job's progress.

Everything that happens while a job runs is appended: one packed row per batch of up to 256 answers, so
that a commit dirties one page and the log, however large the job. What each prompt is (its `records`) is
written by a scan of the sources. The state of all prompts is the newest snapshot and the commits after it.

    meta       what is pinned: schema version, identity, job and source fingerprints
    blocks     64 index records each (`headrace.drive.store.records`)
    snapshots  one row: states, sources and duplicate pairs of all prompts up to one commit
    commits    per batch: the prompts and their new states; the segment the rows lie in, and its length after
    seals      segments that have become shards
    failures   FailedRow as JSON, the newest of each prompt
    commands   the journal of the control channel
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.drive.store.changes import Change, Seqs, pack_changes, unpack_changes
from headrace.drive.store.ledger_damage import NONSENSE, LedgerDamaged, is_damage
from headrace.drive.store.records import RECORD, RECORDS_PER_BLOCK, Record, Records, unpack
from headrace.drive.store.states import FAILED_STATES, State
from headrace.durable.disk import Disk
from headrace.errors import StorageError

SCHEMA_VERSION = 1
COMMITS_PER_SNAPSHOT = 4096  # so that a resume replays at most this many commits, whatever their size

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE blocks (number INTEGER PRIMARY KEY, records BLOB NOT NULL);
CREATE TABLE snapshots (number INTEGER PRIMARY KEY, upto INTEGER NOT NULL, states BLOB NOT NULL,
                        sources BLOB NOT NULL, duplicates BLOB NOT NULL);
CREATE TABLE commits (number INTEGER PRIMARY KEY, changes BLOB NOT NULL, segment INTEGER, length INTEGER);
CREATE TABLE seals (segment INTEGER PRIMARY KEY, rows INTEGER NOT NULL);
CREATE TABLE failures (seq INTEGER PRIMARY KEY, failed BLOB NOT NULL);
CREATE TABLE commands (number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, wall_time REAL NOT NULL,
                       command BLOB NOT NULL, outcome BLOB);
"""

States = npt.NDArray[np.uint8]


class _Kind(msgspec.Struct):
    kind: str


class Ledger:
    """An open ledger. Commits come from one thread at a time; reads may come from others.

    Attributes:
        segment_lengths: bytes of each open segment that the ledger vouches for, by number.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        """Opens the ledger, made if missing. Raises LedgerDamaged when the file is not one."""
        self.path = path
        self.segment_lengths: dict[int, int] = {}
        self._disk = disk
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._commits_since_snapshot = 0
        with ExitStack() as on_failure:
            self._open(on_failure)
            on_failure.pop_all()

    def _open(self, on_failure: ExitStack) -> None:
        path, disk = self.path, self._disk
        try:
            self._writer = disk.open_database(path)
            on_failure.callback(self._writer.close)
            self._reader = disk.open_database(path)
            on_failure.callback(self._reader.close)
            if not self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._writer.execute("BEGIN IMMEDIATE")
                for statement in _TABLES.split(";"):
                    self._writer.execute(statement)
                self._writer.execute("INSERT INTO meta VALUES ('schema', ?)", (SCHEMA_VERSION,))
                disk.commit(self._writer)
                disk.fsync_folder(path.parent)
            (version,) = self._writer.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
            noted = self._writer.execute("SELECT value FROM meta WHERE name = 'damaged'").fetchone()
        except NONSENSE as error:
            if not is_damage(error):
                raise
            raise LedgerDamaged(f"the ledger {path} is damaged: {error}") from error
        if noted is not None:
            raise LedgerDamaged(f"the ledger {path} is damaged: {noted[0]}")
        if version != SCHEMA_VERSION:
            raise StorageError(
                f"the ledger {path} has schema {version}; this headrace reads schema {SCHEMA_VERSION}: "
                "go on with the headrace that made it, or give another --out"
            )

    def close(self) -> None:
        """Closes the file; what was committed is on the disk already."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    def damaged(self, what: object) -> LedgerDamaged:
        """The error to raise of a ledger that makes no sense; the next opening is told."""
        try:
            with closing(self._disk.open_database(self.path)) as connection:
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('damaged', ?)", (str(what),))
        except sqlite3.Error:
            pass  # the opening then meets the damage itself
        return LedgerDamaged(
            f"the ledger {self.path} is damaged: {what}. Run again: it is set aside, and remade from the rows"
        )

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Raises LedgerDamaged for what garbage in the file does to those who read it."""
        try:
            yield
        except NONSENSE as error:
            if not is_damage(error):
                raise
            raise self.damaged(error) from error

    @contextmanager
    def _sql_understood(self) -> Iterator[None]:
        """As `_understood`, where the faults of what is written must keep their own names."""
        try:
            yield
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            raise self.damaged(error) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing, self._sql_understood():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._disk.commit(self._writer)
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def _snapshot_of_now(self) -> Iterator[sqlite3.Connection]:
        with self._reading, self._understood():
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                self._reader.execute("ROLLBACK")

    # meta

    def read_meta(self, name: str) -> bytes | None:
        """The pinned value, or None."""
        with self._reading, self._understood():
            found = self._reader.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
            return bytes(found[0]) if found is not None else None

    def write_meta(self, name: str, value: bytes) -> None:
        """Pins the value."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    # what each prompt is

    def records(self, seqs: Sequence[int]) -> list[Record]:
        """The records of `seqs`, in their order."""
        blocks: dict[int, bytes] = {}
        found = []
        with self._snapshot_of_now() as connection:
            for seq in seqs:
                number, position = divmod(int(seq), RECORDS_PER_BLOCK)
                block = blocks.get(number)
                if block is None:
                    (block,) = connection.execute(
                        "SELECT records FROM blocks WHERE number = ?", (number,)
                    ).fetchone()
                    blocks[number] = block
                found.append(unpack(block, position))
        return found

    def all_records(self, blocks_at_once: int = 256) -> Iterator[Records]:
        """All records in order of seq, some 16,384 at a time."""
        after = -1
        while True:
            with self._reading, self._understood():
                rows = self._reader.execute(
                    "SELECT number, records FROM blocks WHERE number > ? ORDER BY number LIMIT ?",
                    (after, blocks_at_once),
                ).fetchall()
                records = np.frombuffer(b"".join(row[1] for row in rows), dtype=RECORD)
            if not rows:
                return
            after = rows[-1][0]
            yield records

    def replace_index(
        self,
        blocks: Iterable[tuple[int, bytes]],
        states: States,
        sources: npt.NDArray[np.uint16],
        duplicates: Seqs,
        meta: dict[str, bytes],
        failures: Iterable[tuple[int, bytes]],
    ) -> None:
        """Writes what a scan found, in one transaction.

        Args:
            blocks: (number, packed records) of every block that is new or changed.
            states, sources: of all prompts.
            duplicates: shape (n, 2): primary and duplicate, as seqs.
            failures: of rows that could not be read.
        """
        with self._transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?)", blocks)
            connection.executemany("INSERT OR REPLACE INTO failures VALUES (?, ?)", failures)
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
            self._put_snapshot(connection, states, sources, duplicates)
        with self._writing:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # where each prompt stands

    def load(self) -> tuple[States, npt.NDArray[np.uint16], Seqs]:
        """The states and sources of all prompts, and the duplicate pairs of shape (n, 2).

        Also sets `segment_lengths`.
        """
        with self._snapshot_of_now() as connection:
            row = connection.execute("SELECT upto, states, sources, duplicates FROM snapshots").fetchone()
            if row is None:
                upto, states = 0, np.zeros(0, dtype=np.uint8)
                sources, pairs = np.zeros(0, dtype=np.uint16), np.zeros((0, 2), dtype=np.uint32)
            else:
                upto = row[0]
                states = np.frombuffer(bytearray(zlib.decompress(row[1])), dtype=np.uint8)
                sources = np.frombuffer(zlib.decompress(row[2]), dtype="<u2")
                pairs = np.frombuffer(zlib.decompress(row[3]), dtype="<u4").reshape(-1, 2)
            (last,) = connection.execute("SELECT max(number) FROM blocks").fetchone()
            if -(-len(states) // RECORDS_PER_BLOCK) != (0 if last is None else last + 1):
                raise ValueError(f"{len(states):,} prompts do not go with block {last}")
            self._commits_since_snapshot = 0
            for (changes,) in connection.execute(
                "SELECT changes FROM commits WHERE number > ? ORDER BY number", (upto,)
            ):
                self._commits_since_snapshot += 1
                for state, seqs in unpack_changes(changes):
                    states[seqs] = state
            self.segment_lengths = {
                segment: length
                for segment, length, _ in connection.execute(
                    "SELECT segment, length, max(number) FROM commits WHERE segment IS NOT NULL "
                    "AND segment NOT IN (SELECT segment FROM seals) GROUP BY segment"
                )
            }
        return states, sources, pairs

    def commit(
        self,
        changes: Sequence[Change],
        failures: Sequence[tuple[int, bytes]] = (),
        *,
        segment: int | None = None,
        length: int | None = None,
    ) -> None:
        """Appends one batch; returns when it is on the disk.

        Args:
            changes: new states of prompts.
            failures: (seq, FailedRow as JSON) of those that failed.
            segment, length: where the batch's rows lie, and that segment's length in bytes after them.
        """
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO commits (changes, segment, length) VALUES (?, ?, ?)",
                (pack_changes(changes), segment, length),
            )
            if failures:
                connection.executemany("INSERT OR REPLACE INTO failures VALUES (?, ?)", failures)
        self._commits_since_snapshot += 1
        if segment is not None and length is not None:
            self.segment_lengths[segment] = length

    def snapshot_is_due(self) -> bool:
        """True when a resume would have many commits to replay."""
        return self._commits_since_snapshot >= COMMITS_PER_SNAPSHOT

    def put_snapshot(self, states: States, sources: npt.NDArray[np.uint16], duplicates: Seqs) -> None:
        """Writes the states of all prompts as of the last commit."""
        with self._transaction() as connection:
            self._put_snapshot(connection, states, sources, duplicates)

    def _put_snapshot(
        self,
        connection: sqlite3.Connection,
        states: States,
        sources: npt.NDArray[np.uint16],
        duplicates: Seqs,
    ) -> None:
        packed = [
            zlib.compress(array.tobytes(), 1)
            for array in (states, sources.astype("<u2", copy=False), duplicates.astype("<u4", copy=False))
        ]
        connection.execute(
            "INSERT OR REPLACE INTO snapshots "
            "SELECT 1, coalesce((SELECT max(number) FROM commits), 0), ?, ?, ?",
            packed,
        )
        self._commits_since_snapshot = 0

    # shards

    def seal(self, segment: int, rows: int) -> None:
        """Notes that the segment has become a shard of `rows` rows."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO seals VALUES (?, ?)", (segment, rows))
        self.segment_lengths.pop(segment, None)

    def sealed(self) -> dict[int, int]:
        """Rows of every shard by number."""
        with self._reading, self._understood():
            return dict(self._reader.execute("SELECT segment, rows FROM seals ORDER BY segment").fetchall())

    def seqs_in_segment(self, segment: int) -> Seqs:
        """The prompts whose rows were committed into the segment."""
        with self._reading, self._understood():
            rows = self._reader.execute(
                "SELECT changes FROM commits WHERE segment = ?", (segment,)
            ).fetchall()
            changes = [change for (packed,) in rows for change in unpack_changes(packed)]
        done = [seqs for state, seqs in changes if state is State.DONE]
        return np.concatenate(done) if done else np.zeros(0, dtype=np.uint32)

    # failures

    def failures(self, states: States) -> Iterator[bytes]:
        """FailedRow as JSON of every prompt that stands as failed or unreadable."""
        after = -1
        while True:
            with self._reading, self._understood():
                rows = self._reader.execute(
                    "SELECT seq, failed FROM failures WHERE seq > ? ORDER BY seq LIMIT 256", (after,)
                ).fetchall()
                standing = [failed for seq, failed in rows if states[seq] in FAILED_STATES]
            if not rows:
                return
            after = rows[-1][0]
            yield from standing

    def failed_seqs(self, kind: str) -> Seqs:
        """The prompts whose newest failure is of this kind, whatever became of them since."""
        with self._reading, self._understood():
            rows = self._reader.execute("SELECT seq, failed FROM failures").fetchall()
            found = [seq for seq, failed in rows if msgspec.json.decode(failed, type=_Kind).kind == kind]
        return np.array(found, dtype=np.uint32)

    # the journal of the control channel

    def journal_command(self, command_id: str, wall_time: float, command: bytes) -> bool:
        """Writes the command down before it acts; False when this id was journalled before."""
        with self._transaction() as connection:
            added = connection.execute(
                "INSERT OR IGNORE INTO commands (id, wall_time, command) VALUES (?, ?, ?)",
                (command_id, wall_time, command),
            )
            return added.rowcount == 1

    def finish_command(self, command_id: str, outcome: bytes) -> None:
        """Writes down what came of the command."""
        with self._transaction() as connection:
            connection.execute("UPDATE commands SET outcome = ? WHERE id = ?", (outcome, command_id))

    def commands(self) -> list[tuple[str, float, bytes, bytes | None]]:
        """The journal in order: id, Unix seconds, command, outcome (None: it did not come to an end)."""
        with self._reading, self._understood():
            return self._reader.execute(
                "SELECT id, wall_time, command, outcome FROM commands ORDER BY number"
            ).fetchall()

    def check(self) -> None:
        """Raises AssertionError when the tables contradict each other."""
        states, sources, pairs = self.load()
        assert len(states) == len(sources), (len(states), len(sources))
        count = sum(len(records) for records in self.all_records())
        assert count == len(states), (count, len(states))
        assert not len(pairs) or int(pairs.max()) < len(states)
        assert not set(self.sealed()) & set(self.segment_lengths)
