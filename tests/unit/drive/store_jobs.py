"""Small jobs on a real folder for the tests of the store: a disk that syncs nothing, and answers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.clock import VirtualClock
from headrace.drive.job import Job, Source
from headrace.drive.prompts import Prompt
from headrace.drive.store.batches import BatchWriter
from headrace.drive.store.indexing import build_index
from headrace.drive.store.job_store import Store
from headrace.drive.store.rows import FailedRow, Row, as_json_text
from headrace.drive.store.states import State
from headrace.durable.disk import AppendFile, RealAppendFile, RealDisk


class _Unsynced(RealAppendFile):
    def fsync(self) -> None:
        pass


class FastDisk(RealDisk):
    """A disk whose power nobody cuts: it syncs nothing, and commits wait for nothing."""

    def append_open(self, path: Path, *, fresh: bool = False) -> AppendFile:
        return _Unsynced(path, fresh=fresh)

    def fsync_folder(self, path: Path) -> None:
        pass

    def open_database(self, path: Path) -> sqlite3.Connection:
        connection = super().open_database(path)
        connection.execute("PRAGMA synchronous=OFF")
        return connection


def write_lines(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    """A JSONL file; a string stands for itself, readable or not."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def make_job(folder: Path, *sources: Source, **fields: Any) -> Job:
    """A job in folder/out; without sources, of folder/a.jsonl."""
    fields.setdefault("out", folder / "out")
    return Job(sources=sources or (Source("a", (folder / "a.jsonl",)),), servers=(), **fields)


def open_job(job: Job, disk: RealDisk | None = None) -> Store:
    """The job's store with its index, as a run has it before the first request."""
    store = Store.open(job, disk=disk or FastDisk(), clock=VirtualClock(), filesystem=lambda path: "ext4")
    try:
        build_index(store, job)
    except BaseException:
        store.close()
        raise
    return store


def answer(prompt: Prompt, text: str = "", **fields: Any) -> Row:
    """A row for the prompt."""
    request = prompt.request
    values: dict[str, Any] = {
        "id": prompt.id, "source": "a", "row": prompt.row, "sample": prompt.sample,
        "messages": None if request.messages is None else [dict(turn) for turn in request.messages],
        "prompt": request.text, "answer": text or f"answer to {asked_text(prompt)}", "reasoning": None,
        "finish_reason": "stop", "flags": [], "prompt_tokens": 3, "completion_tokens": 5,
        "server": "http://localhost:1", "model": "m", "latency_seconds": 0.5, "tries": 1, "finished_at": 7.0,
        "extra": as_json_text(prompt.extra) if prompt.extra is not None else None,
    }  # fmt: skip
    return Row(**values | fields)


def asked_text(prompt: Prompt) -> str:
    """What the prompt asks: its one turn, or its plain text."""
    messages = prompt.request.messages
    return prompt.request.text or "" if messages is None else str(messages[-1]["content"])


def failure(prompt: Prompt, reason: str = "no") -> FailedRow:
    """A refusal of the prompt."""
    return FailedRow(prompt.id, "a", prompt.row, prompt.sample, "refused", reason, 400, "s", 1, 7.0)


def pending(store: Store) -> list[Prompt]:
    """Every prompt that is still to be asked."""
    assert store.index is not None
    seqs = [seq for seq, state in enumerate(store.index.states) if state == State.PENDING]
    loaded = store.index.load(seqs)
    prompts = [prompt for prompt in loaded if isinstance(prompt, Prompt)]
    assert len(prompts) == len(loaded), loaded
    return prompts


def answer_all(store: Store, prompts: Iterable[Prompt] | None = None, *, seal: bool = False) -> list[str]:
    """Answers the prompts (all pending ones), and returns the texts that were asked."""
    writer = BatchWriter(store, store.job)
    for items in writer.stored_answers():
        writer.write(items)
    asked = list(prompts) if prompts is not None else pending(store)
    writer.write([(prompt.seq, answer(prompt)) for prompt in asked])
    if seal:
        writer.seal()
    writer.close()
    return [asked_text(prompt) for prompt in asked]


def states(store: Store) -> list[State]:
    """The state of every prompt."""
    assert store.index is not None
    return [State(state) for state in store.index.states]
