"""The index: ids, duplicates, what a later run finds again, and what it refuses."""

from __future__ import annotations

import gzip
import json
import resource
import signal
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.drive.job import Source
from headrace.drive.prompts import Prompt
from headrace.drive.store.batches import BatchWriter
from headrace.drive.store.indexing import build_index
from headrace.drive.store.job_store import Store
from headrace.drive.store.reader import read_rows
from headrace.drive.store.rows import FailedRow
from headrace.drive.store.states import State
from headrace.errors import InputError, StorageError, UsageError
from tests.unit.drive.store_jobs import (
    FastDisk,
    answer_all,
    asked_text,
    failure,
    make_job,
    open_job,
    pending,
    states,
    write_lines,
)


def _texts(count: int, begin: int = 0) -> list[dict[str, str]]:
    return [{"prompt": f"text {number}"} for number in range(begin, begin + count)]


def test_exact_duplicates_are_asked_once_and_each_gets_its_row(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "a.jsonl",
        [{"prompt": "x", "place": 1}, {"prompt": "y"}, {"prompt": "x", "place": 3}, {"prompt": "x"}],
    )
    store = open_job(make_job(tmp_path))
    assert states(store) == [State.PENDING, State.PENDING, State.DUPLICATE, State.DUPLICATE]
    assert answer_all(store) == ["x", "y"]
    store.close()
    rows = sorted(read_rows(tmp_path / "out"), key=lambda row: row.row)
    assert [row.answer for row in rows] == ["answer to x", "answer to y", "answer to x", "answer to x"]
    assert [row.extra for row in rows] == ['{"place":1}', None, '{"place":3}', None]
    first = rows[0].id
    assert [rows[2].id, rows[3].id] == [f"{first}-1", f"{first}-2"]


def test_samples_of_one_row_are_prompts_of_their_own(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(2))
    job = make_job(tmp_path, Source("a", (tmp_path / "a.jsonl",), samples=3))
    store = open_job(job)
    found = pending(store)
    assert [(prompt.row, prompt.sample) for prompt in found] == [
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
        (2, 1),
        (2, 2),
    ]
    assert found[1].id == found[0].id + "#1"
    store.close()


def test_a_unique_id_column_is_taken_by_itself(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"id": "q1", "prompt": "x"}, {"id": "q2", "prompt": "x"}])
    store = open_job(make_job(tmp_path))
    assert [prompt.id for prompt in pending(store)] == ["q1"]  # q2 asks the same and shares the answer
    answer_all(store)
    store.close()
    assert sorted(row.id for row in read_rows(tmp_path / "out")) == ["q1", "q2"]


def test_an_id_column_that_is_not_unique_is_not_taken_by_itself(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"id": "q", "prompt": "x"}, {"id": "q", "prompt": "y"}])
    store = open_job(make_job(tmp_path))
    assert all(len(prompt.id) == 32 for prompt in pending(store))
    store.close()


def test_a_named_id_column_that_clashes_is_refused_with_the_rows(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"key": f"k{n % 7}", "prompt": f"text {n}"} for n in range(14)])
    job = make_job(tmp_path, Source("a", (tmp_path / "a.jsonl",), id_column="key"))
    with pytest.raises(InputError, match=r"7 rows have the id.*'k0' in a row 1 and in a row 8.* and 2 more"):
        open_job(job)


def test_the_kind_of_id_is_decided_once(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"id": "q1", "prompt": "x"}, {"id": "q2", "prompt": "y"}])
    store = open_job(make_job(tmp_path))
    answer_all(store)
    store.close()
    write_lines(tmp_path / "a.jsonl", [{"id": "q1", "prompt": "x"}, {"id": "q1", "prompt": "z"}])
    with pytest.raises(InputError, match="another --out"):
        open_job(make_job(tmp_path))

    other = tmp_path / "hash"
    other.mkdir()
    write_lines(other / "a.jsonl", [{"id": "q1", "prompt": "x"}, {"id": "q1", "prompt": "y"}])
    open_job(make_job(other)).close()
    write_lines(other / "a.jsonl", [{"id": "q1", "prompt": "x"}, {"id": "q2", "prompt": "y"}])
    store = open_job(make_job(other))
    assert all(len(prompt.id) == 32 for prompt in pending(store))
    store.close()


