"""From what the user names (files, globs, folders) to the list of files; and how a file is known again."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.drive.sources.formats import format_of, known_suffixes
from headrace.errors import InputError, UsageError, nearest


class FileFingerprint(msgspec.Struct, frozen=True):
    """What tells whether a file is still the one that was read. Times in nanoseconds since the epoch."""

    path: str
    size: int
    mtime_ns: int
    inode: int


def fingerprint(path: Path) -> FileFingerprint:
    """The file's fingerprint as it is now.

    Raises:
        InputError: the file is gone or may not be looked at.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise InputError(f"{path} is not to be had: {error.strerror}. Put it back") from error
    return FileFingerprint(str(path), found.st_size, found.st_mtime_ns, found.st_ino)


def expand(paths: str | Path | Sequence[str | Path]) -> tuple[Path, ...]:
    """The files that `paths` name, absolute, each once, in the order named.

    A folder stands for every file of a known format below it, by name; hidden ones are left out, and so are
    job folders of headrace, whose files are answers. A glob (`*`, `?`, `[…]`, `**`) stands for the files it
    matches, by name, with the same left out below its fixed part; a file that is really called so wins.

    Raises:
        UsageError: with every problem: a missing file, an empty glob or folder, an unknown suffix.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    files: dict[Path, None] = {}
    problems: list[str] = []
    for given in paths:
        path = Path(os.path.abspath(os.path.expanduser(given)))
        if path.is_dir():
            found = _files_below(path)
            if is_job_folder(path):
                problems.append(
                    f"folder {given} is the output of a headrace job, which holds answers and no prompts. "
                    f"Name the prompts' own folder, or the files: {given}/completions"
                )
                continue
            if not found:
                problems.append(f"folder {given} holds no prompts. Known are {known_suffixes()}")
        elif path.exists():
            found = [path]
        elif glob.has_magic(str(given)):
            found = _files_matching(path)
            if not found:
                problems.append(f"no file matches {given}.{_near_name(path)} Check the pattern")
        else:
            problems.append(f"{given} does not exist.{_near_name(path)}")
            continue
        problems += [problem for file in found if (problem := _unusable(file))]
        files.update(dict.fromkeys(found))
    if problems:
        raise UsageError(problems)
    return tuple(files)


def _files_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [
            name for name in folders if not name.startswith(".") and not is_job_folder(Path(root, name))
        ]
        found += [Path(root, name) for name in names if not name.startswith(".")]
    return sorted(file for file in found if format_of(file) is not None and file.is_file())


def _files_matching(pattern: Path) -> list[Path]:
    fixed = pattern
    while glob.has_magic(str(fixed)):
        fixed = fixed.parent
    jobs: dict[Path, bool] = {fixed: False}  # by folder: whether it lies in a job folder below the fixed part

    def in_job(folder: Path) -> bool:
        if folder not in jobs:
            jobs[folder] = in_job(folder.parent) or is_job_folder(folder)
        return jobs[folder]

    names = sorted(glob.glob(str(pattern), recursive=True))
    return [path for path in map(Path, names) if path.is_file() and not in_job(path.parent)]


def is_job_folder(folder: Path) -> bool:
    """True for the output folder of a job: one that has its completions and its lock or ledger."""
    marks = ("lock", "ledger.db", "ledger-at")
    return (folder / "completions").is_dir() and any((folder / mark).is_file() for mark in marks)


def _unusable(file: Path) -> str | None:
    if not file.is_file():
        return f"{file} is not a regular file; headrace reads a source more than once. Write it to a file"
    if format_of(file) is None:
        return (
            f"{file}: the suffix '{''.join(file.suffixes[-2:])}' is not known. Known are {known_suffixes()}"
        )
    return None


def _near_name(path: Path) -> str:
    try:
        names = os.listdir(path.parent)
    except OSError:
        return f" Nor does its folder {path.parent}."
    return nearest(path.name, names)
