"""The writer: what is counted is durable, a full disk is waited out, nothing is written twice."""

from __future__ import annotations

import errno
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.drive.store import batches
from headrace.drive.store import writer as writer_module
from headrace.drive.store.batches import BatchWriter
from headrace.drive.store.job_store import Store
from headrace.drive.store.reader import count_rows, read_rows
from headrace.drive.store.states import State
from headrace.drive.store.writer import RowWriter
from headrace.durable.disk import AppendFile
from headrace.errors import StorageError
from tests.unit.drive.store_jobs import (
    FastDisk,
    answer,
    failure,
    make_job,
    open_job,
    pending,
    states,
    write_lines,
)


class _LimitedFile:
    """An `AppendFile` that takes as much as its disk has room for, then says ENOSPC, as the kernel does."""

    def __init__(self, inner: AppendFile, disk: FullDisk) -> None:
        self._inner, self._disk = inner, disk
        self.path = inner.path

    @property
    def length(self) -> int:
        return self._inner.length

    def write(self, data: bytes | bytearray | memoryview) -> int:
        room = self._disk.room_bytes
        if len(data) > room:
            self._inner.write(bytes(data)[:room])
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._inner.write(data)

    def fsync(self) -> None:
        self._inner.fsync()

    def truncate(self, length: int) -> None:
        self._inner.truncate(length)

    def close(self) -> None:
        self._inner.close()


class FullDisk(FastDisk):
    """A disk that has room for `room_bytes` per write, and for ledger commits while `ledger_fits`."""

    def __init__(self) -> None:
        self.room_bytes = 1 << 40
        self.ledger_fits = True

    def append_open(self, path: Path, *, fresh: bool = False) -> AppendFile:
        return _LimitedFile(super().append_open(path, fresh=fresh), self)  # type: ignore[return-value]

    def commit(self, connection: sqlite3.Connection) -> None:
        if not self.ledger_fits:
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full
        super().commit(connection)


@pytest.fixture
def disk() -> FullDisk:
    return FullDisk()


@pytest.fixture
def store(tmp_path: Path, disk: FullDisk) -> Iterator[Store]:
    write_lines(tmp_path / "a.jsonl", [{"prompt": f"text {number}"} for number in range(40)])
    store = open_job(make_job(tmp_path), disk)
    yield store
    store.check()
    store.close()


def test_a_batch_that_finds_the_disk_full_is_written_whole_later(store: Store, disk: FullDisk) -> None:
    writer = BatchWriter(store, store.job)
    batch = [(prompt.seq, answer(prompt)) for prompt in pending(store)[:10]]
    writer.write(batch[:5])
    disk.room_bytes = 700  # a row has some 400 bytes: it breaks off in the middle of the second
    with pytest.raises(OSError, match="No space"):
        writer.write(batch[5:])
    assert count_rows(store.folder.out) == 5
    disk.room_bytes = 1 << 40
    assert writer.write(batch[5:]) == ([5, 6, 7, 8, 9], [])
    assert [row.row for row in read_rows(store.folder.out)] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    writer.close()


def test_rows_synced_before_the_ledger_was_full_are_noted_later_and_not_written_again(
    store: Store, disk: FullDisk
) -> None:
    writer = BatchWriter(store, store.job)
    batch = [(prompt.seq, answer(prompt)) for prompt in pending(store)[:4]]
    disk.ledger_fits = False
    for _ in range(3):
        with pytest.raises(sqlite3.OperationalError):
            writer.write(batch)
    assert states(store)[:4] == [State.PENDING] * 4
    disk.ledger_fits = True
    assert writer.write(batch) == ([0, 1, 2, 3], [])
    assert count_rows(store.folder.out) == 4
    writer.close()


def test_a_seal_that_finds_the_disk_full_leaves_the_rows_and_no_half_shard(
    store: Store, disk: FullDisk
) -> None:
    writer = BatchWriter(store, store.job)
    writer.write([(prompt.seq, answer(prompt)) for prompt in pending(store)])
    disk.room_bytes = 1000
    with pytest.raises(OSError, match="No space"):
        writer.seal()
    assert not list(store.folder.completions.iterdir())
    assert [path.name for path in store.folder.open.iterdir()] == ["rows-000000.jsonl"]
    disk.room_bytes = 1 << 40
    writer.seal()
    assert [path.name for path in store.folder.completions.iterdir()] == ["part-000000.parquet"]
    assert count_rows(store.folder.out) == 40
    writer.close()


def test_the_first_row_of_a_prompt_stays(store: Store) -> None:
    writer = BatchWriter(store, store.job)
    (prompt, other, *_) = pending(store)
    first, second = answer(prompt, "first"), answer(prompt, "second")
    assert writer.write([(0, failure(prompt)), (0, first), (0, second), (1, failure(other))]) == ([0], [1])
    assert writer.write([(0, second), (0, failure(prompt))]) == ([], [])
    assert [row.answer for row in read_rows(store.folder.out)] == ["first"]
    writer.close()


def test_half_a_surrogate_pair_in_an_answer_does_not_stop_the_job(store: Store) -> None:
    writer = BatchWriter(store, store.job)
    prompt = pending(store)[0]
    writer.write([(0, answer(prompt, "a \ud83d b \U0001f600"))])
    assert [row.answer for row in read_rows(store.folder.out)] == ["a � b \U0001f600"]
    writer.close()


