"""Opening a job folder: the lock, where the ledger lies, and what becomes of a lost, damaged or stale one."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.clock import VirtualClock
from headrace.drive.job import Job
from headrace.drive.store.indexing import build_index
from headrace.drive.store.job_store import Store
from headrace.drive.store.reader import read_rows
from headrace.drive.store.states import State
from headrace.errors import BusyError, UsageError
from tests.unit.drive.store_jobs import (
    FastDisk,
    answer_all,
    asked_text,
    make_job,
    open_job,
    pending,
    states,
    write_lines,
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Six prompts, of which the fifth is the same as the first."""
    write_lines(tmp_path / "a.jsonl", [{"prompt": f"text {number % 4}"} for number in range(6)])
    return make_job(tmp_path)


def _half_done(job: Job) -> None:
    """Text 0 (twice) in a shard, text 1 (twice) in an open file."""
    store = open_job(job)
    first, second, *_ = pending(store)
    answer_all(store, [first], seal=True)
    answer_all(store, [second])
    store.close()


def _rest_is_asked(job: Job) -> list[str]:
    store = open_job(job)
    asked = answer_all(store)
    store.check()
    store.close()
    rows = list(read_rows(job.out))
    assert sorted(row.row for row in rows) == [1, 2, 3, 4, 5, 6]
    assert len({row.id for row in rows}) == 6
    return asked


def test_the_second_run_is_told_who_holds_the_folder(job: Job) -> None:
    store = open_job(job)
    with pytest.raises(BusyError, match=rf"pid {os.getpid()} on .*headrace status {job.out}"):
        open_job(job)
    store.close()
    open_job(job).close()


def test_a_lost_ledger_is_remade_from_the_rows(job: Job) -> None:
    _half_done(job)
    for path in job.out.glob("ledger.db*"):
        path.unlink()
    store = open_job(job)
    assert states(store) == [State.DONE, State.DONE, State.PENDING, State.PENDING, State.DONE, State.DONE]
    assert "1 shards and 1 open files" in store.notes[0]
    store.close()
    assert _rest_is_asked(job) == ["text 2", "text 3"]


def test_a_lost_ledger_is_remade_from_rows_with_own_ids(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"id": f"q-{number}", "prompt": f"{number}"} for number in range(4)])
    job = make_job(tmp_path)
    store = open_job(job)
    answer_all(store, pending(store)[:3], seal=True)
    store.close()
    (job.out / "ledger.db").unlink()
    store = open_job(job)
    assert states(store) == [State.DONE, State.DONE, State.DONE, State.PENDING]
    store.close()


def test_a_remade_ledger_knows_rows_by_what_they_were_known_by(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"id": "q", "prompt": "0"}, {"id": "q", "prompt": "1"}])
    job = make_job(tmp_path)
    store = open_job(job)
    answer_all(store, pending(store)[:1])
    store.close()
    (job.out / "ledger.db").unlink()
    # the ids have become unique meanwhile; the row in the folder is known by its content all the same
    write_lines(tmp_path / "a.jsonl", [{"id": "q", "prompt": "0"}, {"id": "r", "prompt": "1"}])
    store = open_job(job)
    assert states(store) == [State.DONE, State.PENDING]
    store.close()


def test_a_damaged_ledger_is_set_aside(job: Job) -> None:
    _half_done(job)
    (job.out / "ledger.db").write_bytes(b"this is no database, whatever its name says" * 100)
    store = open_job(job)
    assert "is damaged" in store.notes[0]
    store.close()
    assert (job.out / "ledger.db.damaged-1").exists()
    assert _rest_is_asked(job) == ["text 2", "text 3"]


def test_on_a_network_disk_the_ledger_goes_to_the_state_folder(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def open_on_nfs() -> Store:
        store = Store.open(job, disk=FastDisk(), clock=VirtualClock(), filesystem=lambda path: "nfs4")
        build_index(store, job)
        return store

    store = open_on_nfs()
    assert "nfs4" in store.notes[0]
    assert "--ledger" in store.notes[0]
    answer_all(store, pending(store)[:1])
    ledger = store.ledger.path
    store.close()
    assert ledger.is_relative_to(tmp_path / "state" / "headrace")
    assert not (job.out / "ledger.db").exists()
    store = open_on_nfs()
    assert store.ledger.path == ledger
    assert store.notes == []
    store.close()

    # another host goes on with the job: its state folder has no ledger, so it makes one from the rows
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    shutil.move(tmp_path / "state", tmp_path / "first-host")
    store = open_on_nfs()
    answer_all(store, pending(store)[:1])
    store.close()
    # back on the first host, its ledger is older than the rows
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    shutil.move(tmp_path / "first-host", tmp_path / "state")
    store = open_on_nfs()
    assert any("older than the one" in note for note in store.notes)
    assert len(pending(store)) == 2
    store.close()


def test_the_ledger_lies_where_the_user_says_and_nowhere_else(job: Job, tmp_path: Path) -> None:
    elsewhere = replace(job, ledger=tmp_path / "fast" / "job.db")
    open_job(elsewhere).close()
    assert (tmp_path / "fast" / "job.db").exists()
    open_job(job).close()
    assert not (job.out / "ledger.db").exists()
    with pytest.raises(UsageError, match=r"the ledger of .* lies at .*job.db: leave --ledger out"):
        open_job(replace(job, ledger=tmp_path / "other.db"))


def test_shards_that_were_moved_away_count_as_answered(job: Job) -> None:
    _half_done(job)
    for path in (job.out / "completions").iterdir():
        path.unlink()
    store = open_job(job)
    assert "1 of 1 finished shards" in store.notes[0]
    assert [asked_text(prompt) for prompt in pending(store)] == ["text 2", "text 3"]
    store.close()


def test_rows_that_the_disk_lost_after_a_sync_are_asked_again(job: Job) -> None:
    _half_done(job)
    (segment,) = (job.out / "open").iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(lines[0] + lines[1][:-9])
    store = open_job(job)
    assert "lost 1 rows" in store.notes[0]
    store.close()
    assert _rest_is_asked(job) == ["text 2", "text 3"]  # the lost one was a duplicate: filled, not asked


def test_what_a_crash_left_half_written_is_cleared(job: Job) -> None:
    _half_done(job)
    (job.out / "open" / "part-000001.parquet.tmp").write_bytes(b"PAR1 half")
    (job.out / "failed" / "failed.jsonl.tmp").write_bytes(b"{")
    (segment,) = (job.out / "open").glob("*.jsonl")
    with segment.open("ab") as file:
        file.write(b'{"id": "torn')
    assert _rest_is_asked(job) == ["text 2", "text 3"]
    assert not list(job.out.rglob("*.tmp"))


def test_commands_are_journalled_once(job: Job) -> None:
    store = open_job(job)
    assert store.ledger.journal_command("c1", 1.0, b'{"do": "drain"}')
    assert not store.ledger.journal_command("c1", 2.0, b'{"do": "drain"}')
    store.ledger.finish_command("c1", b"done")
    assert store.ledger.journal_command("c2", 3.0, b"{}")
    assert store.ledger.commands() == [
        ("c1", 1.0, b'{"do": "drain"}', b"done"),
        ("c2", 3.0, b"{}", None),
    ]
    store.close()
