"""A launch line as data: environment, program, flags with their values; edited without losing the rest.

SGLANG_MAMBA_SSM_DTYPE=bfloat16 python -m sglang.launch_server --model-path M --tp 2
vllm serve M --max-num-seqs=64
--context-length 8192 --max-running-requests 64          (a flags string is a line without a program)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.engines.flags import FlagTable
from headrace.engines.versions import Version
from headrace.errors import UsageError
from headrace.quantities import Origin

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_NUMBER = re.compile(r"-\d+(\.\d+)?$")
_MAX_LINE = 100_000  # characters; a launch line is some thousands at most
_PROGRAMS = ("python", "python3", "-m", "sglang.launch_server", "sglang", "vllm", "serve", "launch_server")


@dataclass(frozen=True, slots=True)
class GivenFlag:
    """A flag as written: the spelling, and its words."""

    name: str
    words: tuple[str, ...] = ()

    def text(self) -> str:
        return " ".join([self.name, *(shlex.quote(word) for word in self.words)])


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """A parsed launch line. `loose` are words that belong to no flag: a positional model, or prose."""

    flags: tuple[GivenFlag, ...] = ()
    environment: Mapping[str, str] | None = None
    program: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()
    origin: Origin = Origin.CONFIGURED  # `reported` where a server said it, not a person

    @classmethod
    def parse(cls, text: str, table: FlagTable, version: Version) -> LaunchLine:
        """Returns the line as data. Unknown flags are kept, with the word that follows them.

        Raises:
            UsageError: quotes that do not close, or a line of more than 100,000 characters.
        """
        if len(text) > _MAX_LINE:
            raise UsageError(f"a launch line of {len(text):,} characters; the limit is {_MAX_LINE:,}.")
        try:
            words = shlex.split(text.replace("\\\n", " "), comments=False)
        except ValueError as error:
            raise UsageError(f"the flags cannot be split into words: {error}. Close the quotes.") from error
        environment: dict[str, str] = {}
        program: list[str] = []
        loose: list[str] = []
        flags: list[GivenFlag] = []
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if not flags and _ASSIGNMENT.match(word):
                name, _, value = word.partition("=")
                environment[name] = value
            elif not flags and not loose and word in _PROGRAMS:
                program.append(word)
            elif _is_flag(word):
                name, equals, value = word.partition("=")
                taken = [value] if equals else _values(words, at, name, table, version)
                at += 0 if equals else len(taken)
                flags.append(GivenFlag(name, tuple(taken)))
            else:
                loose.append(word)
        return cls(tuple(flags), environment, tuple(program), tuple(loose))

    def changed(self, change: str, table: FlagTable, version: Version) -> LaunchLine:
        """Returns the line with a change applied: a given flag replaces its namesake, `-FLAG` removes it.

        Namesakes are spellings of one setting: `--tp 2` replaces `--tp-size 4`, and a renamed flag its old
        name. `-disable-radix-cache`, `---disable-radix-cache` and `-max-running-requests` remove.

        Raises:
            UsageError: a removal of a flag that the line does not have, or loose words.
        """
        removals: list[str] = []
        words = shlex.split(change)
        if words and not words[0].startswith("-") and not _ASSIGNMENT.match(words[0]):
            raise UsageError(f"a change begins with a flag or -FLAG, not with '{words[0]}'.")
        kept: list[str] = []
        for index, word in enumerate(words):
            removal = "--" + word.lstrip("-")
            is_removal = word.startswith("---") or (
                word.startswith("-") and not word.startswith("--") and not _NUMBER.match(word)
            )
            if is_removal and not (word in table.flags and index + 1 < len(words)):
                removals.append(removal)
            else:
                kept.append(word)
        additions = LaunchLine.parse(" ".join(shlex.quote(word) for word in kept), table, version)
        flags = list(self.flags)
        for name in removals:
            field = _field(name, table, version)
            left = [flag for flag in flags if _field(flag.name, table, version) != field]
            if len(left) == len(flags):
                raise UsageError(f"the change removes {name}, which the line does not have.")
            flags = left
        for given in additions.flags:
            field = _field(given.name, table, version)
            places = [i for i, flag in enumerate(flags) if _field(flag.name, table, version) == field]
            if places:
                flags[places[0]] = given
                flags = [flag for i, flag in enumerate(flags) if i not in places[1:]]
            else:
                flags.append(given)
        environment = {**(self.environment or {}), **(additions.environment or {})}
        return replace(self, flags=tuple(flags), environment=environment)

    def text(self) -> str:
        """Returns the line as one string, quoted for a shell."""
        parts = [f"{name}={shlex.quote(value)}" for name, value in (self.environment or {}).items()]
        parts += [*self.program, *(shlex.quote(word) for word in self.loose)]
        return " ".join([*parts, *(flag.text() for flag in self.flags)])


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word) and word != "--"


def _field(name: str, table: FlagTable, version: Version) -> str:
    flag = table.find(name, version)
    return table.field(flag.name if flag else name)


def _values(words: list[str], at: int, name: str, table: FlagTable, version: Version) -> list[str]:
    """The words that belong to the flag before `at`."""
    flag = table.find(name, version)
    kind = flag.kind if flag else "optional"
    if kind == "switch":
        return []
    following: list[str] = []
    for word in words[at:]:
        if _is_flag(word):
            break
        following.append(word)
    return following if kind == "list" else following[:1]
