"""Turns a job file, flags, or both into a `Job`; every mistake is found before anything else happens.

A flag given beside a job file goes before what the file says, for every source of it.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headrace.drive.job import DEFAULT_POLICIES, Job, Source
from headrace.drive.job_schema import SOURCE_DEFAULTS, JobKeys, SourceKeys, json_schema, say
from headrace.drive.job_servers import MAX_SERVERS, expand_server
from headrace.drive.job_text import Key, Place, PlacedText, read_placed, shorten
from headrace.drive.request import check_fit
from headrace.drive.sampling import check_extra_body, check_sampling
from headrace.drive.sources import expand, shape_of
from headrace.drive.sources.shapes import MAPPABLE
from headrace.errors import HeadraceError, UsageError, nearest

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
    muted: set[Key] = set()
    keys = _checked_keys(placed, muted, problems)
    job = _Resolver(placed, here, muted, problems).job(keys) if keys else None
    if job is not None:
        problems += _source_problems(placed, job)
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


def _at(placed: PlacedText, key: Key, text: str, *, name: bool = False) -> str:
    """The problem with the place that it speaks of before it."""
    place = (placed.names.get(key) if name else None) or placed.place(key)
    return f"{place.label}: {text}" if place else text


def _checked_keys(placed: PlacedText, muted: set[Key], problems: list[str]) -> JobKeys | None:
    """The job's keys by their types. What is wrong is noted, muted and replaced by a stand-in, so that
    the checks that follow still see all the rest; None where that is not possible."""
    value = copy.deepcopy(placed.value)
    muted |= placed.faulty
    if ("prompts" in value) == ("sources" in value):
        problems.append(
            _at(placed, ("prompts",), "both 'prompts' and 'sources' are given; keep 'sources'.", name=True)
            if "prompts" in value
            else _at(placed, (), "'prompts' is missing: say what to ask (--prompts FILE), or give 'sources'.")
        )
    try:
        return JobKeys.model_validate(value)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            key = tuple(part for part in item["loc"] if part != "[key]")
            if not any(key[: len(bad)] == bad for bad in placed.faulty):
                of_name = item["type"] == "extra_forbidden" or "[key]" in item["loc"]
                problems.append(_at(placed, key, say(item), name=of_name))
            muted.add(_stand_in(value, key))
    try:
        return JobKeys.model_validate(value)
    except ValidationError:
        return None


def _stand_in(value: dict[str, Any], key: Key) -> Key:
    """Replaces the wrong value at `key` by something harmless; the key of what was replaced."""
    holder: Any = value
    for depth, part in enumerate(key):
        last = depth == len(key) - 1
        if isinstance(holder, list) and isinstance(part, int) and part < len(holder):
            if last:
                holder[part] = {"prompts": "."} if key[0] == "sources" and depth == 1 else "."
                return key
            holder = holder[part]
        elif isinstance(holder, dict):
            if last or not isinstance(holder.get(str(part)), dict | list):
                wanted = part in ("out", "servers", "prompts") and (depth == 0 or key[0] == "sources")
                holder.pop(str(part), None)
                if wanted:
                    holder[str(part)] = "."
                return key[: depth + 1]
            holder = holder[str(part)]
    return key


def _source_problems(placed: PlacedText, job: Job) -> list[str]:
    """What the sources' first rows have against the job: columns that are not there, forms that do not fit."""
    problems = []
    for at, source in enumerate(job.sources):
        if not source.paths:
            continue  # told already
        key: Key = ("sources", at) if ("sources", at) in placed.places else ("prompts", at)
        try:
            found = check_fit(source, shape_of(source), job)
        except UsageError as error:
            found = list(error.problems)
        except HeadraceError as error:
            found = [str(error)]
        problems += [_at(placed, key, _sentence(problem)) for problem in found]
    return problems


