"""What a file says was answered elsewhere: the keys that `--exclude FILE` leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.drive.job import Job, Source
from headrace.drive.prompts import PromptRow
from headrace.drive.request import build_request, content_key, key_of_id, own_key
from headrace.drive.sources.paths import expand
from headrace.drive.sources.reading import NoRows, peek, rows_as_objects
from headrace.drive.sources.shapes import ID_COLUMNS, Shape, read_prompt
from headrace.drive.sources.turns import RowProblem, read_chat
from headrace.errors import InputError, UsageError

_HEADRACE_COLUMNS = frozenset(("id", "source", "row", "sample"))


def answered_keys(
    path: Path, job: Job, on_problem: Callable[[str], None] = lambda problem: None
) -> Iterator[bytes]:
    """Yields the 16-byte keys (of `content_key` and `own_key`) of what the file's rows answer; some twice.

    A row that headrace wrote is known by its id. Any other row is known by what it asks, with the settings
    of each of the job's sources (its first sample); by the value of an id column that the job names; and,
    where it asks nothing, by its `custom_id` or `id`.

    Args:
        path: a file, or a folder or glob of files.
        on_problem: told of each row that gives no key; such a row leaves nothing out.

    Raises:
        UsageError: the file is missing or its suffix not known.
        InputError: the file cannot be read.
    """
    for file in expand(path):
        try:
            readers = _readers(file, job)
        except NoRows:
            continue
        for row, problem in rows_as_objects(file):
            if row is None:
                on_problem(f"{file}: {problem}")
                continue
            keys = _headrace_keys(row, job) if row.keys() >= _HEADRACE_COLUMNS else _keys(row, job, readers)
            if not keys:
                on_problem(f"{file}: a row with {', '.join(list(row)[:20])} has neither a prompt nor an id")
            yield from keys


def _readers(file: Path, job: Job) -> list[tuple[Source, Shape]]:
    """For each source of the job, how the file's rows are read as its prompts."""
    readers: list[tuple[Source, Shape]] = []
    for source in job.sources:
        for columns in (source.columns, {}):
            try:
                shape = peek(Source(source.name, (file,), columns=columns))
            except UsageError:
                continue
            readers.append((source, shape))
            break
    return readers


def _headrace_keys(row: Mapping[str, Any], job: Job) -> set[bytes]:
    """The keys of a row of a headrace data set."""
    own = _as_id(row["id"])
    sample = row["sample"] if isinstance(row["sample"], int) else 0
    keys: set[bytes] = set()
    if own is None:
        return keys
    if (key := key_of_id(own)) is not None:
        keys.add(key)
    keys.add(own_key(own.removesuffix(f"#{sample}") if sample else own, sample))
    if key is not None:
        return keys
    try:
        asked = (
            PromptRow(0, text=row["prompt"])
            if isinstance(row.get("prompt"), str)
            else PromptRow(0, messages=read_chat(row.get("messages") or row.get("conversations"), "messages"))
        )
    except RowProblem:
        return keys
    for source in job.sources:
        keys.update(_asked(asked, source, job, sample))
    return keys


def _keys(row: Mapping[str, Any], job: Job, readers: list[tuple[Source, Shape]]) -> set[bytes]:
    """The keys of a row that someone else wrote."""
    keys: set[bytes] = set()
    for source, shape in readers:
        try:
            asked = read_prompt(row, shape, 0)
        except RowProblem:
            continue
        keys.update(_asked(asked, source, job, 0))
    columns = {source.id_column for source in job.sources if source.id_column is not None}
    if not keys:
        columns.update(ID_COLUMNS)
    for own in (_as_id(row.get(column)) for column in columns):
        if own is not None:
            keys.add(own_key(own))
    for own in (_as_id(row.get(column)) for column in ID_COLUMNS):
        if own is not None and (key := key_of_id(own)) is not None:
            keys.add(key)
    return keys


def _asked(asked: PromptRow, source: Source, job: Job, sample: int) -> set[bytes]:
    try:
        return {content_key(build_request(asked, source, job, sample), sample)}
    except InputError:  # the job cannot ask this row, so it has no such prompt
        return set()


def _as_id(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None
