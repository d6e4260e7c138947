"""Exports the rows of a job folder as one file: JSON lines, Parquet, or conversations for training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from headrace.drive.store.reader import read_rows
from headrace.drive.store.rows import Row
from headrace.drive.store.segments import encode_rows
from headrace.drive.store.shards import write_parquet
from headrace.durable.disk import Disk, RealDisk, is_full
from headrace.errors import StorageError, UsageError, nearest
from headrace.words import Flag

FORMS = ("jsonl", "parquet", "conversations")
REASONINGS = ("inline", "field", "drop")
_ROWS_AT_ONCE = 64


def export(
    out: Path,
    to: str,
    path: Path,
    *,
    reasoning: str = "field",
    without: Iterable[str] = (),
    force: bool = False,
    progress: Callable[[int], None] | None = None,
    disk: Disk | None = None,
) -> int:
    """Writes the job's durable rows to `path`; returns how many. The file appears whole or not at all.

    Args:
        to: `jsonl` (a `Row` per line), `parquet`, or `conversations`: {"id", "conversations"} per line, the
            turns asked and the answer as the last.
        reasoning: for conversations: `inline` (as <think>…</think> before the answer), `field` (as
            `reasoning_content` of the last turn) or `drop`.
        without: flags (`headrace.words.Flag`) whose rows are left out.
        force: take the place of a file that is there.
        progress: told the rows written so far.

    Raises:
        UsageError: an unknown word, or `path` exists.
        InputError: `out` is not a job folder.
        StorageError: the disk is full, or a shard is damaged.
    """
    unwanted = frozenset(without)
    _check(to, path, reasoning, unwanted, force)
    disk = disk if disk is not None else RealDisk()
    written = 0

    def chunks() -> Iterator[bytes]:
        nonlocal written
        rows = (row for row in read_rows(out) if unwanted.isdisjoint(row.flags))
        while batch := list(islice(rows, _ROWS_AT_ONCE)):
            written += len(batch)
            yield _conversations(batch, reasoning) if to == "conversations" else encode_rows(batch)
            if progress is not None:
                progress(written)

    beside = path.with_name(f".{path.name}.tmp")
    try:
        disk.make_folder(path.parent)
        file = disk.append_open(beside, fresh=True)
        try:
            if to == "parquet":
                write_parquet(chunks(), file)
            else:
                for chunk in chunks():
                    file.write(chunk)
            file.fsync()
        except BaseException:
            disk.unlink(beside)
            raise
        finally:
            file.close()
        disk.replace(beside, path)
        disk.fsync_folder(path.parent)
    except OSError as error:
        if not is_full(error):
            raise StorageError(f"{path} cannot be written: {error}. Name another file") from error
        raise StorageError(
            f"no room for {path} ({error}) after {written:,} rows; {disk.free_bytes(path.parent):,} bytes "
            "are free. Make room, or name a file elsewhere"
        ) from error
    return written


def _check(to: str, path: Path, reasoning: str, without: frozenset[str], force: bool) -> None:
    problems = []
    if to not in FORMS:
        problems.append(f"cannot export to '{to}'; known are {', '.join(FORMS)}.{nearest(to, FORMS)}")
    if reasoning not in REASONINGS:
        known = ", ".join(REASONINGS)
        problems.append(f"reasoning '{reasoning}' is not one of {known}.{nearest(reasoning, REASONINGS)}")
    flags = [flag.value for flag in Flag]
    problems += [
        f"flag '{flag}' is not one of {', '.join(flags)}.{nearest(flag, flags)}"
        for flag in sorted(without - set(flags))
    ]
    if path.exists() and not force:
        problems.append(f"{path} exists ({path.stat().st_size:,} bytes). Name another file, or say --force")
    if problems:
        raise UsageError(problems)


def _conversations(rows: Sequence[Row], reasoning: str) -> bytes:
    return msgspec.json.Encoder().encode_lines([as_conversation(row, reasoning) for row in rows])


def as_conversation(row: Row, reasoning: str) -> dict[str, Any]:
    """The row as {"id", "conversations"}: the turns asked, then the answer."""
    turns: list[dict[str, Any]] = [dict(turn) for turn in row.messages or ()]
    if row.messages is None:
        turns.append({"role": "user", "content": row.prompt or ""})
    answer: dict[str, Any] = {"role": "assistant", "content": row.answer}
    if row.reasoning is not None and reasoning == "inline":
        answer["content"] = f"<think>\n{row.reasoning.strip()}\n</think>\n\n{row.answer}"
    elif row.reasoning is not None and reasoning == "field":
        answer["reasoning_content"] = row.reasoning
    if row.tool_calls is not None:
        answer["tool_calls"] = msgspec.json.decode(row.tool_calls)
    return {"id": row.id, "conversations": [*turns, answer]}
