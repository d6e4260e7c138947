"""One entry of a failure catalogue: an id, how grave it is, the texts that show it, its meaning, its mend."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from headrace.words import Constraint


class Severity(StrEnum):
    """How grave: the server stops or drops work, runs worse than it could, or says something harmless."""

    FAILURE = "failure"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Failure:
    """One entry.

    Attributes:
        id: stable, snake case.
        severity: see `Severity`.
        marks: texts of which one stands in the message. Plain text, compared as written.
        meaning: what it means, one sentence.
        mend: what to do, one sentence; for a note, why nothing needs doing.
        constraint: the constraint that this speaks for, where it speaks for one.
        pattern: groups whose names become values of the event.
    """

    id: str
    severity: Severity
    marks: tuple[str, ...]
    meaning: str
    mend: str
    constraint: Constraint | None = None
    pattern: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.marks, str) or not all(len(mark) > 3 for mark in self.marks):
            raise ValueError(f"{self.id}: marks are texts of more than three characters, in a tuple")

    @cached_property
    def compiled(self) -> re.Pattern[str] | None:
        return re.compile(self.pattern) if self.pattern else None
