"""Turns a job file, flags, or both into a `Job`; every mistake is found before anything else happens.

A flag given beside a job file goes before what the file says, for every source of it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headrace.drive.job import Job
from headrace.drive.job.resolver import Resolver
from headrace.drive.job.schema import SOURCE_DEFAULTS, JobKeys, json_schema, key_of, say
from headrace.drive.job.text import Key, Place, PlacedText, read_placed, shorten
from headrace.errors import UsageError

__all__ = ["Given", "ResolvedJob", "json_schema", "load_job"]

_BODY_FIELDS_OF_HEADRACE = (
    "model",
    "messages",
    "prompt",
    "text",
    "input_ids",
    "stream",
    "stream_options",
    "n",
)


@dataclass(frozen=True, slots=True)
class Given:
    """One value given outside the job file.

    Attributes:
        key: where it stands in a job file, e.g. ("sampling", "max_tokens").
        value: as a job file would hold it, or as the command line gives it (`["prompt=question"]`).
        label: what the user calls it, e.g. `--max-tokens`.
    """

    key: tuple[str, ...]
    value: Any
    label: str


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """A job, and one line for every value of the job file that a flag replaced."""

    job: Job
    overrides: tuple[str, ...]


def load_job(
    path: Path | None = None, given: Sequence[Given] = (), *, folder: Path | None = None
) -> ResolvedJob:
    """The job that the file and the given values describe, checked in full.

    Args:
        path: the job file; None = the given values say everything.
        given: values that go before the file's; their relative paths start from `folder`.
        folder: by default the current one.

    Raises:
        UsageError: with every mistake at once, each with its place, the value and what is allowed.
    """
    placed = read_placed(path) if path else PlacedText(value={})
    here = (folder or Path.cwd()).absolute()
    overrides = _lay_over(placed, given, here)
    problems = list(placed.problems)
    wrong: set[Key] = set()
    keys = _checked_keys(placed, wrong, problems)
    job = Resolver(placed, here, wrong, problems).job(keys) if keys else None
    if problems or job is None:
        raise UsageError(sorted(problems, key=_position))
    return ResolvedJob(job, tuple(overrides))


def _lay_over(placed: PlacedText, given: Sequence[Given], folder: Path) -> list[str]:
    """Puts the given values over the file's; one line for each that it replaced."""
    value = placed.value
    notes: list[str] = []
    if "server" in value and "servers" not in value:  # one server reads better without the s
        _move(placed, ("server",), ("servers",))
    for item in given:
        replaced: list[Key] = [item.key]
        if item.key[0] in SOURCE_DEFAULTS and isinstance(value.get("sources"), list):
            replaced += [
                ("sources", at, *item.key)
                for at, source in enumerate(value["sources"])
                if isinstance(source, dict)
            ]
        elif item.key == ("prompts",):
            replaced.append(("sources",))
        elif item.key in (("api_key_env",), ("api_key_file",)):
            replaced += [("api_key_env",), ("api_key_file",)]
        for key in replaced:
            found, old = _take(value, key)
            if found:
                place = placed.places[key]
                notes.append(f"{item.label} {_brief(item.value)} instead of {_brief(old)} ({place.label})")
                _forget(placed, key)
        _put(value, item.key, item.value)
        placed.places[item.key] = placed.names[item.key] = Place(item.label, folder)
    return notes


def _brief(value: Any) -> str:
    if isinstance(value, list | tuple):
        return shorten(", ".join(_brief(item) for item in value), 40)
    if isinstance(value, Mapping):
        return f"{len(value)} keys"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shorten(str(value), 40)


def _take(value: dict[str, Any], key: tuple[str | int, ...]) -> tuple[bool, Any]:
    holder: Any = value
    for part in key[:-1]:
        holder = holder[part] if isinstance(part, int) else holder.get(part)
        if not isinstance(holder, dict | list):
            return False, None
    if not isinstance(holder, dict) or key[-1] not in holder:
        return False, None
    return True, holder.pop(key[-1])


def _put(value: dict[str, Any], key: tuple[str, ...], item: Any) -> None:
    for part in key[:-1]:
        inner = value.get(part)
        value[part] = dict(inner) if isinstance(inner, dict) else {}
        value = value[part]
    value[key[-1]] = item


def _forget(placed: PlacedText, key: Key) -> None:
    for table in (placed.places, placed.names):
        for known in [known for known in table if known[: len(key)] == key]:
            del table[known]
    placed.faulty = {known for known in placed.faulty if known[: len(key)] != key}


def _move(placed: PlacedText, old: Key, new: Key) -> None:
    placed.value[str(new[0])] = placed.value.pop(str(old[0]))
    for table in (placed.places, placed.names):
        for known in [known for known in table if known[: len(old)] == old]:
            table[new + known[len(old) :]] = table.pop(known)
    placed.faulty = {
        new + known[len(old) :] if known[: len(old)] == old else known for known in placed.faulty
    }


def _checked_keys(placed: PlacedText, wrong: set[Key], problems: list[str]) -> JobKeys | None:
    """The job's keys by their types. What is `wrong` is noted and replaced by a stand-in, so that
    the checks that follow still see all the rest; None where that is not possible."""
    value = copy.deepcopy(placed.value)
    wrong |= placed.faulty
    if ("prompts" in value) == ("sources" in value):
        problems.append(
            placed.at(("prompts",), "both 'prompts' and 'sources' are given; keep 'sources'.", name=True)
            if "prompts" in value
            else placed.at((), "'prompts' is missing: say what to ask (--prompts FILE), or give 'sources'.")
        )
    try:
        return JobKeys.model_validate(value)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            key, of_name = key_of(item)
            if not any(key[: len(bad)] == bad for bad in placed.faulty):
                problems.append(placed.at(key, say(item), name=of_name))
            wrong.add(_stand_in(value, key))
    try:
        return JobKeys.model_validate(value)
    except ValidationError:
        return None


def _stand_in(value: dict[str, Any], key: Key) -> Key:
    """Replaces the wrong value at `key` by something harmless; the key of what was replaced.

    Where the value was given in another form (`NAME=VALUE` texts), that is the whole of it.
    """
    holder: Any = value
    for part in key[:-1]:
        known = part in holder if isinstance(holder, dict) else isinstance(part, int) and part < len(holder)
        holder = holder[part] if known else None
        if not isinstance(holder, dict | list):
            return _stand_in(value, key[:1])
    last = key[-1]
    if isinstance(holder, list):
        if not isinstance(last, int):
            return _stand_in(value, key[:1])
        holder[last] = {"prompts": "."} if key[:-1] == ("sources",) else "."
    elif last in ("out", "servers", "prompts"):
        holder[last] = "."
    else:
        holder.pop(last, None)
    return key


def _position(problem: str) -> tuple[int, int]:
    """Line and column that a problem begins with; what was given by flags comes first."""
    found = re.match(r".*?:([0-9]+):([0-9]+): ", problem)
    return (int(found[1]), int(found[2])) if found else (0, 0)
