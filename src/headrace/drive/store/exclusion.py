"""Prompts answered elsewhere, in job folders or files, which a job leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.drive.job import Job
from headrace.drive.sources import expand, fingerprint
from headrace.drive.sources.answered import answered_keys, keys_of_row
from headrace.drive.store.folder import JobFolder
from headrace.drive.store.identity import match
from headrace.drive.store.pinned import FilePrint
from headrace.drive.store.reader import read_columns
from headrace.drive.store.records import Keys, as_keys

_KEYS_AT_ONCE = 8192


def exclusion_prints(paths: Sequence[Path]) -> list[FilePrint]:
    """Fingerprints of all files whose rows are left out, so that a change of them is seen."""
    prints = []
    for path in paths:
        folder = JobFolder(path)
        if is_job_folder(path):
            files = [*folder.shards().values(), *folder.segments().values()]
        else:
            files = list(expand([path]))
        for file in files:
            found = fingerprint(file)
            prints.append(FilePrint(0, found.path, found.size, found.mtime_ns, found.inode))
    return prints


def excluded(keys: Keys, known: Keys) -> npt.NDArray[np.bool_]:
    """For each of `keys`, whether it is among the `known` ones."""
    if not len(known) or not len(keys):
        return np.zeros(len(keys), dtype=bool)
    wanted, inverse = np.unique(keys, axis=0, return_inverse=True)
    distinct = np.unique(known, axis=0)
    first = np.zeros(max(len(distinct), len(wanted)), dtype=np.uint32)
    found: npt.NDArray[np.bool_] = match(distinct, first[: len(distinct)], wanted, first[: len(wanted)]) >= 0
    return found[inverse.reshape(-1)]


def read_excluded(job: Job, notes: list[str]) -> Keys:
    """The keys, of prompts, contents and ids alike, of what `job.exclude` (job folders and files) answers.

    Folders and files have one rule: a row is known by the prompt that it asks. Ids count where there is none.

    Args:
        notes: told how many rows of a file leave nothing out, and why the first of them does not.

    Raises:
        InputError: a file cannot be read.
        UsageError: a path is neither a job folder nor a file of rows.
    """
    found: list[Keys] = [as_keys([])]
    for path in job.exclude:
        if is_job_folder(path):
            for columns in read_columns(path, ("id", "messages", "prompt")):
                rows = zip(columns["id"], columns["messages"], columns["prompt"], strict=True)
                found.append(as_keys([key for row in rows for key in keys_of_row(*row)]))
            continue
        problems: list[str] = []
        keys = answered_keys(path, job, problems.append)
        while chunk := list(islice(keys, _KEYS_AT_ONCE)):
            found.append(as_keys(chunk))
        if problems:
            notes.append(f"--exclude: {len(problems):,} rows leave nothing out; the first: {problems[0]}")
    return np.concatenate(found)


def is_job_folder(path: Path) -> bool:
    """True for what was given as --out."""
    return JobFolder(path).completions.is_dir()
