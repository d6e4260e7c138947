"""Engine versions: reading them, comparing them, and which rules stand for one that nobody read."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """major.minor.patch; a post or development suffix is dropped ("0.5.12.post1" is 0.5.12)."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Version | None:
        """Returns the version at the start of `text` ("v0.5.12", "0.5.12.post1"), or None."""
        found = _NUMBERS.match(text.strip().removeprefix("v"))
        return cls(*(int(part or 0) for part in found.groups())) if found else None

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True, slots=True)
class Rules:
    """The version whose rules are used, and a sentence where that is not the version asked for."""

    version: Version
    told: str  # as the user wrote it, "" where nothing was said
    note: str = ""


def choose_rules(told: str, oldest: Version, newest: Version, engine: str) -> Rules:
    """Returns the rules for the version as told: itself inside the range that was read, else the nearest
    end.
    """
    version = Version.parse(told) if told else None
    if version is None:
        said = f"'{told}' is no version that can be read" if told else "no version was given"
        return Rules(
            newest, told, f"{said}: the rules of {engine} {newest} are used (--engine-version sets it)."
        )
    if version < oldest or version > newest:
        used = oldest if version < oldest else newest
        return Rules(
            used,
            told,
            f"{engine} {told} lies outside the versions read ({oldest} to {newest}): the rules of "
            f"{used} are used.",
        )
    return Rules(version, told)