def test_unreadable_rows_are_failures_of_their_own(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"prompt": "x"}, '{"prompt": ', {"prompt": "y"}])
    store = open_job(make_job(tmp_path))
    assert states(store) == [State.PENDING, State.UNREADABLE, State.PENDING]
    failed = json.loads((tmp_path / "out" / "failed" / "failed.jsonl").read_text())
    assert (failed["kind"], failed["row"]) == ("unreadable", 2)
    assert "line 2" in failed["reason"]
    store.close()
    write_lines(tmp_path / "a.jsonl", [{"prompt": "x"}, {"prompt": "mended"}, {"prompt": "y"}])
    store = open_job(make_job(tmp_path))
    assert {asked_text(prompt) for prompt in pending(store)} == {"x", "mended", "y"}
    assert not (tmp_path / "out" / "failed" / "failed.jsonl").exists()
    store.close()


def test_nothing_is_scanned_when_nothing_changed(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(5))
    job = make_job(tmp_path)
    open_job(job).close()
    store = Store.open(replace(job, in_flight=64), disk=FastDisk())
    told: list[float] = []
    build_index(store, job, lambda rows, fraction: told.append(fraction))
    assert told == []
    store.close()


def test_a_compressed_source_is_read_again_from_the_spool(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "one"}\n{"prompt": "two"}\n'))
    job = make_job(tmp_path, Source("a", (path,)))
    store = open_job(job)
    assert [asked_text(prompt) for prompt in pending(store)] == ["one", "two"]
    answer_all(store, pending(store)[:1])
    store.close()
    path.write_bytes(gzip.compress(b'{"prompt": "zero"}\n{"prompt": "two"}\n{"prompt": "one"}\n'))
    store = open_job(job)
    assert sorted(asked_text(prompt) for prompt in pending(store)) == ["two", "zero"]
    assert [path.name for path in (tmp_path / "out" / "prompts").iterdir()] == ["spool-2.jsonl"]
    store.close()


def test_a_row_changed_under_a_running_job_is_not_sent(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", _texts(3))
    store = open_job(make_job(tmp_path))
    assert store.index is not None
    path.write_bytes(path.read_bytes().replace(b"text 1", b"text 7"))
    first, second, third = store.index.load([0, 1, 2])
    assert isinstance(first, Prompt)
    assert isinstance(third, Prompt)
    assert isinstance(second, FailedRow)
    assert (second.kind, second.row) == ("source_changed", 2)
    store.close()


def test_other_sampling_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(3))
    job = make_job(tmp_path, Source("a", (tmp_path / "a.jsonl",), sampling={"temperature": 0.5}))
    store = open_job(job)
    hotter = replace(job, sources=(replace(job.sources[0], sampling={"temperature": 1.0}),))
    store.close()
    open_job(hotter).close()  # nothing is answered yet
    store = open_job(hotter)
    answer_all(store)
    store.pin_model("small")
    store.close()
    with pytest.raises(UsageError, match=r"temperature of source 'a' is 0.5.* 3 rows .*with 1.0.*--out"):
        open_job(job)
    store = open_job(hotter)
    with pytest.raises(UsageError, match=r'model is "large".*"small"'):
        store.pin_model("large")
    store.close()


def test_excluded_prompts_are_left_out(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(4))
    store = open_job(make_job(tmp_path, out=tmp_path / "first"))
    answer_all(store, pending(store)[:2], seal=True)
    store.close()
    store = open_job(make_job(tmp_path, exclude=(tmp_path / "first",)))
    assert states(store) == [State.EXCLUDED, State.EXCLUDED, State.PENDING, State.PENDING]
    store.close()


def test_a_folder_and_a_file_are_excluded_by_the_same_rule(tmp_path: Path) -> None:
    """By the prompt: other sampling, other ids, further samples make no difference, and equal ids none."""
    write_lines(tmp_path / "a.jsonl", [{"id": "1", "prompt": "one"}, {"id": "2", "prompt": "two"}])
    store = open_job(make_job(tmp_path, out=tmp_path / "first"))
    answer_all(store)
    store.close()
    as_file = write_lines(tmp_path / "done.jsonl", [{"prompt": "one"}, {"prompt": "two"}])
    write_lines(tmp_path / "b.jsonl", [{"id": "7", "prompt": "one"}, {"id": "2", "prompt": "other"}])
    hotter = Source("b", (tmp_path / "b.jsonl",), sampling={"temperature": 1.0}, samples=2)
    for number, path in enumerate((tmp_path / "first", as_file)):
        store = open_job(make_job(tmp_path, hotter, out=tmp_path / f"out{number}", exclude=(path,)))
        assert states(store) == [State.EXCLUDED, State.EXCLUDED, State.PENDING, State.PENDING]
        assert store.notes == []
        store.close()


