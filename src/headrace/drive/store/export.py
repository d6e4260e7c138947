"""Exports the rows of a job folder as one file: JSON lines, Parquet, or conversations for training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from headrace.drive.store.folder import JobFolder
from headrace.drive.store.job_store import LedgerAt
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
# what lies in OUT itself and is no export
_OWN_NAMES = {
    "job.json": "its description",
    "ledger-at": "where its ledger lies",
    "lock": "its lock",
    "status.json": "its status",
    "control.sock": "its control socket",
    "run.log": "its log",
}


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
        UsageError: an unknown word; or `path` exists, is no regular file, or is the job's own.
        InputError: `out` is not a job folder.
        StorageError: the disk is full, or a shard is damaged.
    """
    unwanted = frozenset(without)
    _check(to, reasoning, unwanted, _faults_of_target(out, path, force))
    disk = disk if disk is not None else RealDisk()
    written = 0

    def chunks() -> Iterator[bytes]:
        nonlocal written
        for rows, chunk in _chunks(out, to, reasoning, unwanted):
            written += rows
            yield chunk
            if progress is not None:
                progress(written)

    beside = path.with_name(f".{path.name}.tmp")
    try:
        disk.make_folder(path.parent)
        file = disk.append_open(beside, fresh=True)
        try:
            if to == "parquet":
                write_parquet(chunks(), file, out)
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


def export_to_stream(
    out: Path, to: str, stream: BinaryIO, *, reasoning: str = "field", without: Iterable[str] = ()
) -> int:
    """Writes the job's durable rows to a stream, as `export` would to a file; returns how many.

    Raises:
        UsageError: an unknown word, or `parquet`, whose index stands at its end and begins at its beginning.
        InputError: `out` is not a job folder.
        OSError: as the stream says.
    """
    unwanted = frozenset(without)
    faults = (
        ["Parquet is written to a file, not to a stream: name one with --file"] if to == "parquet" else []
    )
    _check(to, reasoning, unwanted, faults)
    written = 0
    for rows, chunk in _chunks(out, to, reasoning, unwanted):
        stream.write(chunk)
        written += rows
    stream.flush()
    return written


def _chunks(out: Path, to: str, reasoning: str, unwanted: frozenset[str]) -> Iterator[tuple[int, bytes]]:
    """(rows, lines of them), a few rows at a time."""
    rows = (row for row in read_rows(out) if unwanted.isdisjoint(row.flags))
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        yield len(batch), _conversations(batch, reasoning) if to == "conversations" else encode_rows(batch)


def _check(to: str, reasoning: str, without: frozenset[str], faults: Sequence[str]) -> None:
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
    problems += faults
    if problems:
        raise UsageError(problems)


def _faults_of_target(out: Path, path: Path, force: bool) -> list[str]:
    """Why no export may lie there: it would take the place of what is no file, or is the job's own."""
    try:
        own = _job_path(out, path) or _job_path(out, path.resolve())
        is_there = path.is_symlink() or path.exists()
        if own is not None:
            return [f"{path} is the job's own ({own}); name a file elsewhere"]
        if is_there and not path.is_file():
            kind = "a folder" if path.is_dir() else "a link that leads nowhere" if not path.exists() else None
            return [f"{path} is {kind or 'a device, pipe or socket'}, no regular file; name another file"]
        if is_there and not force:
            return [f"{path} exists ({path.stat().st_size:,} bytes). Name another file, or say --force"]
    except (OSError, ValueError, RuntimeError) as error:  # names too long, NULs, links in a circle
        return [f"{str(path)[:200]!r} is no place for a file: {error}. Name another"]
    return []


def _job_path(out: Path, path: Path) -> str | None:
    """What of the job the path is or lies in; None where it is nothing of it."""
    folder = JobFolder(out.resolve())
    place = path.parent.resolve() / path.name
    for own in folder.folders()[1:]:
        if place == own or own in place.parents:
            return f"it belongs to {own.name}/"
    ledgers = [folder.ledger]
    try:
        ledgers.append(Path(msgspec.json.decode(folder.ledger_at.read_bytes(), type=LedgerAt).path))
    except (OSError, msgspec.DecodeError):
        pass  # the ledger lies in OUT
    for ledger in ledgers:
        if place.parent == ledger.parent and place.name.startswith(ledger.name):
            return "the ledger"
    named = _OWN_NAMES.get(place.name.removesuffix(".tmp"))
    return named if place.parent == folder.out else None


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
