"""Takes answers from the driver and makes them durable: a thread that writes in batches.

A batch is at most 256 rows, or what came within 200 ms. A full disk holds the batch back, and the thread
tries again each second until there is room.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.drive.job import Job
from headrace.drive.store.batches import BatchWriter, Item
from headrace.drive.store.index import SourceUnavailable
from headrace.drive.store.job_store import Store
from headrace.drive.store.rows import FailedRow, Row
from headrace.drive.store.shards import SEGMENT_BYTES, SEGMENT_ROWS
from headrace.durable.disk import is_full
from headrace.errors import StorageError

BATCH_ROWS = 256
BATCH_SECONDS = 0.2
RETRY_SECONDS = 1.0
FAILED_VIEW_SECONDS = 10.0

OnDurable = Callable[[list[int], list[int]], None]
OnTrouble = Callable[[str | None], None]
OnFailed = Callable[[StorageError], None]
T = TypeVar("T")


class RowWriter:
    """Takes rows and failures from any thread and makes them durable on its own.

    `on_durable(done, failed)`, `on_trouble(message or None)` and `on_failed(error)` are called on the
    writer's thread: trouble is a full disk or a source that cannot be read, which passes; failed is the end
    of the thread, and comes once.

    Attributes:
        failed: why no more can be written; None while the writer works.
    """

    def __init__(
        self,
        store: Store,
        job: Job,
        on_durable: OnDurable,
        on_trouble: OnTrouble,
        *,
        on_failed: OnFailed | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_rows: int = SEGMENT_ROWS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._pause = pause
        self._batches = BatchWriter(store, job, segment_bytes=segment_bytes, segment_rows=segment_rows)
        self._on_durable = on_durable
        self._on_trouble = on_trouble
        self._on_failed = on_failed if on_failed is not None else lambda error: on_trouble(str(error))
        self._queue: deque[Item] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._seal_at_close = False
        self._give_up_at = float("inf")
        self._in_trouble = False
        self._writing = 0
        self._failures_changed = False
        self._failed_view_at = float("-inf")
        self._wrote_at = store.clock.monotonic()
        self.failed: StorageError | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-writer", daemon=True)
        self._thread.start()

    def submit_row(self, seq: int, row: Row) -> None:
        """Takes an answered row; never waits. Raises StorageError once the writer has given up."""
        self._submit((seq, row))

    def submit_failure(self, seq: int, failed: FailedRow) -> None:
        """Takes a prompt that was given up; never waits. Raises StorageError once the writer has given up."""
        self._submit((seq, failed))

    def _submit(self, item: Item) -> None:
        if self.failed is not None:
            raise self.failed
        self._queue.append(item)
        waiting = len(self._queue)
        if waiting == 1 or waiting == BATCH_ROWS:
            self._wake.set()

    def backlog(self) -> int:
        """Rows and failures taken in and not yet durable."""
        return len(self._queue) + self._writing

    def close(self, seal: bool, *, patience_seconds: float = 10.0) -> None:
        """Writes all that was taken in, makes a shard of the open segment if asked, and ends the thread.

        Args:
            seal: make a shard of the open segment; on a full disk it stays an open file, which is as durable.
            patience_seconds: how long a full disk is waited for.

        Raises:
            StorageError: some rows could not be written; they are asked again by the next run.
        """
        self._seal_at_close = seal
        self._give_up_at = self._store.clock.monotonic() + patience_seconds
        self._closing = True
        self._wake.set()
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    # on the writer's thread

    def _run(self) -> None:
        try:
            for items in self._batches.stored_answers():
                self._write(items)
            while self._step():
                pass
            if self._seal_at_close:
                self._try(self._batches.seal)
            self._try(self._batches.put_snapshot)
            self._try(self._store.write_failed)
        except (OSError, sqlite3.Error, StorageError) as error:
            self._give_up(error)
        except BaseException as error:
            self._give_up(error)
            raise  # a fault in headrace keeps its traceback
        finally:
            self._batches.close()

    def _give_up(self, cause: BaseException) -> None:
        if isinstance(cause, StorageError):
            failed = cause
        else:
            expected = isinstance(cause, OSError | sqlite3.Error)
            what = str(cause) if expected else f"a fault in headrace: {cause!r}"
            way_out = "Mend the disk, then run again" if expected else "Run again; please report it"
            failed = StorageError(
                f"rows can no longer be written to {self._store.folder.out}: {what}; {self.backlog():,} "
                f"answers were not yet durable and are asked again by the next run. {way_out}"
            )
            failed.__cause__ = cause
        self.failed = failed
        self._on_failed(failed)

    def _step(self) -> bool:
        """Waits for a batch and writes it; False when closing and nothing is left."""
        if not self._queue:
            if self._closing:
                return False
            self._wake.wait(FAILED_VIEW_SECONDS if self._failures_changed else None)
            self._wake.clear()
        if 0 < len(self._queue) < BATCH_ROWS and not self._closing:
            self._wake.wait(BATCH_SECONDS)
            self._wake.clear()
        if self._queue:
            self._write([self._queue.popleft() for _ in range(min(len(self._queue), BATCH_ROWS))])
        self._maintain()
        return True

    def _write_what_is_due(self) -> None:
        """Lets no answer wait for a shard to be made, until the next segment is full as well.

        Then the answers wait, and with them what is asked: shards keep up with the rows, and what lies open,
        uncompressed and to be read again by the next run stays small.
        """
        if self._batches.is_full():
            return
        late = self._queue and self._store.clock.monotonic() - self._wrote_at >= BATCH_SECONDS
        if late or len(self._queue) >= BATCH_ROWS:
            self._write([self._queue.popleft() for _ in range(min(len(self._queue), BATCH_ROWS))])

    def _write(self, items: Sequence[Item]) -> None:
        self._writing = len(items)
        done, failed = self._insist(lambda: self._batches.write(items))
        self._writing = 0
        self._wrote_at = self._store.clock.monotonic()
        self._failures_changed |= bool(failed)
        self._on_durable(done, failed)

    def _maintain(self) -> None:
        if self._batches.seal_is_due():
            self._insist(lambda: self._batches.seal(self._write_what_is_due, only_full=True))
        if self._store.ledger.snapshot_is_due():
            self._insist(self._batches.put_snapshot)
        now = self._store.clock.monotonic()
        if self._failures_changed and now - self._failed_view_at >= FAILED_VIEW_SECONDS:
            self._failed_view_at = now
            self._failures_changed = False
            self._try(self._store.write_failed)

    def _insist(self, action: Callable[[], T]) -> T:
        """The action's result, however long the disk is full, or a source not to be had."""
        while True:
            try:
                result = action()
            except (OSError, sqlite3.OperationalError, SourceUnavailable) as error:
                unavailable = isinstance(
                    error, SourceUnavailable
                )  # of duplicates, whose own columns are read
                if not unavailable and not is_full(error):
                    raise
                if self._closing and self._store.clock.monotonic() >= self._give_up_at:
                    raise
                self._in_trouble = True
                self._on_trouble(str(error) if unavailable else self._disk_full(error))
                self._pause(RETRY_SECONDS)
            else:
                if self._in_trouble:
                    self._in_trouble = False
                    self._on_trouble(None)
                return result

    def _try(self, action: Callable[[], None]) -> None:
        """Does what can as well be done later; a full disk is no reason to wait for it."""
        try:
            action()
        except (OSError, sqlite3.OperationalError) as error:
            if not is_full(error):
                raise
            self._on_trouble(self._disk_full(error))

    def _disk_full(self, error: Exception) -> str:
        path = self._store.ledger.path if isinstance(error, sqlite3.Error) else self._store.folder.out
        free = self._store.disk.free_bytes(path)
        return (
            f"disk full: {path} takes no more ({error}); {free:,} bytes are free there. Nothing is lost: "
            f"{self.backlog():,} answers wait. Make room, and the job goes on by itself"
        )
