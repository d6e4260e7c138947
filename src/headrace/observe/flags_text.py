"""Flags as people write them: launch flags among prose, and nothing that could be a secret.

`--tp 4; requests with return_logprob` is the flag `--tp 4` and a remark. What does not parse is kept as a
note, never guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.engines import PLANNED_ENGINES, planner
from headrace.engines.flags import FlagTable
from headrace.engines.launch_line import GivenFlag, LaunchLine
from headrace.engines.versions import Version
from headrace.errors import UsageError
from headrace.net.redact import HIDDEN, is_secret_setting, redact, without_user

MAX_CHARACTERS = 100_000
_FLAG = re.compile(r"(?<!\S)--?[A-Za-z]")
_ENVIRONMENT = re.compile(r"(?<!\S)[A-Z][A-Z0-9]*_[A-Z0-9_]+=\S+")
_PROSE = frozenset(("set", "to", "at", "is", "was", "for", "and", "with"))  # no value of any flag


@dataclass(frozen=True, slots=True)
class FlagsText:
    """The flags of a text, as a launch line without a program, and the rest of it."""

    flags: str
    notes: tuple[str, ...] = ()


def read_flags(text: str, engine: str | None, version: str | None) -> FlagsText:
    """Returns the launch flags in `text`, secrets hidden, and what is none as notes.

    Args:
        text: a launch line, a flags string, or prose with flags in it; parts are separated by `;`.
        engine, version: whose flags these are: they say how many words belong to a flag. None: one word.
    """
    if len(text) > MAX_CHARACTERS:
        return FlagsText("", (f"flags of {len(text):,} characters were not read; the limit is 100,000.",))
    table, rules = _table(engine, version)
    kept: list[str] = []
    notes: list[str] = []
    for part in (part.strip() for part in re.split(r";(?=\s|$)", text.replace("\\\n", " "))):
        if not part:
            continue
        if not _FLAG.search(part):
            environment = _ENVIRONMENT.findall(part)
            kept += [_hide_assignment(word) for word in environment]
            rest = " ".join(_ENVIRONMENT.sub(" ", part).split())
            notes += [rest] if rest else []
            continue
        plain = re.sub(r"(?<!\S)\([^()]*\)", " ", part)
        notes += re.findall(r"(?<!\S)\([^()]*\)", part)
        try:
            line = LaunchLine.parse(plain, table, rules)
        except UsageError as problem:
            notes.append(f"flags that cannot be read: {str(problem)[:200]}")
            continue
        flags, said = _without_prose(line)
        kept.append(_hide_secrets(flags).text())
        notes += said
    return FlagsText(
        " ".join(word for word in kept if word), tuple(f"flags: {redact(note)[:400]}" for note in notes)
    )


def _table(engine: str | None, version: str | None) -> tuple[FlagTable, Version]:
    found = planner(engine if engine in PLANNED_ENGINES else "sglang")
    if engine in PLANNED_ENGINES:
        return found.table, found.rules(version or "").version
    return FlagTable("any", found.table.path, {}, abbreviates=False), found.newest


def _without_prose(line: LaunchLine) -> tuple[LaunchLine, list[str]]:
    """The line without words that are no launch line's, and those words."""
    environment = line.environment or {}
    names = {name: value for name, value in environment.items() if "_" in name}
    said = [f"{name}={value}" for name, value in environment.items() if name not in names]
    flags = []
    for flag in line.flags:
        if flag.words and flag.words[0] in _PROSE:
            said.append(flag.text())
        else:
            flags.append(flag)
    if line.loose:
        said.append(" ".join(line.loose))
    return LaunchLine(tuple(flags), names, origin=line.origin), said


def _hide_secrets(line: LaunchLine) -> LaunchLine:
    """The line without its program and loose words, values of secret-looking names hidden."""
    flags = tuple(
        GivenFlag(
            flag.name,
            tuple(
                HIDDEN if is_secret_setting(flag.name) else redact(without_user(word)) for word in flag.words
            ),
        )
        for flag in line.flags
    )
    environment = {
        name: HIDDEN if is_secret_setting(name) else redact(without_user(value))
        for name, value in (line.environment or {}).items()
    }
    return LaunchLine(flags, environment, origin=line.origin)


def _hide_assignment(word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={HIDDEN if is_secret_setting(name) else redact(without_user(value))}"
