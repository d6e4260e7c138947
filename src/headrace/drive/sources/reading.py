"""A source, row by row: look at its first rows, scan all of it, read one row again."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from headrace.drive.job import Source
from headrace.drive.prompts import Locator, PromptRow
from headrace.drive.sources.file_rows import DamagedFile, FileRow
from headrace.drive.sources.formats import format_of, is_in_place, rows_of
from headrace.drive.sources.shapes import Shape, read_prompt, shape_for
from headrace.drive.sources.turns import RowProblem, kind_of
from headrace.errors import InputError, UsageError

PEEK_ROWS = 100
PEEK_BYTES = 1 << 20
DEPTH_LIMIT = 100  # brackets within brackets; below what Python's recursion limit lets JSON codecs take
SPOOL_FILE = 0


class Spool(Protocol):
    """Where rows go that cannot be read again by their offset in the source."""

    def append(self, raw: bytes) -> int:
        """Keeps one JSON object (no newline in it); returns its byte offset."""
        ...


class NoSpool:
    """Keeps nothing: for looking at rows that will not be read again."""

    def append(self, raw: bytes) -> int:
        return 0


class NoRows(InputError):
    """A source without a single row."""


class ScannedRow(NamedTuple):
    """One row of a source: what it asks, or what is wrong with it. Exactly one of the two is set.

    Attributes:
        row: 1-based, counted over the source's files in order.
        locator: where its bytes lie; length 0 where there is nothing to read again.
    """

    prompt: PromptRow | None
    error: str | None
    row: int
    locator: Locator


def peek(source: Source) -> Shape:
    """The shape of the source, from at most PEEK_ROWS rows or PEEK_BYTES of it.

    Raises:
        UsageError: no shape is recognised, or `columns`/`id_column` name columns that are not there.
        InputError: a file cannot be read, or there is no readable row.
    """
    rows: list[dict[str, Any]] = []
    first_error: str | None = None
    seen_rows = seen_bytes = 0
    for path, row in _file_rows(source):
        try:
            rows.append(_decode(row))
        except RowProblem as problem:
            first_error = first_error or f"{_where(seen_rows + 1, path, row.place)}: {problem}"
        seen_rows += 1
        seen_bytes += row.length
        if seen_rows >= PEEK_ROWS or seen_bytes >= PEEK_BYTES:
            break
    if rows:
        return shape_for(rows, source)
    files = ", ".join(map(str, source.paths[:3])) + (" …" if len(source.paths) > 3 else "")
    if first_error is None:
        raise NoRows(f"source '{source.name}' ({files}) has no rows. Check the file, or take the source out")
    raise InputError(
        f"source '{source.name}' ({files}): none of its first {seen_rows} rows can be read; {first_error}. "
        "Check that the suffix says what the file is"
    )


def scan(
    source: Source, file_numbers: Mapping[Path, int], spool: Spool, *, shape: Shape | None = None
) -> Iterator[ScannedRow]:
    """Yields every row of the source in file order, at most `source.limit`, in bounded memory.

    What is wrong with a row comes as that row's error. When a file breaks off (cut-off compression, a quote
    never closed), that is one more row with an error, and the next file goes on.

    Args:
        file_numbers: for the files that `is_in_place`, their numbers in the job's file table.
        spool: takes the rows of all other files (file 0).
        shape: how rows are read; None = as `peek` finds.

    Raises:
        UsageError, InputError: as `peek`; or a later file cannot be opened, or the disk fails.
    """
    shape = shape if shape is not None else shape_of(source)
    rows = itertools.islice(_file_rows(source), source.limit)
    here: Path | None = None
    in_place = False
    file_number = SPOOL_FILE
    for number, (path, row) in enumerate(rows, 1):
        if path is not here:
            here = path
            in_place = is_in_place(path)
            file_number = file_numbers[path] if in_place else SPOOL_FILE
        prompt = error = None
        try:
            prompt = read_prompt(_decode(row), shape, number)
        except RowProblem as problem:
            error = f"{_where(number, path, row.place)}: {problem}"
        if in_place:
            locator = Locator(file_number, row.offset, row.length)
        else:
            length = len(row.raw)
            locator = Locator(SPOOL_FILE, spool.append(row.raw) if length else 0, length)
        yield ScannedRow(prompt, error, number, locator)


def read_row(source: Source, raw: bytes, row: int, *, shape: Shape | None = None) -> PromptRow:
    """What a row asks, from the bytes that its locator points at: the same as `scan` gave.

    Raises:
        InputError: the bytes do not (or no longer) hold a row of the source's shape.
    """
    try:
        return read_prompt(decode_object(raw), shape if shape is not None else shape_of(source), row)
    except (RowProblem, UsageError) as problem:
        raise InputError(f"row {row:,}: {problem}") from problem


# The shapes of the sources of this process. A source is told by identity (it is not hashable), and is kept
# here so that its identity stays its own.
_shapes: dict[int, tuple[Source, Shape]] = {}
_SHAPES_LIMIT = 256


def shape_of(source: Source) -> Shape:
    """The source's shape as `peek` finds it, looked for once per process. Raises what `peek` raises."""
    known = _shapes.get(id(source))
    if known is not None:
        return known[1]
    shape = peek(source)
    while len(_shapes) >= _SHAPES_LIMIT:
        del _shapes[next(iter(_shapes))]
    _shapes[id(source)] = (source, shape)
    return shape


