"""Errors, grouped by what the caller may do.

    HeadraceError                 one line to the user, no traceback; exit code on the class
    ├── UsageError          (2)   the command, job file or an argument is wrong: change it and run again
    ├── InputError          (3)   the evidence or data given cannot be used as it is: mend the file
    ├── BusyError           (4)   someone else holds what is needed: wait, or stop the other
    ├── UnreachableError    (5)   a server, socket or job does not answer: start it, or name another
    ├── StorageError        (6)   the disk refuses: make room or choose another place, then run again
    └── JobStopped          (7)   the job stopped before its end and can be gone on with
        └── Interrupted   (130)   … at once, by a second Ctrl-C

Every message says what happened, the value, the limit and what to do. Anything that is not a
`HeadraceError` is a fault in headrace and keeps its traceback (exit code 1). Exit code 0 is success;
8 is an answer, not a failure: `headrace plan` was asked about a server that would not start.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

WOULD_NOT_START = 8  # of `headrace plan`


class HeadraceError(Exception):
    """An expected failure: printed as one line (or one line per problem), without a traceback."""

    exit_code = 1


class UsageError(HeadraceError):
    """The command line, a job file or an argument is wrong; `problems` holds all of them at once."""

    exit_code = 2

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class InputError(HeadraceError):
    """Data or evidence that was given cannot be read or used as it is."""

    exit_code = 3


class BusyError(HeadraceError):
    """Another process holds what is needed; the message says which."""

    exit_code = 4


class UnreachableError(HeadraceError):
    """A server, a socket or a job does not answer."""

    exit_code = 5


class StorageError(HeadraceError):
    """The disk refused a write, or what it holds is damaged beyond repair."""

    exit_code = 6


class JobStopped(HeadraceError):
    """The job ended before every prompt was answered; the same command goes on with it."""

    exit_code = 7


class Interrupted(JobStopped):
    """The job was stopped at once by a second Ctrl-C; what was in flight will be asked again."""

    exit_code = 130


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the known word nearest to `word`, or "" when none is near."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{found[0]}'?" if found else ""