def test_the_thread_writes_all_that_it_took_in(store: Store) -> None:
    done: list[int] = []
    failed: list[int] = []

    def durable(rows: list[int], failures: list[int]) -> None:
        assert count_rows(store.folder.out) >= len(done) + len(rows)  # on the disk before it is counted
        done.extend(rows)
        failed.extend(failures)

    prompts = pending(store)
    writer = RowWriter(store, store.job, durable, _no_trouble, segment_rows=15)
    for prompt in prompts[:-1]:
        writer.submit_row(prompt.seq, answer(prompt))
    writer.submit_failure(prompts[-1].seq, failure(prompts[-1]))
    writer.close(seal=True)
    assert (sorted(done), failed, writer.backlog()) == (list(range(39)), [39], 0)
    assert store.folder.segments() == {}
    assert store.folder.failed_rows.read_bytes().count(b"\n") == 1


def test_rows_wait_for_a_shard_only_when_the_next_segment_is_full_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards that are made more slowly than answers come let no open file grow without end."""
    each, make_shard = 5, batches.seal
    monkeypatch.setattr(writer_module, "BATCH_ROWS", each)
    open_rows: list[int] = []

    def seal_slowly(*arguments: Any) -> int:
        for _ in range(10):
            arguments[-1]()  # as between two chunks
            paths = [store.folder.segment(number) for number in store.folder.segments()]
            open_rows.append(sum(path.read_bytes().count(b"\n") for path in paths))
        return make_shard(*arguments)

    monkeypatch.setattr(batches, "seal", seal_slowly)
    prompts = pending(store)
    writer = RowWriter(store, store.job, lambda done, failed: None, _no_trouble, segment_rows=each)
    for prompt in prompts:
        writer.submit_row(prompt.seq, answer(prompt))
    writer.close(seal=True)
    assert count_rows(store.folder.out) == len(prompts)
    # the segment that becomes a shard, the next one, and the batch that lay between two shards
    assert max(open_rows) <= 3 * each


def _no_trouble(message: str | None) -> None:
    pytest.fail(f"trouble: {message}")


def test_the_thread_says_that_the_disk_is_full_and_goes_on_by_itself(store: Store, disk: FullDisk) -> None:
    told: list[str | None] = []
    done = threading.Event()
    tries: list[float] = []

    def pause(seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 3:
            disk.room_bytes = 1 << 40

    disk.room_bytes = 100
    writer = RowWriter(store, store.job, lambda *_: done.set(), told.append, pause=pause)
    prompt = pending(store)[0]
    writer.submit_row(prompt.seq, answer(prompt))
    assert done.wait(10)
    writer.close(seal=False)
    assert tries == [1.0, 1.0, 1.0]
    assert told[0] is not None
    assert str(store.folder.out) in told[0]
    assert "bytes are free" in told[0]
    assert (len(told), told[-1]) == (4, None)


def test_close_gives_up_on_a_disk_that_stays_full(store: Store, disk: FullDisk) -> None:
    disk.room_bytes = 100
    writer = RowWriter(store, store.job, _no_rows, lambda message: None, pause=lambda seconds: None)
    prompt = pending(store)[0]
    writer.submit_row(prompt.seq, answer(prompt))
    with pytest.raises(StorageError, match="asked again by the next run"):
        writer.close(seal=True, patience_seconds=0)
    with pytest.raises(StorageError):
        writer.submit_row(prompt.seq, answer(prompt))
    disk.room_bytes = 1 << 40


def _no_rows(done: list[int], failed: list[int]) -> None:
    pytest.fail(f"counted without being durable: {done} {failed}")


class DyingDisk(FastDisk):
    """A disk that fails every write of rows once `error` is set."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def commit(self, connection: sqlite3.Connection) -> None:
        if self.error is not None:
            raise self.error
        super().commit(connection)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.EIO, "Input/output error"),
            r"can no longer be written to .*Input/output error; 1 answers",
        ),
        (sqlite3.DatabaseError("database disk image is malformed"), "disk image is malformed"),
        (StorageError("a shard is damaged"), "a shard is damaged"),
    ],
)
def test_the_end_of_the_thread_is_told_once_and_is_no_passing_trouble(
    tmp_path: Path, error: BaseException, said: str
) -> None:
    write_lines(tmp_path / "a.jsonl", [{"prompt": "text"}])
    disk = DyingDisk()
    store = open_job(make_job(tmp_path), disk)
    told: list[StorageError] = []
    gone = threading.Event()

    def on_failed(failure: StorageError) -> None:
        told.append(failure)
        gone.set()

    writer = RowWriter(store, store.job, _no_rows, _no_trouble, on_failed=on_failed)
    (prompt,) = pending(store)
    disk.error = error
    writer.submit_row(prompt.seq, answer(prompt))
    assert gone.wait(10)
    assert re.search(said, str(told[0]))
    assert writer.failed is told[0]
    for ask in (lambda: writer.submit_row(prompt.seq, answer(prompt)), lambda: writer.close(seal=True)):
        with pytest.raises(StorageError, match=said):
            ask()
    assert len(told) == 1
    disk.error = None
    store.close()
