"""What a dry run says of the rows, and that it leaves the job folder as it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from headrace.drive.job import Source
from headrace.drive.store.batches import BatchWriter
from headrace.drive.store.preview import Preview, preview
from headrace.errors import UsageError
from tests.unit.drive.store_jobs import answer_all, failure, make_job, open_job, pending, write_lines


def _told(found: Preview) -> dict[str, int]:
    names = ("rows", "done", "excluded", "duplicates", "failed", "unreadable", "to_send", "other_rows")
    return {name: getattr(found, name) for name in names if getattr(found, name)}


def _prints(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


def _texts(*words: str) -> list[dict[str, str]]:
    return [{"prompt": word} for word in words]


def test_a_new_job_is_counted_and_no_folder_is_made(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [*_texts("a", "b", "a", "c"), "not json"])
    done = write_lines(tmp_path / "done.jsonl", _texts("c"))
    job = make_job(tmp_path, exclude=(done,))
    found = preview(job)
    # 5 lines: `a` twice, `c` excluded, one unreadable; 2 + 1 + 1 + 1 = 5
    assert _told(found) == {"rows": 5, "to_send": 2, "excluded": 1, "duplicates": 1, "unreadable": 1}
    assert not found.own_ids
    assert not job.out.exists()


@pytest.mark.parametrize("held", [False, True])
def test_a_job_that_has_begun_is_counted_and_left_as_it_is(tmp_path: Path, held: bool) -> None:
    write_lines(tmp_path / "a.jsonl", _texts("old", "a", "b", "bad"))
    store = open_job(make_job(tmp_path))
    prompts = pending(store)
    answer_all(store, prompts[:1], seal=True)
    writer = BatchWriter(store, store.job)
    writer.write([(prompts[3].seq, failure(prompts[3]))])
    writer.close()
    answer_all(store, prompts[1:2])
    if not held:
        store.close()
    write_lines(tmp_path / "a.jsonl", _texts("a", "b", "bad", "new"))
    before = _prints(tmp_path / "out")
    found = preview(make_job(tmp_path))
    assert _told(found) == {"rows": 4, "done": 1, "failed": 1, "to_send": 2, "other_rows": 1}
    assert found.notes == ()
    assert _told(preview(make_job(tmp_path, retry_failed=True)))["to_send"] == 3
    assert _prints(tmp_path / "out") == before
    if held:
        store.close()


def test_what_a_run_would_refuse_is_refused_in_the_name_of_its_folder(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", _texts("a"))
    store = open_job(make_job(tmp_path))
    answer_all(store)
    store.close()
    hotter = Source("a", (tmp_path / "a.jsonl",), sampling={"temperature": 1.0})
    with pytest.raises(UsageError, match=rf"temperature .* answered in {tmp_path / 'out'} were"):
        preview(make_job(tmp_path, hotter))


def test_own_ids_and_samples(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"id": "x", "prompt": "a"}, {"id": "y", "prompt": "b"}])
    found = preview(make_job(tmp_path, Source("a", (tmp_path / "a.jsonl",), samples=3)))
    assert _told(found) == {"rows": 6, "to_send": 6}
    assert found.own_ids
