"""Whatever a person names, as one Observation: a URL, a log, `-`, a facts file, a recording, a job folder."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from headrace.clock import SystemClock
from headrace.errors import InputError, UnreachableError, UsageError, nearest
from headrace.net.http import HttpClient
from headrace.net.redact import redact, without_user
from headrace.observe import facts_schema
from headrace.observe.combine import combine, combine_fleet, job_with_recording
from headrace.observe.facts import parse_facts, read_facts
from headrace.observe.gpus.beside import gpu_columns, with_gpus
from headrace.observe.gpus.nvidia_smi import GpuRow, is_gpu_csv, read_gpu_file
from headrace.observe.job_folder import is_job_folder, read_job_folder
from headrace.observe.live import observe_server
from headrace.observe.log import read_log
from headrace.observe.metrics_file import is_metrics_page, read_metrics_page, read_page_file
from headrace.observe.observation import Event, Observation, ServerObservation
from headrace.observe.prometheus import PREFIX, parse_source, read_range
from headrace.observe.recording.observed import read_recorded
from headrace.observe.recording.of_job import FOLDER as RECORDING
from headrace.observe.recording.reading import Columns, is_recording
from headrace.observe.recording.recorder import fetch_from

PEEK_BYTES = 1_000_000  # what is read to tell what a file or a paste is; a facts file is no longer
_URL = re.compile(r"https?://", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):\d{2,5}/?$")
_KEY = re.compile(r"^([a-z_]+)\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Options:
    """How targets are read.

    Attributes:
        engine: of a log whose lines do not tell.
        engine_version: of a saved metrics page.
        strict: anything odd in a facts file is an error.
        seconds: how long live servers are watched; 0 is one look.
        api_key: for live servers.
    """

    engine: str | None = None
    engine_version: str | None = None
    strict: bool = False
    seconds: float = 60.0
    api_key: str | None = None


def read_target(target: str, options: Options | None = None, stdin: BinaryIO | None = None) -> Observation:
    """The Observation of one target. Raises as `read_targets` does."""
    return read_targets([target], options, stdin)


def read_targets(
    targets: Sequence[str], options: Options | None = None, stdin: BinaryIO | None = None
) -> Observation:
    """The Observation of all targets together: servers side by side, live ones watched at the same time.

    A facts file beside logs or servers is laid over them: they are of the fleet that it describes.

    Args:
        stdin: what `-` reads; standard input by default.

    Raises:
        UsageError: a target that is nothing known, or none at all.
        InputError: a file that cannot be read, or (strict) an odd facts file.
        UnreachableError: no server that was named answers.
    """
    options = options or Options()
    if not targets:
        raise UsageError(
            "nothing was named: give a server's URL, a log, `-`, a facts file, a recording or a job folder."
        )
    facts: list[Observation] = []
    read: list[Observation] = []
    urls: list[str] = []
    gpus: dict[str, Columns] = {}
    for target in targets:
        if target.startswith(PREFIX):
            read.append(asyncio.run(_ask_prometheus(target, options)))
            continue
        if (rows := _gpu_rows(target)) is not None:
            gpus.update(gpu_columns(rows))
            continue
        if (url := _as_url(target)) is not None:
            urls.append(url)
            continue
        found, is_facts = _read_one(target, options, stdin)
        (facts if is_facts else read).append(found)
    if urls:
        read.append(asyncio.run(_watch(urls, options)))
    if len(facts) == 1 and read:
        found = combine_fleet(facts[0], _side_by_side(read, facts[0].source))
    else:
        found = _side_by_side([*facts, *read], _shown(targets))
    return with_gpus(found, gpus) if gpus else found


def _as_url(target: str) -> str | None:
    if _URL.match(target):
        return target
    return f"http://{target}" if _ADDRESS.match(target) and not Path(target).exists() else None


def _read_one(target: str, options: Options, stdin: BinaryIO | None) -> tuple[Observation, bool]:
    """The Observation of a file, folder or `-`, and whether it is that of a facts file alone."""
    if target == "-":
        return _read_stream(stdin if stdin is not None else sys.stdin.buffer, options)
    path = Path(target)
    try:
        if path.is_dir():
            return _read_folder(path, options)
        if not path.is_file() and not path.is_fifo():
            raise UsageError(_nothing_there(path))
        if path.is_fifo():
            with path.open("rb") as stream:
                return _read_stream(stream, options)
        with path.open("rb") as stream:
            begin = stream.read(PEEK_BYTES + 1)
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise InputError(f"{target[:200]}: cannot be read: {said}. Check the path and its rights.") from None
    if path.suffix.lower() in (".yaml", ".yml") or _looks_like_facts(begin):
        return _with_log(*read_facts(path, strict=options.strict), options)
    if is_metrics_page(begin[:65_536].decode("utf-8", "replace")):
        return read_metrics_page(read_page_file(path), target, options.engine_version), False
    return read_log(path, target, options.engine), False


def _read_stream(stream: BinaryIO, options: Options) -> tuple[Observation, bool]:
    begin = stream.read(PEEK_BYTES + 1)
    if len(begin) <= PEEK_BYTES:
        if _looks_like_facts(begin):
            text = begin.decode("utf-8-sig", "replace")
            return _with_log(*parse_facts(text, "-", Path.cwd(), strict=options.strict), options)
        if is_metrics_page(begin[:65_536].decode("utf-8", "replace")):
            return read_metrics_page(begin, "-", options.engine_version), False
    return read_log(_Rejoined(begin, stream), "-", options.engine), False  # type: ignore[arg-type]


async def _ask_prometheus(target: str, options: Options) -> Observation:
    asked = parse_source(target)
    async with HttpClient(options.api_key) as http:
        return await read_range(asked, fetch_from(http, asked.base), SystemClock())


def _gpu_rows(target: str) -> list[GpuRow] | None:
    """The rows of a CSV of nvidia-smi; None where the target is anything else."""
    path = Path(target)
    try:
        if path.suffix.lower() not in (".csv", ".txt", ".log") or not path.is_file():
            return None
        with path.open("rb") as stream:
            begin = stream.read(4096).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    return read_gpu_file(path) if is_gpu_csv(begin) else None


def _read_folder(path: Path, options: Options) -> tuple[Observation, bool]:
    if is_job_folder(path):
        job, runs = read_job_folder(path)
        if is_recording(path / RECORDING):
            job = job_with_recording(job, read_recorded(path / RECORDING))
        return _with_servers(job, runs, options), False
    if is_recording(path):
        return read_recorded(path), False
    if (path / "facts.yaml").is_file():
        return _with_log(*read_facts(path / "facts.yaml", strict=options.strict), options)
    raise UsageError(
        f"{path}: a folder without status.json (a job's), recording.json or facts.yaml. Name the file itself."
    )


def _with_log(facts: Observation, log: Path | None, options: Options) -> tuple[Observation, bool]:
    """Facts with the log that they name; with one they stand for themselves."""
    if log is None:
        return facts, True
    stated = facts.servers[0]
    try:
        with log.open("rb") as stream:
            begin = stream.read(65_536)
        if is_metrics_page(begin.decode("utf-8", "replace")):
            read = read_metrics_page(read_page_file(log), log.name, stated.engine_version)
        else:
            known = stated.engine if stated.engine in facts_schema.ENGINES else None
            read = read_log(log, log.name, known or options.engine, stated.data_parallel)
    except InputError as problem:
        return replace(facts, notes=(*facts.notes, str(problem))), True
    return combine_fleet(facts, read), True


def _with_servers(job: Observation, runs: bool, options: Options) -> Observation:
    """A job with what its servers say now, where they answer."""
    urls = [server.name for server in job.servers if _URL.match(server.name)]
    if not runs or not urls:
        return job
    try:
        live = asyncio.run(_watch(urls, options))
    except UnreachableError as problem:
        return replace(job, notes=(*job.notes, str(problem)))
    by_name = {server.name: server for server in live.servers}
    servers = tuple(
        # what a server says of itself goes before what the driver last heard of it
        replace(combine(by_name[server.name], server), name=server.name) if server.name in by_name else server
        for server in job.servers
    )
    return replace(job, servers=servers, notes=(*job.notes, *live.notes))


async def _watch(urls: Sequence[str], options: Options) -> Observation:
    """All servers at the same time. One that does not answer stays in the fleet, with an event."""
    async with HttpClient(options.api_key) as http:
        found = await asyncio.gather(*(_look(url, http, options) for url in urls))
    if all(isinstance(one, UnreachableError) for one in found):
        raise UnreachableError("\n".join(str(problem) for problem in found))
    servers = tuple(
        ServerObservation(_shown([url]), events=(Event("unreachable", "failure", 1, str(one)[:400]),))
        if isinstance(one, UnreachableError)
        else one
        for url, one in zip(urls, found, strict=True)
    )
    return Observation(servers=servers, source=_shown(urls))


async def _look(url: str, http: HttpClient, options: Options) -> ServerObservation | UnreachableError:
    try:  # a key goes before a user in the URL: both cannot be sent
        return await observe_server(without_user(url) if options.api_key else url, http, options.seconds)
    except UnreachableError as problem:
        return problem


def _side_by_side(found: Sequence[Observation], source: str) -> Observation:
    if len(found) == 1:
        return found[0]
    return Observation(
        servers=tuple(server for one in found for server in one.servers),
        client=next((one.client for one in found if one.client is not None), None),
        claims=tuple(claim for one in found for claim in one.claims),
        notes=tuple(note for one in found for note in one.notes),
        source=source,
    )


def _shown(targets: Sequence[str]) -> str:
    return redact(without_user(" ".join(targets)))


def _looks_like_facts(begin: bytes) -> bool:
    """Whether a text begins as a facts file does: keys at the line's start, most of them known."""
    if len(begin) > PEEK_BYTES or b"\0" in begin[:1000]:
        return False
    text = begin.decode("utf-8-sig", "replace")
    keys = _json_keys(begin) if text.lstrip()[:1] == "{" else _KEY.findall(text)
    known = sum(1 for key in keys if key in facts_schema.TOP)
    return known >= 1 and known >= len(keys) / 2 and not re.search(r"(?m)^\s*\[?\d{4}-\d\d-\d\d", text)


def _json_keys(begin: bytes) -> list[str]:
    """The top-level keys of one JSON object; none where it is several, as in a container's log."""
    try:
        document = msgspec.json.decode(begin)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return list(document) if isinstance(document, dict) else []


def _nothing_there(path: Path) -> str:
    siblings = []
    try:
        siblings = [entry.name for entry in path.absolute().parent.iterdir()][:1000]
    except OSError:
        pass
    hint = nearest(path.name, siblings)
    return (
        f"'{str(path)[:200]}' is no file, folder or URL.{hint} "
        "Give a server's URL (http://host:port), a log, `-`, a facts file, a recording or a job folder."
    )


class _Rejoined(io.RawIOBase):
    """A stream whose beginning was read already."""

    def __init__(self, begin: bytes, rest: BinaryIO) -> None:
        self._begin, self._rest = io.BytesIO(begin), rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._begin.read(size) or self._rest.read(size)

    def read1(self, size: int = -1) -> bytes:
        return self.read(size)