def test_a_list_of_ids_is_excluded_by_the_rows_own_ids(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"id": "1", "prompt": "one"}, {"id": "2", "prompt": "two"}])
    ids = write_lines(tmp_path / "ids.jsonl", [{"id": "2"}])
    store = open_job(make_job(tmp_path, exclude=(ids,)))
    assert states(store) == [State.PENDING, State.EXCLUDED]
    store.close()


def test_answers_to_another_input_are_no_rows_of_this_job(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(5))
    store = open_job(make_job(tmp_path))
    answer_all(store, seal=True)
    store.close()
    write_lines(tmp_path / "a.jsonl", [*_texts(2), {"prompt": "new"}])
    for _ in range(2):  # the second time without a scan
        store = open_job(make_job(tmp_path))
        assert store.index is not None
        assert store.index.other_rows() == 3
        assert store.index.counts_by_source()[0][State.DONE] == 2
        assert store.index.count(State.PENDING) == 1
        store.close()
    write_lines(tmp_path / "a.jsonl", _texts(5))  # they are back, and answered
    store = open_job(make_job(tmp_path))
    assert store.index is not None
    assert (store.index.other_rows(), store.index.count(State.DONE)) == (0, 5)
    store.close()


def test_rows_of_a_lost_ledger_that_answer_another_input_are_counted(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(5))
    store = open_job(make_job(tmp_path))
    answer_all(store, pending(store)[:3], seal=True)
    answer_all(store)
    store.close()
    for left in (tmp_path / "out").glob("ledger.db*"):
        left.unlink()
    write_lines(tmp_path / "a.jsonl", [*_texts(1), {"prompt": "new"}])
    for _ in range(2):
        store = open_job(make_job(tmp_path))
        assert store.index is not None
        assert (store.unknown_rows, store.index.other_rows()) == (4, 0)
        assert store.index.count(State.DONE) == 1
        store.close()


def test_failed_rows_are_taken_up_again_when_asked(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [*_texts(2), {"prompt": "text 0"}])
    store = open_job(make_job(tmp_path))
    writer = BatchWriter(store, store.job)
    assert writer.write([(p.seq, failure(p)) for p in pending(store)]) == ([], [0, 1, 2])
    assert states(store) == [State.FAILED] * 3
    writer.close()
    store.close()
    store = open_job(make_job(tmp_path, retry_failed=True))
    assert states(store) == [State.PENDING, State.PENDING, State.DUPLICATE]
    answer_all(store)
    assert states(store) == [State.DONE] * 3
    store.close()


def test_a_duplicate_that_comes_after_the_answer_is_filled_from_it(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(3))
    store = open_job(make_job(tmp_path))
    answer_all(store, seal=True)
    store.close()
    write_lines(tmp_path / "a.jsonl", [*_texts(3), {"prompt": "text 1", "late": True}])
    store = open_job(make_job(tmp_path))
    assert pending(store) == []
    assert answer_all(store) == []
    store.check()
    store.close()
    late = [row for row in read_rows(tmp_path / "out") if row.extra]
    assert [(row.row, row.answer) for row in late] == [(4, "answer to text 1")]


