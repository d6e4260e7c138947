"""Reads the rows of a job folder, also while the job runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headrace.drive.store.folder import JobFolder
from headrace.drive.store.rows import Row
from headrace.drive.store.segments import open_line_chunks, stored_rows_of
from headrace.drive.store.shards import COLUMN_NAMES, read_shard
from headrace.errors import InputError


def read_columns(out: Path, columns: Sequence[str] = COLUMN_NAMES) -> Iterator[dict[str, list[Any]]]:
    """The durable rows of the job folder as columns, some hundred rows at a time: shards, then open files.

    What is read is the folder as it stood at the call; rows that come later are not in it. Each row comes
    once, also when its segment becomes a shard meanwhile.

    Raises:
        InputError: `out` is not a job folder.
        StorageError: a shard or an open file is damaged.
    """
    folder = JobFolder(out)
    if not folder.completions.is_dir():
        raise InputError(f"{out} is not a job folder: it has no completions/. Name what was given as --out")
    with ExitStack() as stack:
        # Segments are opened before shards are listed: one that is sealed in between is read from the
        # open file (which stays readable when unlinked) or from its shard, never from both.
        segments: dict[int, tuple[int, int]] = {}
        for number, path in folder.segments().items():
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            stack.callback(os.close, descriptor)
            segments[number] = (descriptor, os.fstat(descriptor).st_size)
        shards = folder.shards()
        for path in shards.values():
            yield from read_shard(path, columns)
        for number, (descriptor, size) in segments.items():
            if number in shards:
                continue
            for chunk in open_line_chunks(descriptor, 0, size):
                rows = stored_rows_of(chunk, folder.segment(number))
                yield {name: [getattr(row, name) for row in rows] for name in columns}


def read_rows(out: Path) -> Iterator[Row]:
    """The durable rows of the job folder, as `read_columns` finds them."""
    for columns in read_columns(out):
        for values in zip(*columns.values(), strict=True):
            yield Row(**dict(zip(columns, values, strict=True)))


def count_rows(out: Path) -> int:
    """How many rows are durable."""
    return sum(len(columns["row"]) for columns in read_columns(out, ("row",)))
