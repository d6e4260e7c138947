"""Reads every row of a job's sources once, and keeps one record per prompt in a temporary file.

A record has the place of the row and its keys; what would be sent is computed and let go, so that memory does
not grow with the sources.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

import numpy as np

from headrace.drive.job import Job, Source
from headrace.drive.request import build_request, content_key, own_key, prompt_key
from headrace.drive.sources import scan
from headrace.drive.store.job_store import Store
from headrace.drive.store.own_ids import sample_key
from headrace.drive.store.pinned import FilePrint
from headrace.drive.store.records import RECORD, Keys, Records, as_keys, as_records
from headrace.drive.store.rows import FailedRow
from headrace.drive.store.spool import SpoolFile
from headrace.errors import InputError

Progress = Callable[[int, float], None]

ROWS_PER_CHUNK = 4_096
_PROGRESS_SECONDS = 0.2
_LONGEST_ROW_BYTES = 0xFFFF_FFFF
_MOST_PROMPTS = 0xFFFF_FFFF
_NO_OWN_KEY = bytes(16)


class Scanned:
    """What a scan of all sources found, in scan order.

    Attributes:
        records: one per prompt, on disk, with the own key as `key`: zero where a row has no id of its own.
        errors: by position, of rows that cannot be read.
        sharp: positions of rows whose own id looks like a sample's, and that sample's key.
        asked: keys of the prompts alone, whatever their sampling; empty where the job excludes nothing.
    """

    def __init__(
        self,
        records: Records,
        errors: dict[int, FailedRow],
        sharp: list[tuple[int, bytes]],
        asked: list[Keys],
    ) -> None:
        self.asked: Keys = np.concatenate([as_keys([]), *asked])
        self.records = records
        self.sharp = sharp
        self.errors = errors
        self.unreadable = np.zeros(len(records), dtype=bool)
        self.unreadable[list(errors)] = True
        self.contents: Keys = records["content"]
        self.owns: Keys = records["key"]

    def __len__(self) -> int:
        return len(self.records)


def scan_sources(
    store: Store, job: Job, files: list[FilePrint], spool: SpoolFile, spill: Path, progress: Progress
) -> Scanned:
    """What all sources hold.

    Args:
        spool: takes the rows that cannot be read again in place.
        spill: the temporary file that the records are written to, and mapped from.
        progress: told the rows scanned and the fraction done, some times a second.

    Raises:
        InputError: a source cannot be read, or has more than can be indexed.
    """
    numbers = {Path(file.path): file.number for file in files}
    errors: dict[int, FailedRow] = {}
    sharp: list[tuple[int, bytes]] = []
    rows: list[tuple[int, ...]] = []
    contents: list[bytes] = []
    owns: list[bytes] = []
    asked: list[bytes] = []
    all_asked: list[Keys] = []
    count = 0
    with spill.open("ab") as out:

        def put_chunk() -> None:
            # not `tofile`, which says of a full disk no more than that fewer were written
            out.write(as_records(rows, as_keys(owns), as_keys(contents)).tobytes())
            if job.exclude:
                all_asked.append(as_keys(asked))
            for column in (rows, owns, contents, asked):
                column.clear()

        for row, content, own, error, of_sample, prompt in _rows(store, job, files, numbers, spool, progress):
            if of_sample is not None:
                sharp.append((count, of_sample))
            if error is not None:
                errors[count] = error
            rows.append(row)
            contents.append(content)
            owns.append(own)
            asked.append(prompt)
            count += 1
            if len(rows) == ROWS_PER_CHUNK:
                put_chunk()
        if rows:
            put_chunk()
    if count > _MOST_PROMPTS:
        raise InputError(
            f"the job has {count:,} prompts; one job holds at most {_MOST_PROMPTS:,}. "
            "Split it into several jobs"
        )
    records: Records = np.memmap(spill, dtype=RECORD, mode="r") if count else np.zeros(0, dtype=RECORD)
    return Scanned(records, errors, sharp, all_asked)


def _rows(
    store: Store,
    job: Job,
    files: list[FilePrint],
    numbers: Mapping[Path, int],
    spool: SpoolFile,
    progress: Progress,
) -> Iterator[tuple[tuple[int, ...], bytes, bytes, FailedRow | None, bytes | None, bytes]]:
    """Every prompt: (offset, length, row, file, source, sample), content key, own key, and what is wrong.

    Then the key that the own id has if it is taken for that of a sample (`headrace.drive.store.own_ids`), and
    the key of the prompt alone, which is the content key where nothing is excluded.
    """
    sizes = {file.number: file.size for file in files}
    total = max(1, sum(sizes[numbers[path]] for source in job.sources for path in source.paths))
    passed, count = 0, 0
    told = store.clock.monotonic()
    for number, source in enumerate(job.sources):
        here, within = None, 0
        for scanned in scan(source, numbers, spool):
            at = scanned.locator
            count += 1
            if at.file != here:
                within += sizes.get(here, 0) if here else 0
                here = at.file
            if not count & 1023 and store.clock.monotonic() - told >= _PROGRESS_SECONDS:
                told = store.clock.monotonic()
                progress(count, min(1.0, (passed + within + (at.offset if at.file else 0)) / total))
            if at.length > _LONGEST_ROW_BYTES:
                raise InputError(
                    f"row {scanned.row:,} of source '{source.name}' has {at.length:,} bytes; "
                    f"at most {_LONGEST_ROW_BYTES:,} can be read. Take it out"
                )
            place = (at.offset, at.length, scanned.row, at.file, number)
            prompt, error = scanned.prompt, scanned.error
            for sample in range(source.samples if prompt is not None else 1):
                if prompt is None:
                    break
                try:
                    request = build_request(prompt, source, job, sample)
                except InputError as refused:
                    error = str(refused)
                    break
                own, of_sample = _NO_OWN_KEY, None
                if prompt.own_id is not None:
                    own = own_key(prompt.own_id, sample)
                    of_sample = sample_key(prompt.own_id) if not sample and "#" in prompt.own_id else None
                content = content_key(request, sample)
                asked = prompt_key(request.messages, request.text) if job.exclude else None
                yield (*place, sample), content, own, None, of_sample, asked or content
            if error is not None:
                key = _unreadable_key(source, scanned.row)
                yield (*place, 0), key, key, _unreadable(key, source, scanned.row, error), None, key
        passed += sum(sizes[numbers[path]] for path in source.paths)
    progress(count, 1.0)


def _unreadable_key(source: Source, row: int) -> bytes:
    return blake2b(f"{source.name}\0{row}".encode(), digest_size=16, person=b"unreadable").digest()


def _unreadable(key: bytes, source: Source, row: int, error: str) -> FailedRow:
    return FailedRow(
        id=key.hex(),
        source=source.name,
        row=row,
        sample=0,
        kind="unreadable",
        reason=error[:2000],
        status=None,
        server=None,
        tries=0,
        failed_at=time.time(),
    )
