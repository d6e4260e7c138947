"""What a bad disk, a kill or a wrong file name does to a job folder: told, set aside, asked again."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.drive.job import Job, Source
from headrace.drive.prompts import Prompt
from headrace.drive.store.batches import BatchWriter
from headrace.drive.store.export import export
from headrace.drive.store.index import SourceUnavailable
from headrace.drive.store.ledger_damage import LedgerDamaged
from headrace.drive.store.reader import count_rows, read_rows
from headrace.drive.store.rows import FailedRow
from headrace.drive.store.states import State
from headrace.drive.store.writer import RowWriter
from headrace.errors import StorageError, UsageError
from tests.unit.drive.store_jobs import (
    answer,
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


def _asked_again(job: Job) -> list[str]:
    """What is still asked; afterwards every prompt has one row."""
    store = open_job(job)
    asked = answer_all(store, seal=True)
    store.check()
    store.close()
    rows = list(read_rows(job.out))
    assert sorted(row.row for row in rows) == [1, 2, 3, 4, 5, 6]
    assert len({row.id for row in rows}) == 6
    return asked


# open files


@pytest.mark.parametrize("where", [0, 1, -1])
def test_a_line_of_an_open_file_that_is_no_row_is_set_aside_and_asked_again(job: Job, where: int) -> None:
    store = open_job(job)
    answer_all(store)
    store.close()
    (segment,) = (job.out / "open").iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[where] = b"\xff" * (len(lines[where]) - 1) + b"\n"
    segment.write_bytes(b"".join(lines))
    with pytest.raises(StorageError, match=r"rows-000000.jsonl holds a line.*Run the job again"):
        count_rows(job.out)
    with pytest.raises(StorageError, match="Run the job again"):
        export(job.out, "parquet", job.out.parent / "rows.parquet")
    store = open_job(job)
    assert any("1 lines of" in note and "rows-000000.jsonl.bad" in note for note in store.notes)
    assert count_rows(job.out) >= 5  # 6, where the lost one was a duplicate of one that is there
    store.close()
    assert (job.out / "open" / "rows-000000.jsonl.bad").read_bytes() == lines[where]
    assert len(_asked_again(job)) <= 1


def test_a_newline_that_became_garbage_costs_the_two_rows_beside_it(job: Job) -> None:
    store = open_job(job)
    answer_all(store)
    store.close()
    (segment,) = (job.out / "open").iterdir()
    raw = bytearray(segment.read_bytes())
    raw[raw.rindex(b"\n")] = 0  # the very last: the line has no end any more
    raw[raw.index(b"\n")] = 0
    segment.write_bytes(raw)
    _asked_again(job)


def test_an_open_file_damaged_while_the_job_runs_ends_it_with_a_message(job: Job) -> None:
    store = open_job(job)
    answer_all(store)
    (segment,) = (job.out / "open").iterdir()
    raw = segment.read_bytes()
    segment.write_bytes(b"\0" * 40 + raw[40:])
    told: list[StorageError] = []
    writer = RowWriter(store, job, lambda *_: None, lambda message: None, on_failed=told.append)
    with pytest.raises(StorageError, match="holds a line that is no row"):
        writer.close(seal=True)
    assert len(told) == 1
    assert not list(job.out.rglob("*.tmp"))
    store.close()
    _asked_again(job)


# the ledger


def _pages_of(path: Path, table: str) -> list[int]:
    with sqlite3.connect(path) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    return [root]


@pytest.mark.parametrize("table", ["meta", "blocks", "snapshots", "commits", "seals", "failures"])
def test_garbage_within_the_ledger_has_it_remade(job: Job, table: str) -> None:
    _half_done(job)
    path = job.out / "ledger.db"
    (page,) = _pages_of(path, table)
    raw = bytearray(path.read_bytes())
    raw[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    path.write_bytes(raw)
    assert _asked_again(job) == ["text 2", "text 3"]
    if table != "failures":
        assert (job.out / "ledger.db.damaged-1").exists()


def _spoil(statement: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(statement)
        connection.close()

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        _spoil("UPDATE snapshots SET states = x'00'"),
        _spoil("UPDATE snapshots SET duplicates = 'text'"),
        _spoil("UPDATE commits SET changes = x'0100000001ffffffff'"),
        _spoil("UPDATE commits SET changes = x'63'"),
        _spoil("UPDATE meta SET value = '{}' WHERE name = 'pinned'"),
        _spoil("DELETE FROM meta"),
        _spoil("DELETE FROM blocks"),
        _spoil("DROP TABLE seals"),
        lambda path: path.write_bytes(path.read_bytes()[:9000]),
    ],
)
def test_a_ledger_that_makes_no_sense_is_remade(job: Job, spoil: Callable[[Path], None]) -> None:
    _half_done(job)
    spoil(job.out / "ledger.db")
    assert _asked_again(job) == ["text 2", "text 3"]
    assert (job.out / "ledger.db.damaged-1").exists()


def test_a_ledger_found_damaged_while_the_job_runs_is_remade_by_the_next_run(job: Job) -> None:
    _half_done(job)
    connection = sqlite3.connect(job.out / "ledger.db")
    (block,) = connection.execute("SELECT records FROM blocks").fetchone()
    raw = np.frombuffer(bytearray(block[: 60 * 6]), dtype=np.uint8).copy()
    raw[56:60] = 77  # source and sample of the first prompt
    with connection:
        connection.execute("UPDATE blocks SET records = ?", (raw.tobytes(),))
    connection.close()
    store = open_job(job)
    assert store.index is not None
    with pytest.raises(LedgerDamaged, match="Run again"):
        store.index.load([0])
    store.close()
    assert _asked_again(job) == ["text 2", "text 3"]
    assert (job.out / "ledger.db.damaged-1").exists()


def _sqlite_of_another_kind(path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
        connection.execute("INSERT INTO photos VALUES ('me')")
    connection.close()


@pytest.mark.parametrize(
    "make", [lambda path: path.write_text("my thesis"), _sqlite_of_another_kind, lambda path: path.touch()]
)
def test_a_file_of_the_user_named_as_ledger_stays_as_it_is(
    job: Job, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "mine.db"
    make(path)
    before = path.read_bytes()
    if before:
        with pytest.raises(
            UsageError, match=r"mine.db, a file of [\d,]+ bytes that is no ledger of headrace"
        ):
            open_job(replace(job, ledger=path))
        assert path.read_bytes() == before
        assert [found.name for found in tmp_path.glob("mine.db*")] == ["mine.db"]
    else:
        open_job(replace(job, ledger=path)).close()


def test_a_ledger_elsewhere_that_this_job_knows_is_set_aside_when_damaged(job: Job, tmp_path: Path) -> None:
    there = replace(job, ledger=tmp_path / "job.db")
    _half_done(there)
    (tmp_path / "job.db").write_bytes(b"no longer a database" * 300)
    assert _asked_again(there) == ["text 2", "text 3"]
    assert (tmp_path / "job.db.damaged-1").exists()


def test_a_ledger_holds_one_job(job: Job, tmp_path: Path) -> None:
    there = replace(job, ledger=tmp_path / "job.db")
    _half_done(there)
    with pytest.raises(UsageError, match=r"job.db is that of .*/out; a ledger holds one job"):
        open_job(replace(there, out=tmp_path / "other"))
    shutil.copytree(job.out, tmp_path / "copy")
    with pytest.raises(UsageError, match="a ledger holds one job"):
        open_job(replace(job, out=tmp_path / "copy"))
    job.out.rename(tmp_path / "moved")  # a folder that only moved goes on with it
    store = open_job(replace(job, out=tmp_path / "moved"))
    assert [asked_text(prompt) for prompt in pending(store)] == ["text 2", "text 3"]
    store.close()


# sources


def test_a_source_that_is_away_fails_no_row(job: Job) -> None:
    store = open_job(job)
    assert store.index is not None
    (path,) = job.sources[0].paths
    path.rename(path.with_suffix(".away"))
    with pytest.raises(SourceUnavailable, match=r"a.jsonl cannot be read.*none of them fails"):
        store.index.load([0])
    path.with_suffix(".away").rename(path)
    assert isinstance(store.index.load([0])[0], Prompt)
    store.close()


def test_a_source_on_a_bad_disk_is_opened_anew(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_job(job)
    assert store.index is not None
    store.index.load([0])
    opened: list[object] = []
    real_open = os.open

    def stale(*_: object) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    def counted(path: object, *rest: object) -> int:
        opened.append(path)
        return real_open(path, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", stale)
        with pytest.raises(SourceUnavailable, match="Stale file handle"):
            store.index.load([0])
    monkeypatch.setattr(os, "open", counted)
    assert isinstance(store.index.load([0])[0], Prompt)
    assert opened == [job.sources[0].paths[0]]
    store.close()


def test_the_writer_waits_for_the_source_of_a_duplicate(job: Job) -> None:
    store = open_job(job)
    (path,) = job.sources[0].paths
    first, *_ = pending(store)
    away = path.with_suffix(".away")
    path.rename(away)
    told: list[str | None] = []
    assert store.index is not None
    store.index.close()  # as a stale handle, or the 33rd file

    def pause(seconds: float) -> None:
        away.rename(path)

    writer = RowWriter(store, job, lambda *_: None, told.append, pause=pause)
    writer.submit_row(first.seq, answer(first))
    writer.close(seal=False)
    assert told[0] is not None
    assert "a.jsonl cannot be read" in told[0]
    assert told[1:] == [None]
    assert states(store)[:5:4] == [State.DONE, State.DONE]
    store.close()


@pytest.mark.parametrize("own", [True, False])
def test_a_row_that_had_changed_is_asked_when_it_stands_there_again(tmp_path: Path, own: bool) -> None:
    rows = [{"prompt": f"text {n}", **({"id": f"q{n}"} if own else {})} for n in range(3)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    job = make_job(tmp_path, Source("a", (path,), samples=2))
    before, times = path.read_bytes(), path.stat()
    store = open_job(job)
    ids = {prompt.seq: prompt.id for prompt in pending(store)}
    assert store.index is not None
    path.write_bytes(before.replace(b"text 1", b"text 7"))
    loaded = store.index.load(range(6))
    failed = [(seq, row) for seq, row in enumerate(loaded) if isinstance(row, FailedRow)]
    assert [row.id for _, row in failed] == [ids[2], ids[3]]
    writer = BatchWriter(store, job)
    writer.write(failed)
    writer.close()
    assert states(store).count(State.FAILED) == 2
    store.close()
    for touched in (False, True):  # with the fingerprints of the scan, and without
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + touched))
        store = open_job(job)
        assert states(store) == [State.PENDING] * 6
        assert not (job.out / "failed" / "failed.jsonl").exists()
        if not touched:
            writer = BatchWriter(store, job)
            writer.write(failed)
            writer.close()
        store.close()


def test_duplicates_of_a_row_that_changed_are_asked_themselves(job: Job) -> None:
    store = open_job(job)
    assert store.index is not None
    (path,) = job.sources[0].paths
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"text 0", b"text 9", 1))
    (changed,) = store.index.load([0])
    assert isinstance(changed, FailedRow)
    writer = BatchWriter(store, job)
    assert writer.write([(0, changed)]) == ([], [0])
    writer.close()
    assert states(store)[4] == State.PENDING
    assert isinstance(store.index.load([4])[0], Prompt)
    store.check()
    store.close()


def test_late_duplicates_are_answered_before_anyone_counts(job: Job, tmp_path: Path) -> None:
    _half_done(job)
    (shard,) = (job.out / "completions").iterdir()
    shard.unlink()  # moved away: its rows count as answered, and cannot be shared any more
    texts = ["text 0", "text 1", "text 2", "text 3", "text 0", "text 1", "text 0", "text 1"]
    write_lines(tmp_path / "a.jsonl", [{"prompt": text} for text in texts])
    store = open_job(job)
    assert store.index is not None
    assert [asked_text(prompt) for prompt in pending(store)] == ["text 2", "text 3", "text 0"]
    assert states(store)[7] == State.DONE
    assert [row.row for row in read_rows(job.out) if row.answer.endswith("text 1")] == [2, 6, 8]
    store.close()


def test_a_renamed_source_is_the_same_source(job: Job, tmp_path: Path) -> None:
    hot = replace(job, sources=(replace(job.sources[0], sampling={"temperature": 1.0}),))
    _half_done(hot)
    moved = (tmp_path / "a.jsonl").rename(tmp_path / "b.jsonl")
    same = Source("b", (moved,), sampling={"temperature": 1.0})
    with pytest.raises(UsageError, match=r"temperature of source 'b' is unset, but the 4 rows"):
        open_job(replace(job, sources=(replace(same, sampling={}),)))
    store = open_job(replace(job, sources=(same,)))
    assert len(pending(store)) == 2
    store.close()
    # a second source over the same file, beside the first, may ask it otherwise
    store = open_job(replace(job, sources=(same, replace(same, name="c", sampling={}))))
    assert len(pending(store)) == 2 + 4
    store.close()


# what lies in the folder


def test_job_json_says_what_was_asked_without_secrets(job: Job) -> None:
    asked = replace(
        job, servers=("http://user:geheim@10.0.0.1:8000",), api_key_env="MY_KEY", sources=(
            replace(job.sources[0], extra_body={"api_key": "geheim-too"}),
        )
    )  # fmt: skip
    open_job(asked).close()
    raw = (job.out / "job.json").read_text()
    found = json.loads(raw)
    assert found["servers"] == ["http://10.0.0.1:8000"]
    assert found["sources"][0]["paths"] == [str(job.sources[0].paths[0])]
    assert found["api_key_env"] == "MY_KEY"
    assert "geheim" not in raw
    with pytest.raises(UsageError):
        open_job(replace(asked, ledger=job.sources[0].paths[0]))
    assert (job.out / "job.json").read_text() == raw


def test_what_a_kill_left_half_written_is_cleared_and_nothing_else(job: Job, tmp_path: Path) -> None:
    open_job(job).close()
    leftovers = [
        "status.json.tmp", "job.json.tmp", "open/part-000001.parquet.tmp", "open/rows-000000.jsonl.tmp",
        "prompts/scan-x1.tmp", "prompts/spool-2.jsonl",
    ]  # fmt: skip
    mine = ["notes.tmp", "prompts/mine.tmp", "prompts/mine.jsonl"]
    for name in leftovers + mine:
        (job.out / name).write_text("half")
    (job.out / "prompts" / "spool.jsonl").write_text("of the first scan, killed")
    for path in job.out.glob("ledger.db*"):
        path.unlink()
    leftovers.append("prompts/spool.jsonl")
    open_job(job).close()
    assert not [name for name in leftovers if (job.out / name).exists()]
    assert all((job.out / name).exists() for name in mine)
