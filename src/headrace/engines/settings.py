"""What an engine runs with: every setting's value and where it came from, and what it would say to the
line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.engines.flags import FlagTable
from headrace.engines.launch_line import LaunchLine
from headrace.engines.versions import Rules
from headrace.quantities import Origin, Quantity

Value = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One resolved value. `source` is a phrase: the flag, the default's rule, the model's config."""

    value: Value
    origin: Origin
    source: str

    def quantity(self, unit: str = "") -> Quantity:
        """Returns a numeric setting as a quantity. Raises ValueError for text."""
        if isinstance(self.value, str) or self.value is None:
            raise ValueError(f"the setting is {self.value!r}, not a number ({self.source})")
        return Quantity(float(self.value), unit, self.origin, self.source)

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "origin": str(self.origin), "source": self.source}


class NoticeKind(StrEnum):
    """How much a notice matters."""

    REFUSAL = "refusal"  # the server would not start
    WARNING = "warning"  # it starts, but not as the line reads
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to say about a launch line: what, and the way out."""

    kind: NoticeKind
    text: str


@dataclass(frozen=True)
class EngineSettings:
    """The line, the version whose rules were applied, the resolved values and the notices."""

    engine: str
    rules: Rules
    line: LaunchLine
    values: Mapping[str, Setting]
    notices: tuple[Notice, ...]

    def __getitem__(self, name: str) -> Value:
        return self.values[name].value

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why the server would not start; empty where it would."""
        return tuple(notice.text for notice in self.notices if notice.kind is NoticeKind.REFUSAL)

    def to_json(self) -> dict[str, Any]:
        """Returns engine, version, the line, the values with their origin, and the notices."""
        return {
            "engine": self.engine,
            "engine_version": self.rules.told or str(self.rules.version),
            "rules_of": str(self.rules.version),
            "flags": self.line.text(),
            "values": {name: setting.to_json() for name, setting in self.values.items()},
            "notices": [{"kind": str(n.kind), "text": n.text} for n in self.notices],
        }


_SUFFIXES = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,
    "T": 1 << 40,
}


def _counted(text: str) -> int:
    """A whole number, with vLLM's suffixes: 25k is 25,000, 25K is 25,600, 4GiB is in bytes."""
    plain = text.removesuffix("B").removesuffix("i")
    if plain and plain[-1] in _SUFFIXES:
        return int(float(plain[:-1]) * _SUFFIXES[plain[-1]])
    return int(text)


class Resolver:
    """Collects settings while an engine's rules run: values may be overridden, each with its reason."""

    def __init__(self, table: FlagTable, rules: Rules, line: LaunchLine) -> None:
        self.table, self.rules, self.line = table, rules, line
        self.values: dict[str, Setting] = {}
        self.notices: list[Notice] = []
        self.given: dict[str, tuple[str, tuple[str, ...]]] = {}  # setting → (spelling, words)
        if rules.note:
            self.note(rules.note)
        for flag in line.flags:
            found = table.find(flag.name, rules.version)
            name = found.name if found else flag.name
            complaint = table.complaint(flag.name, rules.version)
            if complaint:
                self.refuse(complaint)
            elif found and flag.name != found.name:
                self.note(f"{flag.name} is read as {found.name}.")
            deprecated = table.deprecation(name, rules.version)
            if deprecated:
                self.note(deprecated)
            if found and found.kind == "switch" and flag.words:
                self.warn(f"{flag.name} is a switch and takes no value; '{' '.join(flag.words)}' is ignored.")
            self.given[table.field(name)] = (flag.name, flag.words)

    # ── values ────────────────────────────────────────────────────────────────────────────────────────────
    def set(self, name: str, value: Value, origin: Origin, source: str) -> None:
        self.values[name] = Setting(value, origin, source)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def is_given(self, name: str) -> bool:
        return name in self.given

    def number(
        self, name: str, default: float | None, source: str = "", *, whole: bool = True
    ) -> int | float | None:
        """Sets and returns a numeric setting: the flag's value, else the default."""
        if name not in self.given:
            self.set(name, default, Origin.DEFAULT, source or "the engine's default")
            return default
        flag, words = self.given[name]
        try:
            value = _counted(words[0]) if whole else float(words[0])
            if not math.isfinite(value):
                raise ValueError("not finite")
        except (IndexError, ValueError, OverflowError):
            got = words[0] if words else "nothing"
            kind = "a whole number" if whole else "a number"
            self.refuse(f"{flag} takes {kind}, got '{got}': the server refuses to start.")
            self.set(name, default, Origin.DEFAULT, source or "the engine's default")
            return default
        self.set(name, value, self.line.origin, flag)
        return value

    def word(
        self, name: str, default: str | None, source: str = "", choices: tuple[str, ...] = ()
    ) -> str | None:
        """Sets and returns a textual setting: the flag's value, else the default."""
        if name not in self.given or not self.given[name][1]:
            self.set(name, default, Origin.DEFAULT, source or "the engine's default")
            return default
        flag, words = self.given[name]
        if choices and words[0] not in choices:
            self.refuse(
                f"{flag} takes one of {', '.join(choices)}, got '{words[0]}': the server refuses to start."
            )
            self.set(name, default, Origin.DEFAULT, source or "the engine's default")
            return default
        self.set(name, words[0], self.line.origin, flag)
        return words[0]

    def switch(self, name: str, default: bool = False) -> bool:
        """Sets and returns a switch: True where the flag was given, False where its --no- form was."""
        if name in self.given:
            flag = self.given[name][0]
            self.set(name, not flag.startswith("--no-"), self.line.origin, flag)
        else:
            self.set(name, default, Origin.DEFAULT, "the engine's default")
        return bool(self.values[name].value)

    # ── what to say ───────────────────────────────────────────────────────────────────────────────────────
    def refuse(self, text: str) -> None:
        self.notices.append(Notice(NoticeKind.REFUSAL, text))

    def warn(self, text: str) -> None:
        self.notices.append(Notice(NoticeKind.WARNING, text))

    def note(self, text: str) -> None:
        self.notices.append(Notice(NoticeKind.NOTE, text))

    def result(self, engine: str) -> EngineSettings:
        return EngineSettings(engine, self.rules, self.line, dict(self.values), tuple(self.notices))
