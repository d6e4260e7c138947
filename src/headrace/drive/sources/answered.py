"""What a file says was answered elsewhere: the keys that `--exclude FILE` leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.drive.job import Job, Source
from headrace.drive.prompts import PromptRow
from headrace.drive.request import build_request, content_key, key_of_id, own_key, prompt_key
from headrace.drive.sources.paths import expand
from headrace.drive.sources.reading import NoRows, peek, rows_as_objects
from headrace.drive.sources.shapes import ID_COLUMNS, Shape, read_prompt
from headrace.drive.sources.turns import RowProblem, read_chat
from headrace.errors import InputError, UsageError

_HEADRACE_COLUMNS = frozenset(("id", "source", "row", "sample"))


def answered_keys(
    path: Path, job: Job, on_problem: Callable[[str], None] = lambda problem: None
) -> Iterator[bytes]:
    """Yields the 16-byte keys of what the file's rows answer; some twice.

    A row is known by the prompt that it asks (`prompt_key`), whatever its sampling and its id were; one that
    asks nothing, in a list of ids, by the id in the column that the job names, in `custom_id` or in `id`
    (`own_key`). An id that headrace made of what was asked (`content_key`) tells that as well.

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
            keys = _headrace_keys(row) if row.keys() >= _HEADRACE_COLUMNS else _keys(row, job, readers)
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


def _headrace_keys(row: Mapping[str, Any]) -> set[bytes]:
    """The keys of a row of a headrace data set, which holds what was sent."""
    messages = row.get("messages")
    text = row["prompt"] if isinstance(row.get("prompt"), str) else None
    if isinstance(row.get("conversations"), list):
        try:
            messages = read_chat(row["conversations"], "conversations")
        except RowProblem:
            messages = None
    return keys_of_row(_as_id(row["id"]), messages if _is_chat(messages) else None, text)


def keys_of_row(
    own: str | None, messages: Iterable[Mapping[str, Any]] | None, text: str | None
) -> set[bytes]:
    """The keys of a row that headrace wrote: of its prompt, and of its id where that was made of the prompt.

    Where the row keeps no prompt, and its id is the user's own, that is the key.
    """
    prompt = prompt_key(messages, text)
    content = key_of_id(own) if own is not None else None
    keys = {key for key in (prompt, content) if key is not None}
    return keys or ({own_key(own)} if own is not None else set())


def _is_chat(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(turn, Mapping) for turn in value)


def _keys(row: Mapping[str, Any], job: Job, readers: list[tuple[Source, Shape]]) -> set[bytes]:
    """The keys of a row that someone else wrote."""
    keys: set[bytes] = set()
    for source, shape in readers:
        try:
            asked = read_prompt(row, shape, 0)
        except RowProblem:
            continue
        keys.update(_asked(asked, source, job))
    named = [source.id_column for source in job.sources if source.id_column is not None]
    ids = [own for column in (*named, *ID_COLUMNS) if (own := _as_id(row.get(column))) is not None]
    if not keys:
        keys.update(map(own_key, ids))
    keys.update(key for own in ids if (key := key_of_id(own)) is not None)
    return keys


def _asked(asked: PromptRow, source: Source, job: Job) -> set[bytes]:
    """The key of the row's prompt as the job would ask it: with the source's system prompt."""
    try:
        request = build_request(asked, source, job)
    except InputError:  # the job cannot ask this row, so it has no such prompt
        return set()
    key = prompt_key(request.messages, request.text)
    return {key if key is not None else content_key(request)}


def _as_id(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None
