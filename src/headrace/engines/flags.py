"""The command-line flags of an engine by version: which exist, how many words they take, what came after
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headrace.engines.versions import Version
from headrace.errors import nearest


@dataclass(frozen=True, slots=True)
class Flag:
    """One spelling of a flag.

    `kind` is `switch` (no value), `value`, `optional` (with or without a value) or `list` (any number of
    them). `field` is the setting it fills: spellings of one setting share it. `until` is None while the
    newest version read still has it.
    """

    name: str
    kind: str
    field: str
    since: Version
    until: Version | None

    def known_to(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


@dataclass(frozen=True)
class FlagTable:
    """All flags of an engine, read from its `flags.tsv`; `successors` says what replaced a flag.

    Fields are unified over successors: `--mamba-scheduler-strategy` and `--mamba-radix-cache-strategy` fill
    one setting, whichever was written.
    """

    engine: str
    path: Path
    successors: Mapping[str, str]
    abbreviates: bool = True  # argparse accepts an unambiguous beginning of a flag
    underscores: bool = False  # --max_num_seqs is --max-num-seqs

    @cached_property
    def flags(self) -> Mapping[str, Flag]:
        """Every spelling, by name."""
        found: dict[str, Flag] = {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            name, kind, field, since, until = line.split("\t")
            first, last = Version.parse(since), Version.parse(until) if until else None
            if first is None:
                raise ValueError(f"{self.path.name}: no version in the line {line!r}")
            found[name] = Flag(name, kind, field, first, last)
        return found

    def field(self, name: str) -> str:
        """Returns the setting that a spelling fills, that of its latest successor where it was renamed."""
        seen: set[str] = set()
        while (successor := self.successors.get(name)) in self.flags and name not in seen:
            seen.add(name)
            name = successor or name
        flag = self.flags.get(name)
        return flag.field if flag else name.lstrip("-").replace("-", "_")

    def find(self, name: str, version: Version) -> Flag | None:
        """Returns the flag of that spelling, or the one flag of this version that it abbreviates; None if
        neither.
        """
        if self.underscores and name.startswith("--"):
            name = "--" + name[2:].replace("_", "-")
        if name in self.flags:
            return self.flags[name]
        if not self.abbreviates or not name.startswith("--") or len(name) < 4:
            return None
        known = [
            flag for flag in self.flags.values() if flag.name.startswith(name) and flag.known_to(version)
        ]
        return known[0] if len({flag.field for flag in known}) == 1 else None

    def complaint(self, name: str, version: Version) -> str | None:
        """Returns why this version refuses the flag, with the way out; None where it knows it."""
        flag = self.find(name, version)
        if flag is None:
            near = nearest(name, (f.name for f in self.flags.values() if f.known_to(version)))
            return f"{name} is no flag of {self.engine} {version}: the server refuses to start.{near}"
        if flag.known_to(version):
            return None
        if version < flag.since:
            older = next(
                (old for old, new in self.successors.items() if new == name and old in self.flags), None
            )
            way_out = (
                f" Write {older}."
                if older and self.flags[older].known_to(version)
                else " Leave it out, or upgrade."
            )
            came = f"{name} came with {self.engine} {flag.since}"
            return f"{came}; {version} does not know it and refuses to start.{way_out}"
        successor = self.successors.get(name)
        way_out = f" Write {successor}." if successor else " Leave it out."
        gone = f"{name} was removed after {self.engine} {flag.until}"
        return f"{gone}; {version} refuses to start with it.{way_out}"

    def deprecation(self, name: str, version: Version) -> str | None:
        """Returns a note where this version still takes the flag but has a successor for it."""
        flag, successor = self.flags.get(name), self.successors.get(name)
        if flag is None or not successor or not flag.known_to(version):
            return None
        new = self.flags.get(successor.split("=")[0].split(" ")[0])
        if new is None or not new.known_to(version):
            return None
        return f"{name} is the old spelling of {successor} in {self.engine} {version}."
