"""Records servers, GPUs and Prometheus sources for a while: one look each per interval, spread over it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from headrace.engines.load import Fetch
from headrace.errors import StorageError, UnreachableError
from headrace.net.http import HttpClient, HttpFailure
from headrace.net.redact import redact, without_user
from headrace.observe.live_engines import Reader, find_engine
from headrace.observe.recording.form import ServerAbout
from headrace.observe.recording.writer import RecordingWriter

FLUSH_SECONDS = 5.0  # what a power cut may cost
ANSWER_SECONDS = 10.0
FIND_AGAIN_SECONDS = 10.0  # between two tries to find out what a silent server is


class Source(Protocol):
    """What is sampled beside the servers: GPUs, a Prometheus server."""

    async def sample(self, writer: RecordingWriter) -> None:
        """Takes one sample of all it has. What does not answer is counted by the source itself."""
        ...


@dataclass(slots=True)
class ServerLooks:
    """One server: what answers there, and the looks at it."""

    name: str
    fetch: Fetch
    reader: Reader | None = None
    why: str = ""
    _told_at: int = field(default=0)
    _looks: int = field(default=0)

    async def find(self) -> bool:
        """Whether a known engine answers."""
        self.reader = await find_engine(self.fetch)
        return self.reader is not None

    async def look(self, writer: RecordingWriter) -> None:
        """One look, into the recording."""
        if self.reader is None:
            writer.missed(self.name)
            return
        page = await self.reader.look(self.fetch)
        if page is None:
            writer.missed(self.name)
            return
        writer.add(self.name, writer.at(), page)
        self._looks += 1
        if self._looks >= self._told_at:  # at first, then ever more seldom: what it tells may come late
            self._told_at = 10 * self._looks
            writer.about(self.name, _about(self.reader, page.names, page.ranks, page.notes))


def fetch_from(http: HttpClient, base: str) -> Fetch:
    """Asks paths under a base URL: the body of a 200, None for anything else."""

    async def fetch(path: str) -> bytes | None:
        try:
            answer = await http.get(base + path, ANSWER_SECONDS)
        except HttpFailure:
            return None
        return answer.body if answer.status == 200 else None

    return fetch


def server_looks(url: str, http: HttpClient) -> ServerLooks:
    """The looks at a server by its URL; its name has no user and no key in it."""
    base = url.rstrip("/")

    async def fetch(path: str) -> bytes | None:
        try:
            answer = await http.get(base + path, ANSWER_SECONDS)
        except HttpFailure as failure:
            looks.why = redact(without_user(str(failure)))
            return None
        looks.why = "" if answer.status == 200 else f"{path} answers {answer.status}"
        return answer.body if answer.status == 200 else None

    looks = ServerLooks(redact(without_user(base)), fetch)
    return looks


async def record(
    servers: Sequence[ServerLooks],
    sources: Sequence[Source],
    writer: RecordingWriter,
    *,
    every_seconds: float,
    for_seconds: float | None,
    stop: asyncio.Event,
) -> None:
    """Records until `for_seconds` have passed (None: until `stop` is set), and closes the recording.

    Raises:
        StorageError: the disk refuses.
    """
    begun: list[asyncio.Task[None]] = []
    try:
        async with asyncio.TaskGroup() as group:
            for number, looks in enumerate(servers):
                delay = every_seconds * number / len(servers)  # not all at once
                begun.append(group.create_task(_watch(looks, writer, every_seconds, delay)))
            begun += [group.create_task(_sample(source, writer, every_seconds)) for source in sources]
            begun.append(group.create_task(_flush(writer, max(FLUSH_SECONDS, every_seconds))))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), for_seconds)
            for task in begun:
                task.cancel()
        await asyncio.to_thread(writer.close)
    except* OSError as errors:
        raise StorageError(_refused(errors.exceptions[0])) from None


async def first_look(servers: Sequence[ServerLooks]) -> None:
    """Finds out what each server is. Raises UnreachableError where none of them answers."""
    found = await asyncio.gather(*(looks.find() for looks in servers))
    if servers and not any(found):
        said = "; ".join(f"{looks.name}: {looks.why or 'no known engine answers'}" for looks in servers[:4])
        raise UnreachableError(
            f"no server answers that could be recorded ({said}). Is it up, the port right?"
        )


async def _watch(looks: ServerLooks, writer: RecordingWriter, every_seconds: float, delay: float) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time() + delay
    while True:
        await asyncio.sleep(max(0.0, due - loop.time()))
        if looks.reader is None and not await looks.find():
            writer.missed(looks.name)
            due = loop.time() + max(FIND_AGAIN_SECONDS, every_seconds)
            continue
        await looks.look(writer)
        due = max(due + every_seconds, loop.time())


async def _sample(source: Source, writer: RecordingWriter, every_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + every_seconds
        await source.sample(writer)
        await asyncio.sleep(max(0.0, due - loop.time()))


async def _flush(writer: RecordingWriter, every_seconds: float) -> None:
    while True:
        await asyncio.sleep(every_seconds)
        await asyncio.to_thread(writer.flush, writer.take())


def _about(reader: Reader, names: Mapping[str, str], ranks: int, notes: Sequence[str]) -> ServerAbout:
    told = reader.told()
    return ServerAbout(
        engine=reader.name,
        engine_version=told.version,
        model=redact(told.model) if told.model else None,
        gpu=told.gpu,
        gpus=told.gpus,
        tensor_parallel=told.tensor_parallel,
        data_parallel=told.data_parallel,
        weights_dtype=told.weights_dtype,
        kv_dtype=told.kv_dtype,
        flags=told.flags,
        capacities=dict(told.capacities),
        settings=dict(told.settings),
        names=dict(names),
        ranks=ranks,
        notes=[*told.notes, *notes],
        missing=list(told.missing),
    )


def _refused(error: BaseException) -> str:
    said = getattr(error, "strerror", None) or error
    return f"the recording cannot be written: {said}. Make room, or name another folder with --out."
