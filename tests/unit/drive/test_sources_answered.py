"""What `--exclude FILE` leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.drive.job import Job, Source
from headrace.drive.prompts import PromptRow
from headrace.drive.request import build_request, content_key, own_key, prompt_key, row_id
from headrace.drive.sources.answered import answered_keys
from headrace.errors import UsageError

USER = {"role": "user", "content": "hi"}


def job(*sources: Source) -> Job:
    return Job(Path("out"), sources or (source(),), ("http://127.0.0.1:1",))


def source(name: str = "s", **settings: Any) -> Source:
    return Source(name, (Path("s.jsonl"),), **settings)


def key_of(prompt: PromptRow, a_job: Job, number: int = 0) -> bytes:
    request = build_request(prompt, a_job.sources[number], a_job)
    key = prompt_key(request.messages, request.text)
    assert key is not None
    return key


def keys(folder: Path, a_job: Job, *rows: Any) -> set[bytes]:
    path = folder / "done.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return set(answered_keys(path, a_job))


def written(**fields: Any) -> dict[str, Any]:
    """A row as headrace writes it."""
    return {"id": "1", "source": "s", "row": 1, "sample": 0, "messages": None, "prompt": None, **fields}


def test_rows_of_headrace_by_their_ids(tmp_path: Path) -> None:
    base = bytes(range(16))
    second = content_key(build_request(PromptRow(1, text="x"), source(), job(), 1), 1)
    rows = [written(id=row_id(base)), written(id=row_id(base, 2)), written(id=row_id(second, 1, 1), sample=1)]
    found = keys(tmp_path, job(), *rows)
    assert {base, second} <= found


def test_rows_of_headrace_by_what_they_ask_and_not_by_own_id_nor_sampling(tmp_path: Path) -> None:
    """Two data sets may well both have a row 7: only one that asks the same is left out."""
    a_job = job(source(samples=2, sampling={"seed": 5, "temperature": 1.3}))
    found = keys(
        tmp_path, a_job, written(id="q7#1", sample=1, prompt="hi"), written(id="q8", messages=[USER])
    )
    assert found == {key_of(PromptRow(0, text="hi"), a_job)}
    assert keys(tmp_path, a_job, written(id="q9")) == {own_key("q9")}  # keeps no prompt


def test_a_chat_of_one_user_turn_and_a_plain_prompt_are_one() -> None:
    assert prompt_key([USER], None) == prompt_key(None, "hi") != prompt_key(None, "hi ")
    assert prompt_key([{"role": "system", "content": "s"}, USER], None) != prompt_key([USER], None)
    assert prompt_key([{**USER, "name": "Ann"}], None) is None  # rows do not keep the name
    assert prompt_key([{**USER, "name": None}], None) == prompt_key([USER], None)
    assert prompt_key(None, None) is None


def test_parts_of_content_are_compared_as_rows_keep_them() -> None:
    parts = [{"type": "text", "text": "hi"}]
    kept = [{"role": "user", "content": '[{"type":"text","text":"hi"}]'}]
    assert prompt_key([{"role": "user", "content": parts}], None) == prompt_key(kept, None)


def test_exported_conversations_without_their_answer(tmp_path: Path) -> None:
    row = {"id": "7", "source": "s", "row": 1, "sample": 0, "conversations": [USER, {"role": "assistant",
           "content": "yo"}]}  # fmt: skip
    assert keys(tmp_path, job(), row) == {key_of(PromptRow(0, text="hi"), job())}


def test_other_rows_by_what_they_ask_of_each_source(tmp_path: Path) -> None:
    a_job = job(source("a", sampling={"max_tokens": 5}), source("b", sampling={"max_tokens": 6}, system="s"))
    found = keys(tmp_path, a_job, {"id": 1, "question": "hi", "answer": "x"})
    hi = PromptRow(0, text="hi")
    assert found == {key_of(hi, a_job, 0), key_of(hi, a_job, 1)}  # with the system prompt, and without


def test_other_chats_without_the_answer_at_their_end(tmp_path: Path) -> None:
    found = keys(tmp_path, job(), {"id": "x", "messages": [USER, {"role": "assistant", "content": "yo"}]})
    assert found == {key_of(PromptRow(0, text="hi"), job())}


def test_the_jobs_own_mapping_is_used_where_it_fits(tmp_path: Path) -> None:
    a_job = job(source(columns={"prompt": "ask"}))
    assert keys(tmp_path, a_job, {"ask": "hi", "text": "no"}) == {key_of(PromptRow(0, text="hi"), a_job)}
    assert keys(tmp_path, a_job, {"text": "hi"}) == {key_of(PromptRow(0, text="hi"), a_job)}


def test_a_list_of_ids(tmp_path: Path) -> None:
    assert keys(tmp_path, job(), {"id": 1}, {"id": "b"}, {"custom_id": "c"}) == {
        own_key("1"),
        own_key("b"),
        own_key("c"),
    }
    key = bytes(range(16))
    assert keys(tmp_path, job(), {"id": row_id(key)}) == {key, own_key(row_id(key))}


def test_an_id_column_that_the_job_names(tmp_path: Path) -> None:
    a_job = job(source(id_column="uid"))
    found = keys(tmp_path, a_job, {"uid": 4, "prompt": "hi"})
    assert found == {key_of(PromptRow(0, text="hi"), a_job)}
    assert keys(tmp_path, a_job, {"uid": 4}) == {own_key("4")}


def test_problems_are_told_and_leave_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "done.jsonl"
    path.write_text('{"id": 1}\n{"id": "x\n{"other": 1}\n')
    problems: list[str] = []
    assert list(answered_keys(path, job(), problems.append)) == [own_key("1")]
    assert "not JSON" in problems[0]
    assert "neither a prompt nor an id" in problems[1]


def test_empty_and_missing_files(tmp_path: Path) -> None:
    assert keys(tmp_path, job()) == set()
    with pytest.raises(UsageError, match="does not exist"):
        list(answered_keys(tmp_path / "gone.jsonl", job()))
