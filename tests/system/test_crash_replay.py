"""Cuts the power after every single thing that a job did to the disk, and goes on from what is left.

A job of 150 prompts (with duplicates, failures, unreadable rows and several seals, in two runs) is recorded
on a `RecordingDisk`. For every prefix of the record, and each of the three losses, the folder is rebuilt as
the crash leaves it, the job is run to its end, and every prompt must have exactly one row or failure; what
was acknowledged as durable before the crash must be there unchanged, and is not asked again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headrace.drive.job import Job, Source
from headrace.drive.prompts import Prompt
from headrace.drive.store.batches import BatchWriter
from headrace.drive.store.indexing import build_index
from headrace.drive.store.job_store import Store
from headrace.drive.store.reader import read_rows
from headrace.drive.store.rows import FailedRow, Row
from headrace.drive.store.states import State
from headrace.durable.disk import Disk
from headrace.durable.recording import Loss, RecordingDisk, after_crash
from headrace.words import OutputFormat
from tests.unit.drive.store_jobs import FastDisk

BATCH = 10
SEGMENT_ROWS = 35


def _job(source: Path, out: Path, form: OutputFormat) -> Job:
    return Job(out=out, sources=(Source("s", (source,)),), servers=(), output_format=form)


def _write_source(path: Path) -> None:
    lines = []
    for number in range(150):
        if number % 50 == 7:
            lines.append('{"prompt": ')  # unreadable
        elif number % 10 == 3:
            lines.append(json.dumps({"prompt": f"same {number % 3}", "place": number}))
        elif number % 20 == 5:
            lines.append(json.dumps({"prompt": f"fail {number % 40}"}))
        else:
            lines.append(json.dumps({"prompt": f"ask {number}"}))
    path.write_text("\n".join(lines) + "\n")


class Answerer:
    """Answers each time differently, so that an answer that was kept can be told from one asked anew."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, prompt: Prompt) -> Row | FailedRow:
        self.asked += 1
        text = prompt.request.messages[-1]["content"] if prompt.request.messages else ""
        if text.startswith("fail"):
            return FailedRow(prompt.id, "s", prompt.row, 0, "refused", "no", 400, "s", 1, 1.0)
        return Row(
            id=prompt.id, source="s", row=prompt.row, sample=0, messages=None, prompt=text,
            answer=f"{text} -> {id(self)} {self.asked}", reasoning=None, finish_reason="stop", flags=[],
            prompt_tokens=1, completion_tokens=1, server="s", model="m", latency_seconds=0.1, tries=1,
            finished_at=1.0,
        )  # fmt: skip


def _run(
    job: Job, disk: Disk, answer: Answerer, stop_after: int | None, acknowledge: Callable[[list[int]], None]
) -> Store:
    """One run of the job, in this thread; stops without sealing or closing when it is to stop early."""
    store = Store.open(job, disk=disk)
    index = build_index(store, job)
    writer = BatchWriter(store, job, segment_rows=SEGMENT_ROWS)
    for items in writer.stored_answers():
        writer.write(items)
    count = 0
    while pending := [seq for seq, state in enumerate(index.states) if state == State.PENDING][:BATCH]:
        if stop_after is not None and count >= stop_after:
            writer.close()
            return store
        prompts = index.load(pending)
        assert all(isinstance(prompt, Prompt) for prompt in prompts)
        done, failed = writer.write([(p.seq, answer(p)) for p in prompts if isinstance(p, Prompt)])
        acknowledge(done + failed)
        if writer.seal_is_due():
            writer.seal()
        count += 1
        if count == 4:
            writer.put_snapshot()
            store.write_failed()
    writer.seal()
    writer.put_snapshot()
    store.write_failed()
    writer.close()
    return store


@pytest.fixture(params=list(OutputFormat))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, OutputFormat, RecordingDisk]:
    source = tmp_path / "s.jsonl"
    _write_source(source)
    disk = RecordingDisk()
    job = _job(source, tmp_path / "recorded", request.param)
    answer = Answerer()
    for stop_after in (5, None):
        # an acknowledgement carries the rows as they are durable: (id, answer), and the failed ids

        def acknowledge(seqs: list[int]) -> None:
            disk.mark(_durable(job.out))

        _run(job, disk, answer, stop_after, acknowledge).close()
    return source, request.param, disk


def _durable(out: Path) -> dict[str, str]:
    return {row.id: row.answer for row in read_rows(out)}


def test_every_prefix_of_a_job_can_be_gone_on_with(
    recorded: tuple[Path, OutputFormat, RecordingDisk], tmp_path: Path
) -> None:
    source, form, disk = recorded
    recorded_out = tmp_path / "recorded"
    events = disk.events
    expected = _expected(source)
    assert {event.what for event in events} >= {
        "write",
        "fsync",
        "replace",
        "unlink",
        "ledger",
        "fsync_folder",
    }
    for length in range(1, len(events) + 1):
        if events[length - 1].what == "mark" and length != len(events):
            continue
        # JSON lines meet every loss at every step; Parquet, whose shards cost more time, one loss per step
        for loss in Loss if form is OutputFormat.JSONL else (list(Loss)[length % len(Loss)],):
            out = tmp_path / "replayed" / f"{length}-{loss}"
            files, folders, marks = after_crash(events[:length], loss)
            _rebuild(recorded_out, out, files, folders)
            _goes_on(source, out, form, marks[-1] if marks else {}, expected, f"after event {length} {loss}")


def _expected(source: Path) -> Counter[int]:
    return Counter(range(1, 1 + len(source.read_text().splitlines())))


def _rebuild(recorded: Path, out: Path, files: dict[Path, bytes], folders: set[Path]) -> None:
    out.mkdir(parents=True)
    for folder in sorted(folders):
        if folder.is_relative_to(recorded):
            (out / folder.relative_to(recorded)).mkdir(exist_ok=True)
    for path, data in files.items():
        (out / path.relative_to(recorded)).write_bytes(data)


def _goes_on(
    source: Path, out: Path, form: OutputFormat, durable: dict[str, str], expected: Counter[int], when: str
) -> None:
    answer = Answerer()
    store = _run(_job(source, out, form), FastDisk(), answer, None, lambda seqs: None)
    store.check()
    store.close()
    rows = list(read_rows(out))
    failed = [
        msgspec.json.decode(line, type=FailedRow)
        for line in (out / "failed" / "failed.jsonl").read_bytes().splitlines()
    ]
    found = Counter([row.row for row in rows] + [row.row for row in failed])
    assert found == expected, f"{when}: {found - expected} too many, {expected - found} missing"
    assert len({row.id for row in rows}) == len(rows), when
    answers = {row.id: row.answer for row in rows}
    changed = {text for text in durable if answers.get(text) != durable[text]}
    assert not changed, f"{when}: acknowledged rows were lost or asked again: {sorted(changed)[:3]}"
    assert not list((out / "open").iterdir()), when
    assert {row.kind for row in failed} == {"refused", "unreadable"}