def test_random_pending_draws_every_free_prompt_and_no_other(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(50))
    store = open_job(make_job(tmp_path))
    assert store.index is not None
    taken = np.zeros(50, dtype=np.uint8)
    taken[10:20] = 1
    rng = np.random.default_rng(5)
    assert sorted(store.index.random_pending(1000, rng, taken)) == [*range(10), *range(20, 50)]
    drawn = Counter(int(seq) for _ in range(400) for seq in store.index.random_pending(4, rng, taken))
    # 1,600 draws over 40 prompts: 40 each, standard deviation about 6
    assert len(drawn) == 40
    assert max(drawn.values()) < 40 + 6 * 6
    store.close()


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(
        st.tuples(st.lists(st.integers(0, 7), min_size=1, max_size=9), st.integers(0, 4)),
        min_size=2,
        max_size=4,
    )
)
def test_edited_inputs_keep_what_is_answered(tmp_path: Path, runs: list[tuple[list[int], int]]) -> None:
    """Against a plain model: a text is asked at most once ever; at the end each row of the input has one row.

    The input of each run is any list of texts: reordered, shortened, lengthened, with duplicates.
    """
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    asked: Counter[str] = Counter()
    most: Counter[int] = Counter()  # the most rows of a text that any run's input had, if answered then
    for numbers, answers in runs:
        write_lines(folder / "a.jsonl", [{"prompt": f"text {number}"} for number in numbers])
        store = open_job(make_job(folder))
        free = pending(store)
        assert len({asked_text(p) for p in free}) == len(free)
        assert {asked_text(p) for p in free} == {f"text {number}" for number in numbers} - set(asked)
        asked.update(answer_all(store, free[:answers]))
        store.check()
        store.close()
        for number, count in Counter(numbers).items():
            if f"text {number}" in asked:
                most[number] = max(most[number], count)
        rows = list(read_rows(folder / "out"))
        assert Counter((row.messages or [])[-1]["content"] for row in rows) == Counter(
            {f"text {n}": c for n, c in most.items()}
        )
        assert len({row.id for row in rows}) == len(rows)
    assert max(asked.values(), default=1) == 1


@pytest.mark.parametrize(
    ("ids", "samples", "said"),
    [
        (["a", "a-1", "a"], 1, r"id 'a-1' is the own id of a row 2, and the one that a row 3 gets"),
        (["a#1", "b", "a"], 2, r"id 'a#1' is the own id of a row 1, and the one that a row 3 gets"),
        (["a", "a", "a-1"], 2, r"id 'a-1' is the own id of a row 3, and the one that a row 2 gets"),
        (["a-1#1", "a", "a"], 2, r"id 'a-1#1' is the own id of a row 1, and the one that a row 3 gets"),
    ],
)
def test_own_ids_that_clash_with_derived_ones_are_told(
    tmp_path: Path, ids: list[str], samples: int, said: str
) -> None:
    rows = [{"key": own, "prompt": f"of {own}"} for own in ids]
    path = write_lines(tmp_path / "a.jsonl", rows)
    source = Source("a", (path,), id_column="key", samples=samples)
    with pytest.raises(InputError, match=said):
        open_job(make_job(tmp_path, source))
    assert not (tmp_path / "out" / "job.json").exists()


@pytest.mark.parametrize(
    ("ids", "samples"),
    [
        (["a", "a-1", "a-2"], 3),
        (["a", "a", "a-2"], 1),
        (["a#1", "a"], 1),
        (["a#3", "a"], 3),
        (["a#01", "a"], 2),
    ],
)
def test_own_ids_that_only_look_like_derived_ones_are_kept(
    tmp_path: Path, ids: list[str], samples: int
) -> None:
    rows = [{"key": own, "prompt": f"of {own}"} for own in ids]
    path = write_lines(tmp_path / "a.jsonl", rows)
    store = open_job(make_job(tmp_path, Source("a", (path,), id_column="key", samples=samples)))
    answer_all(store)
    store.close()
    found = [row.id for row in read_rows(tmp_path / "out")]
    assert len(set(found)) == len(found) == len(ids) * samples
    assert set(ids) <= set(found)


def test_an_id_column_nobody_named_that_would_clash_is_not_taken(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"id": "a#1", "prompt": "x"}, {"id": "a", "prompt": "y"}])
    store = open_job(make_job(tmp_path, Source("a", (path,), samples=2)))
    assert all(len(prompt.id.removesuffix("#1")) == 32 for prompt in pending(store))
    store.close()


class _Narrow(FastDisk):
    """Counts what is free, so that its test need not fill a disk."""

    def free_bytes(self, path: Path) -> int:
        return 17


def test_no_room_for_the_scan_is_said_as_such(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts(9000))
    size, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = Store.open(make_job(tmp_path), disk=_Narrow())
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))  # the kernel writes a part, then refuses
        with pytest.raises(StorageError, match=r"the index of .*out cannot be made: .*File too large"):
            build_index(store, store.job)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
        signal.signal(signal.SIGXFSZ, before)
        store.close()
    assert not list((tmp_path / "out" / "prompts").iterdir())