def decode_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that `raw` holds; of a key that stands twice, the last.

    Raises:
        RowProblem: it is no JSON, no object, nested too deep, or holds half a surrogate pair.
    """
    try:
        value = _decode_json(raw)
    except msgspec.DecodeError as error:
        raise RowProblem(f"not JSON: {error}. It begins {raw[:60].decode(errors='replace')!r}") from error
    except RecursionError as error:
        raise RowProblem(_too_deep()) from error
    if type(value) is not dict:
        raise RowProblem(f"the row is {kind_of(value)}, not an object with named columns")
    if raw.count(b"[") + raw.count(b"{") > DEPTH_LIMIT and _depth(raw) > DEPTH_LIMIT:
        raise RowProblem(_too_deep())
    if b"\\u" in raw and _SURROGATE.search(raw) is not None:
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError as error:
            raise RowProblem("the text holds half a surrogate pair (\\ud800 alone). Mend it") from error
    return value


_decode_json: Callable[[bytes], Any] = msgspec.json.Decoder().decode
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


def _depth(raw: bytes) -> int:
    depth = deepest = 0
    for token in _BRACKETS.finditer(raw):
        word = token.group()
        if word in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif word in (b"]", b"}"):
            depth -= 1
    return deepest


def _too_deep() -> str:
    return f"the row is nested more than {DEPTH_LIMIT} deep. Flatten it, or take it out"


def _decode(row: FileRow) -> dict[str, Any]:
    if row.error is not None:
        raise RowProblem(row.error)
    return decode_object(row.raw)


def rows_as_objects(path: Path) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Yields each row of a file as (object, ""), or as (None, what is wrong with it)."""
    for number, (_, row) in enumerate(_file_rows(Source(path.name, (path,))), 1):
        try:
            yield _decode(row), ""
        except RowProblem as problem:
            yield None, f"{_where(number, path, row.place)}: {problem}"


def _file_rows(source: Source) -> Iterator[tuple[Path, FileRow]]:
    """The rows of all files; a file that breaks off ends with a row that says so."""
    for path in source.paths:
        place = 0
        try:
            for row in rows_of(path):
                place = row.place
                yield path, row
        except DamagedFile as damage:
            yield path, FileRow(b"", str(damage), place + 1, 0, 0)


def _where(number: int, path: Path, place: int) -> str:
    found = format_of(path)
    return f"row {number:,} ({path.name}, {found[0].place_word if found else 'row'} {place:,})"
