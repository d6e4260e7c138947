"""What types cannot say of a job: paths against the disk, keys against the environment, names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.drive.job import DEFAULT_POLICIES, Job, Source
from headrace.drive.job.api_key import key_from_environment, key_from_file
from headrace.drive.job.schema import JobKeys, SourceKeys
from headrace.drive.job.servers import MAX_SERVERS, expand_server
from headrace.drive.job.text import Key, PlacedText, shorten
from headrace.drive.request import check_fit
from headrace.drive.sampling import check_extra_body, check_sampling
from headrace.drive.sources import expand, shape_of
from headrace.drive.sources.shapes import MAPPABLE
from headrace.errors import HeadraceError, UsageError, nearest

MAX_NAME_BYTES = 255  # of Linux and its file systems
MAX_PATH_BYTES = 4000  # Linux has 4,096; files of the job lie below


class Resolver:
    """Makes the job from keys whose types are right, noting what is wrong with their values.

    What is `wrong` already holds a stand-in: nothing more is said of it. What is found goes there too.
    """

    def __init__(self, placed: PlacedText, folder: Path, wrong: set[Key], problems: list[str]) -> None:
        self._placed = placed
        self._folder = folder
        self._wrong = frozenset(wrong)
        self._found = wrong
        self._problems = problems

    def job(self, keys: JobKeys) -> Job:
        """The job; worthless where problems were noted."""
        policies = {**DEFAULT_POLICIES, **keys.flags_policy}
        job = Job(
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
        self._check_sources(job)
        return job

    def _check_sources(self, job: Job) -> None:
        """Notes what the sources' first rows have against the job: missing columns, forms that do not fit.

        Sources of which something was said already are left alone.
        """
        wrong = frozenset(self._found)
        for at, source in enumerate(job.sources):
            key: Key = ("sources", at) if ("sources", at) in self._placed.places else ("prompts", at)
            if any(bad[:2] == key or bad[:1] in (("columns",), ("id_column",), ("api",)) for bad in wrong):
                continue
            out = os.path.realpath(job.out)
            inside = [path for path in source.paths if Path(os.path.realpath(path)).is_relative_to(out)]
            if inside and ("out",) not in wrong:
                self._problem(
                    key,
                    f"{inside[0]} lies in the output folder of this job, {job.out}, whose files headrace "
                    "writes itself. Give an --out beside the prompts.",
                )
                continue
            try:
                found = check_fit(source, shape_of(source), job)
            except UsageError as error:
                found = list(error.problems)
            except HeadraceError as error:
                found = [str(error)]
            for problem in found:
                self._problem(key, _sentence(problem))

    def _problem(self, key: Key, text: str, *, name: bool = False) -> None:
        if not any(key[: len(wrong)] == wrong for wrong in self._wrong):
            self._problems.append(self._placed.at(key, text, name=name))
        self._found.add(key)

    def _path(self, key: Key, text: str) -> Path | None:
        """The path, absolute; what is relative starts from where it was written.

        None where no file can be called so; that is noted.
        """
        place = self._placed.place(key)
        path = Path(os.path.normpath((place.folder if place else self._folder) / os.path.expanduser(text)))
        fault = _fault_of_name(path)
        if fault is not None:
            self._problem(key, f"'{shorten(_shown_name(text))}' is no path: {fault}.")
            return None
        return path

    def _out(self, text: str) -> Path:
        out = self._path(("out",), text)
        if out is None:
            return self._folder
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
        self._check_settings((), keys, keys)
        sources: list[Source] = []
        taken: dict[str, Key] = {}
        for key, entry in entries:
            sources.append(self._source(key, entry, keys, taken))
        return tuple(sources)

    def _source(self, key: Key, entry: SourceKeys, keys: JobKeys, taken: dict[str, Key]) -> Source:
        self._check_settings(key, entry, keys)

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
            named = self._path(place_key, text)
            if named is None:
                continue
            try:
                found = expand([named])
            except UsageError as error:
                for problem in error.problems:
                    self._problem(place_key, _sentence(problem))
                continue
            for path in found:
                if (fault := _fault_of_name(path)) is not None:
                    self._problem(place_key, f"{_shown_name(str(path))}: {fault}; rename the file.")
                    break
                if path in paths:
                    self._problem(place_key, f"{path} is read twice by this source; name it once.")
                    break
                paths.append(path)
        return tuple(paths)

    def _check_settings(self, key: Key, keys: JobKeys | SourceKeys, job: JobKeys) -> None:
        """The columns, sampling parameters and body fields of the job or of one source, name by name."""
        for role in keys.columns or {}:
            if role not in MAPPABLE:
                known = f"known: {', '.join(MAPPABLE)}.{nearest(role, MAPPABLE)}"
                self._problem(
                    (*key, "columns", role), f"'{shorten(role)}' is no role of a column; {known}", name=True
                )

        def check(sampling: Mapping[str, Any]) -> list[str]:
            return check_sampling(sampling, job.api)

        self._check_each((*key, "sampling"), keys.sampling, job.sampling, check)
        self._check_each((*key, "extra_body"), keys.extra_body, job.extra_body, check_extra_body)

    def _check_each(
        self,
        key: Key,
        own: Mapping[str, Any],
        below: Mapping[str, Any],
        check: Callable[[Mapping[str, Any]], list[str]],
    ) -> None:
        """Every problem of `check` at the name it speaks of; of several names together, at the mapping."""
        if not own:
            return
        told = {problem for name, value in below.items() for problem in check({name: value})}
        for name, value in own.items():
            for problem in check({name: value}):
                told.add(problem)
                self._problem((*key, name), _sentence(problem), name=True)
        for problem in check({**below, **own}):
            if problem not in told:
                self._problem(key, _sentence(problem))

    def _exclude(self, texts: Sequence[str]) -> tuple[Path, ...]:
        paths = []
        for at, text in enumerate(texts):
            path = self._path(("exclude", at), text)
            if path is None:
                continue
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
        else:
            self._check_key(("api_key_env",), lambda: key_from_environment(name))
        return name

    def _api_key_file(self, keys: JobKeys) -> Path | None:
        if keys.api_key_file is None:
            return None
        path = self._path(("api_key_file",), keys.api_key_file)
        if path is not None:
            self._check_key(("api_key_file",), lambda: key_from_file(path))
        return path

    def _check_key(self, key: Key, read: Callable[[], str]) -> None:
        try:
            read()
        except UsageError as error:
            self._problem(key, str(error))

    def _ledger(self, text: str | None) -> Path | None:
        if text is None:
            return None
        path = self._path(("ledger",), text)
        if path is None:
            return None
        if path.is_dir():
            self._problem(("ledger",), f"ledger is '{path}', which is a folder; name a file in it.")
        elif not path.parent.is_dir():
            self._problem(("ledger",), f"ledger: the folder '{path.parent}' does not exist; make it first.")
        return path


def _fault_of_name(path: Path) -> str | None:
    """Why no file can be called so; None where one can."""
    try:
        raw = str(path).encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if b"\0" in raw:
        return "it holds a NUL"
    longest = max(len(part.encode()) for part in path.parts)
    if longest > MAX_NAME_BYTES:
        return f"a name in it is {longest:,} bytes long; the limit is {MAX_NAME_BYTES}"
    if len(raw) > MAX_PATH_BYTES:
        return f"it is {len(raw):,} bytes long; the limit is {MAX_PATH_BYTES:,}"
    return None


def _shown_name(text: str) -> str:
    """The name with what cannot be shown as question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


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