class _Resolver:
    """What types cannot say: names against each other, paths against the disk, keys against the environment.

    `muted` keys are wrong already and hold a stand-in: nothing more is said of them.
    """

    def __init__(self, placed: PlacedText, folder: Path, muted: set[Key], problems: list[str]) -> None:
        self._placed = placed
        self._folder = folder
        self._muted = muted
        self._problems = problems

    def job(self, keys: JobKeys) -> Job:
        """The job; worthless where problems were noted."""
        policies = {**DEFAULT_POLICIES, **keys.flags_policy}
        return Job(
            out=self._out(keys.out),
            sources=self._sources(keys),
            servers=self._servers(keys.servers),
            model=keys.model,
            api=keys.api,
            in_flight=keys.in_flight,
            flag_policies=policies,
            exclude=self._exclude(keys.exclude or []),
            output_format=keys.format,
            token_ids=keys.token_ids,
            request_timeout_seconds=float(keys.request_timeout),
            max_tries=keys.max_tries,
            retry_failed=keys.retry_failed,
            api_key_env=self._api_key_env(keys),
            api_key_file=self._api_key_file(keys),
            ledger=self._ledger(keys.ledger),
            seed=keys.dispatch_seed,
            hedge_tail=keys.hedge,
            row_checks=keys.row_checks,
        )

    def _problem(self, key: Key, text: str) -> None:
        if not any(key[: len(muted)] == muted for muted in self._muted):
            self._problems.append(_at(self._placed, key, text))

    def _path(self, key: Key, text: str) -> Path:
        """The path, absolute; what is relative starts from where it was written."""
        place = self._placed.place(key)
        return Path(os.path.normpath((place.folder if place else self._folder) / Path(text).expanduser()))

    def _out(self, text: str) -> Path:
        out = self._path(("out",), text)
        if out.exists() and not out.is_dir():
            self._problem(("out",), f"out is '{out}', which is a file; name a folder.")
        return out

    def _servers(self, texts: Sequence[str]) -> tuple[str, ...]:
        seen: dict[str, str] = {}
        for at, text in enumerate(texts):
            key = ("servers", at)
            try:
                urls = expand_server(text)
            except ValueError as error:
                self._problem(key, f"{error}.")
                continue
            for url in urls:
                if url in seen:
                    self._problem(
                        key, f"server {url} is given twice (also by '{seen[url]}'); keep one of them."
                    )
                    break
                seen[url] = text
        if len(seen) > MAX_SERVERS:
            self._problem(("servers",), f"{len(seen):,} servers; the limit is {MAX_SERVERS:,}.")
        return tuple(seen)

    def _sources(self, keys: JobKeys) -> tuple[Source, ...]:
        entries: list[tuple[Key, SourceKeys]] = []
        for at, entry in enumerate(keys.sources or []):
            entries.append((("sources", at), entry))
        for at, text in enumerate(keys.prompts or []):
            entries.append((("prompts", at), SourceKeys(prompts=[text])))
        self._check_settings((), keys)
        sources: list[Source] = []
        taken: dict[str, Key] = {}
        for key, entry in entries:
            sources.append(self._source(key, entry, keys, taken))
        return tuple(sources)

    def _source(self, key: Key, entry: SourceKeys, keys: JobKeys, taken: dict[str, Key]) -> Source:
        self._check_settings(key, entry)

        def of(name: str) -> Any:
            own = getattr(entry, name)
            return getattr(keys, name) if own is None else own

        return Source(
            name=self._name(key, entry, taken),
            paths=self._prompts(key, entry),
            columns=dict(of("columns") or {}),
            id_column=of("id_column"),
            limit=of("count"),
            samples=of("samples") or 1,
            system=of("system"),
            thinking=of("thinking"),
            sampling={**keys.sampling, **entry.sampling},
            extra_body={**keys.extra_body, **entry.extra_body},
        )

    def _name(self, key: Key, entry: SourceKeys, taken: dict[str, Key]) -> str:
        if entry.name is not None:
            if entry.name in taken:
                other = self._placed.place((*taken[entry.name], "name"))
                where = f" ({other.label})" if other else ""
                self._problem(
                    (*key, "name"), f"source name '{entry.name}' is taken{where}; names must differ."
                )
            taken.setdefault(entry.name, key)
            return entry.name
        base = name_of(entry.prompts[0])
        name, number = base, 2
        while name in taken:
            name, number = f"{base}-{number}", number + 1
        taken[name] = key
        return name

    def _prompts(self, key: Key, entry: SourceKeys) -> tuple[Path, ...]:
        paths: list[Path] = []
        for at, text in enumerate(entry.prompts):
            place_key = (*key, "prompts", at) if key[0] == "sources" else key
            try:
                found = expand([self._path(place_key, text)])
            except UsageError as error:
                for problem in error.problems:
                    self._problem(place_key, _sentence(problem))
                continue
            for path in found:
                if path in paths:
                    self._problem(place_key, f"{path} is read twice by this source; name it once.")
                    break
                paths.append(path)
        return tuple(paths)

    def _check_settings(self, key: Key, keys: JobKeys | SourceKeys) -> None:
        """The columns, sampling parameters and body fields of the job or of one source, name by name."""
        for role in keys.columns or {}:
            if role not in MAPPABLE:
                known = f"known: {', '.join(MAPPABLE)}.{nearest(role, MAPPABLE)}"
                self._problem((*key, "columns", role), f"'{shorten(role)}' is no role of a column; {known}")
        self._check_each((*key, "sampling"), keys.sampling, check_sampling)
        self._check_each((*key, "extra_body"), keys.extra_body, check_extra_body)

    def _check_each(
        self, key: Key, mapping: Mapping[str, Any], check: Callable[[Mapping[str, Any]], list[str]]
    ) -> None:
        """Every problem of `check` at the name it speaks of; those of several names at the mapping."""
        told: set[str] = set()
        for name, value in mapping.items():
            for problem in check({name: value}):
                told.add(problem)
                self._problem((*key, name), _sentence(problem))
        for problem in check(mapping):
            if problem not in told:
                self._problem(key, _sentence(problem))

    def _exclude(self, texts: Sequence[str]) -> tuple[Path, ...]:
        paths = []
        for at, text in enumerate(texts):
            path = self._path(("exclude", at), text)
            if not path.exists():
                self._problem(
                    ("exclude", at), f"exclude: '{path}' does not exist; name a job folder or a file."
                )
            paths.append(path)
        return tuple(paths)

    def _api_key_env(self, keys: JobKeys) -> str | None:
        name = keys.api_key_env
        if name is None:
            return None
        if keys.api_key_file is not None:
            self._problem(
                ("api_key_env",), "both 'api_key_env' and 'api_key_file' are given; keep one of them."
            )
        elif not os.environ.get(name, "").strip():
            self._problem(
                ("api_key_env",), f"environment variable {name} is not set or empty; export it first."
            )
        return name

    def _api_key_file(self, keys: JobKeys) -> Path | None:
        if keys.api_key_file is None:
            return None
        path = self._path(("api_key_file",), keys.api_key_file)
        if not path.is_file():
            self._problem(("api_key_file",), f"api_key_file: '{path}' is no file; write the key into it.")
        elif not os.access(path, os.R_OK):
            self._problem(("api_key_file",), f"api_key_file: '{path}' cannot be read; check its permissions.")
        return path

    def _ledger(self, text: str | None) -> Path | None:
        if text is None:
            return None
        path = self._path(("ledger",), text)
        if path.is_dir():
            self._problem(("ledger",), f"ledger is '{path}', which is a folder; name a file in it.")
        elif not path.parent.is_dir():
            self._problem(("ledger",), f"ledger: the folder '{path.parent}' does not exist; make it first.")
        return path


def _position(problem: str) -> tuple[int, int]:
    """Line and column that a problem begins with; what was given by flags comes first."""
    found = re.match(r".*?:([0-9]+):([0-9]+): ", problem)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."


def name_of(prompts: str) -> str:
    """The name of a source that has none: its file without suffixes, or the folder of a glob."""
    path = Path(prompts)
    while any(letter in path.name for letter in "*?[") and path.parent != path:
        path = path.parent
    stem = path.name.split(".")[0] if path == Path(prompts) else path.name
    name = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in stem
    )
    return name.strip("._-")[:90] or "prompts"
