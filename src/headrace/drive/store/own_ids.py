"""Whether a job's ids are the user's own; decided at the first scan and held to ever after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.drive.job import Job
from headrace.drive.request import key_of_id, own_key
from headrace.drive.sources import read_row
from headrace.drive.store.exclusion import excluded
from headrace.drive.store.identity import Numbers, match, occurrences, shared
from headrace.drive.store.job_store import Store
from headrace.drive.store.pinned import Identity, Pinned
from headrace.drive.store.reader import read_columns
from headrace.drive.store.records import Keys, Records, as_keys
from headrace.errors import InputError

_CLASHES_SHOWN = 5
_SAMPLE_DIGITS = 5  # at most 10,000 samples


def decide_identity(
    store: Store,
    job: Job,
    before: Pinned | None,
    owns: Keys,
    contents: Keys,
    records: Records,
    files: Sequence[Path],
    sharp: Sequence[tuple[int, bytes]] = (),
) -> Identity:
    """`own` when every row of the job has an id of its own and no two rows share one, else `hash`.

    Args:
        before: what an earlier scan pinned; its decision stands.
        owns: keys of the own ids, zero where a row has none; unreadable rows have one of theirs.
        sharp: rows whose own id looks like that of a further sample (`a#1`): the row, and the key which that
            sample (1 of `a`) would have.

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
    times = occurrences(owns[clashing])
    repeated = clashing[times > 0]
    if len(repeated) and not must:
        return Identity.HASH
    pairs = _differing(owns, contents, clashing)
    if not pairs:  # whole rows may stand twice: the same id and the same content
        derived = _derived_clash(job, owns, records, files, repeated, times[times > 0], sharp)
        if derived is None:
            return Identity.OWN
        if not must:
            return Identity.HASH
        raise InputError(derived)
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


def sample_key(own_id: str) -> bytes | None:
    """The key of the sample that an id like `a#1` would be taken for; None for all other ids."""
    base, _, number = own_id.rpartition("#")
    if number.isascii() and number.isdigit() and len(number) <= _SAMPLE_DIGITS and number[0] != "0":
        return own_key(base, int(number))
    return None


def _derived_clash(
    job: Job,
    owns: Keys,
    records: Records,
    files: Sequence[Path],
    repeated: Numbers,
    times: npt.NDArray[np.uint32],
    sharp: Sequence[tuple[int, bytes]],
) -> str | None:
    """What to say of the first row whose own id is the one that headrace gives to another row, if any.

    Repeats of a row get `-1`, `-2`, … behind their id, further samples `#1`, `#2`, …
    """
    found: list[tuple[int, int, str]] = []  # row with the id of its own, the other row, the id
    if sharp:
        there = _positions(owns, [key for _, key in sharp])
        for (row, _), other in zip(sharp, there, strict=True):
            if other >= 0:
                found.append((row, other, _own_id_of(job, records, files, row)))
    wanted: list[tuple[int, str, bytes]] = []
    for row, occurrence in zip(repeated.tolist(), times.tolist(), strict=True):
        if not files or not records["length"][row]:
            continue  # an unreadable row, which no other is equal to
        sample = int(records["sample"][row])
        derived = f"{_own_id_of(job, records, files, row)}-{occurrence}"
        wanted.append((row, derived, own_key(derived, sample)))
        if sample:
            wanted.append((row, f"{derived}#{sample}", own_key(f"{derived}#{sample}")))
    if wanted:
        there = _positions(owns, [key for _, _, key in wanted])
        found += [
            (other, row, text) for (row, text, _), other in zip(wanted, there, strict=True) if other >= 0
        ]
    if not found:
        return None
    row, other, text = found[0]
    more = f"; {len(found) - 1:,} more clash so" if len(found) > 1 else ""
    return (
        f"id {text!r} is the own id of {_place(job, records, row)}, and the one that "
        f"{_place(job, records, other)} gets as a repeat (-1, -2, …) or further sample (#1, #2, …) of its "
        f"id{more}. Rename such ids, take the repeated rows out, or leave --id-column out"
    )


def _positions(owns: Keys, keys: list[bytes]) -> list[int]:
    """For each key the first row that has it, or -1."""
    wanted, inverse = np.unique(as_keys(keys), axis=0, return_inverse=True)
    candidates = np.flatnonzero(np.isin(owns[:, 1], wanted[:, 1]))
    _, first = np.unique(owns[candidates], axis=0, return_index=True)
    rows = candidates[first]
    none = np.zeros(max(len(rows), len(wanted)), dtype=np.uint32)
    at = match(owns[rows], none[: len(rows)], wanted, none[: len(wanted)])
    found = np.where(at >= 0, rows[at] if len(rows) else -1, -1)
    positions: list[int] = found[inverse.reshape(-1)].tolist()
    return positions


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
    own_id = _own_id_of(job, records, files, first)
    return f"id {own_id!r} in {_place(job, records, first)} and in {_place(job, records, second)}"


def _own_id_of(job: Job, records: Records, files: Sequence[Path], row: int) -> str:
    record = records[row]
    with files[record["file"]].open("rb") as file:
        file.seek(int(record["offset"]))
        raw = file.read(int(record["length"]))
    return read_row(job.sources[record["source"]], raw, int(record["row"])).own_id or ""


def _place(job: Job, records: Records, row: int) -> str:
    record = records[row]
    return f"{job.sources[record['source']].name} row {record['row']:,}"
