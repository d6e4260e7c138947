"""Hands finished rows to the writer's thread, and tells in the event loop what became of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.drive.job import Job
from headrace.drive.store.job_store import Store
from headrace.drive.store.rows import FailedRow, Row
from headrace.drive.store.writer import RowWriter
from headrace.errors import StorageError

# Answers waiting for the disk: beyond, nothing new is sent, so that a slow disk cannot fill the memory.
MAX_BACKLOG_CHARACTERS = 8 * 1024 * 1024
MAX_BACKLOG_ROWS = 768  # three batches: what a kill may cost beside what is in flight

T = TypeVar("T")


class Keeper:
    """The driver's side of the writer.

    Args:
        on_durable: told the prompts whose rows, or failures, are on the disk now.
        on_trouble: told why the disk refuses for now; None when it no longer does.
        on_failed: told why no more can be written. All three are called in the event loop.

    Attributes:
        unsaved: prompts handed to the writer and not yet known to be durable.
    """

    def __init__(
        self,
        *,
        on_durable: Callable[[list[int]], None],
        on_trouble: Callable[[str | None], None],
        on_failed: Callable[[StorageError], None],
    ) -> None:
        self._on_durable = on_durable
        self._on_trouble = on_trouble
        self._on_failed = on_failed
        self.unsaved = 0
        self._characters = 0  # of the answers that wait, …
        self._characters_each: deque[int] = deque()  # … in the order in which they are written

    def begin(self, store: Store, job: Job) -> None:
        """Starts the writer's thread. Called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._writer = RowWriter(
            store,
            job,
            self._durable_in_thread,
            lambda said: self._in_loop(self._on_trouble, said),
            on_failed=lambda error: self._in_loop(self._on_failed, error),
        )

    def end(self) -> None:
        """Writes all that was handed over and ends the thread. Raises StorageError when it cannot."""
        self._writer.close(seal=True)

    def is_behind(self) -> bool:
        """Whether so much waits for the disk that nothing new should be asked."""
        waiting = self._writer.backlog()
        while len(self._characters_each) > waiting:
            self._characters -= self._characters_each.popleft()
        return waiting > MAX_BACKLOG_ROWS or self._characters > MAX_BACKLOG_CHARACTERS

    def save_row(self, seq: int, row: Row) -> None:
        """Hands over an answered row. Raises StorageError once the writer has given up."""
        self.unsaved += 1
        self._count(len(row.answer) + len(row.reasoning or ""))
        self._writer.submit_row(seq, row)

    def save_failure(self, seq: int, failed: FailedRow) -> None:
        """Hands over a prompt that was given up. Raises StorageError once the writer has given up."""
        self.unsaved += 1
        self._count(len(failed.answer or ""))
        self._writer.submit_failure(seq, failed)

    def _count(self, characters: int) -> None:
        self._characters += characters
        self._characters_each.append(characters)

    def _in_loop(self, tell: Callable[[T], None], what: T) -> None:
        self._loop.call_soon_threadsafe(tell, what)

    def _durable_in_thread(self, done: Sequence[int], failed: Sequence[int]) -> None:
        self._in_loop(self._on_durable, [*done, *failed])
