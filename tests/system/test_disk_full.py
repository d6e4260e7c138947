"""A real full disk: a tmpfs of 2 MB. The job waits, says so, and goes on when there is room."""

from __future__ import annotations

import base64
import os
import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.drive.store.reader import read_rows
from headrace.drive.store.writer import RowWriter
from headrace.errors import StorageError
from tests.unit.drive.store_jobs import answer, make_job, open_job, pending, write_lines

DISK_BYTES = 2 << 20
ROWS = 300
WAIT_SECONDS = 60


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)],
        capture_output=True,
        check=False,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no small disk to fill: mount says {mounted.stderr.strip()!r} (needs root)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_job_on_a_full_disk_waits_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"prompt": f"text {number}"} for number in range(ROWS)])
    ballast = small_disk / "ballast"
    ballast.write_bytes(os.urandom(1 << 20))
    store = open_job(make_job(tmp_path, out=small_disk / "out"))
    numbers = random.Random(7)
    full, on_again = threading.Event(), threading.Event()
    told: list[str | None] = []
    done: list[int] = []

    def trouble(message: str | None) -> None:
        told.append(message)
        (on_again if message is None else full).set()

    writer = RowWriter(
        store, store.job, lambda rows, failed: done.extend(rows), trouble, segment_bytes=200_000
    )
    texts = {}
    for prompt in pending(store):
        text = base64.b64encode(numbers.randbytes(3000)).decode()  # 300 × 4 KB: more than the megabyte left
        texts[prompt.id] = text
        writer.submit_row(prompt.seq, answer(prompt, text))
    assert full.wait(WAIT_SECONDS), "the disk of 2 MB was never full"
    assert told[0] is not None
    assert "disk full" in told[0]
    assert str(small_disk) in told[0]
    # what is counted is there, now
    assert len(done) <= len(list(read_rows(store.folder.out)))
    ballast.unlink()
    assert on_again.wait(WAIT_SECONDS), "the job did not go on by itself"
    writer.close(seal=True)
    store.check()
    store.close()
    rows = list(read_rows(small_disk / "out"))
    assert {row.id: row.answer for row in rows} == texts
    assert len(rows) == len(done) == ROWS


def test_a_job_that_is_stopped_while_the_disk_is_full_goes_on_later(tmp_path: Path, small_disk: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"prompt": f"text {number}"} for number in range(ROWS)])
    ballast = small_disk / "ballast"
    ballast.write_bytes(os.urandom(1 << 20))
    job = make_job(tmp_path, out=small_disk / "out")
    store = open_job(job)
    done: list[int] = []
    writer = RowWriter(store, job, lambda rows, failed: done.extend(rows), lambda message: None)
    for prompt in pending(store):
        writer.submit_row(prompt.seq, answer(prompt, "x" * 8000))
    with pytest.raises(StorageError, match="asked again by the next run"):
        writer.close(seal=True, patience_seconds=0)
    store.close()
    assert len(done) < ROWS
    ballast.unlink()
    store = open_job(job)
    left = pending(store)
    assert len(left) == ROWS - len(done)
    writer = RowWriter(store, job, lambda rows, failed: None, lambda message: None, segment_bytes=300_000)
    for prompt in left:
        writer.submit_row(prompt.seq, answer(prompt))
    writer.close(seal=True)
    store.close()
    assert sorted(row.row for row in read_rows(job.out)) == list(range(1, ROWS + 1))


def test_a_disk_too_full_to_begin_is_said_so(tmp_path: Path, small_disk: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"prompt": f"text {number}"} for number in range(10)])
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(bytes(2 * DISK_BYTES))
    with pytest.raises(StorageError, match=r"no room .* 0 bytes are free.*Make room"):
        open_job(make_job(tmp_path, out=small_disk / "out"))
