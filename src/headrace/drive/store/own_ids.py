"""Whether a job's ids are the user's own; decided at the first scan and held to ever after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headrace.drive.job import Job
from headrace.drive.request import key_of_id, own_key
from headrace.drive.sources import read_row
from headrace.drive.store.exclusion import excluded
from headrace.drive.store.identity import Numbers, occurrences, shared
from headrace.drive.store.job_store import Store
from headrace.drive.store.pinned import Identity, Pinned
from headrace.drive.store.reader import read_columns
from headrace.drive.store.records import Keys, Records, as_keys
from headrace.errors import InputError

_CLASHES_SHOWN = 5


def decide_identity(
    store: Store,
    job: Job,
    before: Pinned | None,
    owns: Keys,
    contents: Keys,
    records: Records,
    files: Sequence[Path],
) -> Identity:
    """`own` when every row of the job has an id of its own and no two rows share one, else `hash`.

    Args:
        before: what an earlier scan pinned; its decision stands.
        owns: keys of the own ids, zero where a row has none; unreadable rows have one of theirs.

    Raises:
        InputError: the user named an id column, or ids are pinned as the user's own, and they do not do.
    """
    insisted = [source.name for source in job.sources if source.id_column is not None]
    pinned = before.identity if before is not None else _identity_of_rows(store, owns, contents)
    if pinned is Identity.HASH:
        if insisted:
            store.notes.append(
                f"the rows of {job.out} are known by their content since its first run; the id column is "
                "not kept. To use it as id, give another --out"
            )
        return Identity.HASH
    without = np.flatnonzero((owns == 0).all(axis=1))
    must = bool(insisted) or pinned is Identity.OWN
    if len(without):
        if not must:
            return Identity.HASH
        numbers = np.unique(records["source"][without])
        names = ", ".join(f"'{job.sources[number].name}'" for number in numbers[:_CLASHES_SHOWN])
        why = (
            f"the rows of {job.out} are known by their own ids since its first run"
            if pinned is Identity.OWN
            else f"an id column is named for source '{insisted[0]}'"
        )
        first = records[without[0]]
        raise InputError(
            f"{why}, but {len(without):,} rows of source {names} have no id (the first: row "
            f"{first['row']:,}): ids are the user's own for all sources of a job or for none. "
            "Name --id-column for those too, take them out, or give another --out"
        )
    if not len(owns):
        return Identity.OWN if must else Identity.HASH
    clashing = shared(owns)
    repeated = clashing[_repeats(owns[clashing])] if len(clashing) else clashing
    if not len(repeated):
        return Identity.OWN
    if not must:
        return Identity.HASH
    pairs = _differing(owns, contents, clashing)
    if not pairs:
        return Identity.OWN  # whole rows stand twice: the same id and the same content
    shown = [_say_clash(job, records, files, first, second) for first, second in pairs[:_CLASHES_SHOWN]]
    more = f" and {len(pairs) - len(shown):,} more" if len(pairs) > len(shown) else ""
    way_out = (
        "Give the rows ids of their own, or leave --id-column out: rows are then known by their content"
        if pinned is None
        else "Give the new rows ids of their own, or take another --out"
    )
    raise InputError(
        f"{len(pairs):,} rows have the id of another row but ask something else: {'; '.join(shown)}"
        f"{more}. {way_out}"
    )


def _identity_of_rows(store: Store, owns: Keys, contents: Keys) -> Identity | None:
    """What the rows that a lost ledger left behind are known by; None where there are none."""
    if not store.is_rebuild:
        return None
    for columns in read_columns(store.folder.out, ("id", "sample")):
        pairs = list(zip(columns["id"], columns["sample"], strict=True))
        by_content = as_keys([key for text, _ in pairs if (key := key_of_id(text)) is not None])
        by_own_id = as_keys([own_key(text.removesuffix(f"#{n}") if n else text, n) for text, n in pairs])
        known = int(excluded(by_content, contents).sum()), int(excluded(by_own_id, owns).sum())
        if any(known):
            return Identity.HASH if known[0] >= known[1] else Identity.OWN
    return None


def _repeats(keys: Keys) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return occurrences(keys) > 0


def _differing(owns: Keys, contents: Keys, rows: Numbers) -> list[tuple[int, int]]:
    """(first, other) of rows with one own key and different contents, in the order of the rows."""
    first_of: dict[bytes, int] = {}
    pairs = []
    for row in rows:
        first = first_of.setdefault(owns[row].tobytes(), int(row))
        if (contents[first] != contents[row]).any():
            pairs.append((first, int(row)))
    return pairs


def _say_clash(job: Job, records: Records, files: Sequence[Path], first: int, second: int) -> str:
    record = records[first]
    source = job.sources[record["source"]]
    other = records[second]
    with files[record["file"]].open("rb") as file:
        file.seek(int(record["offset"]))
        own_id = read_row(source, file.read(int(record["length"])), int(record["row"])).own_id
    place = f"{source.name} row {record['row']:,}"
    return f"id {own_id!r} in {place} and in {job.sources[other['source']].name} row {other['row']:,}"
