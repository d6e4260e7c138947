"""`headrace record`: from targets to a recording on the disk."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from headrace.clock import SystemClock
from headrace.durable.disk import RealDisk
from headrace.durable.lock import FolderLock
from headrace.errors import InputError, StorageError, UsageError
from headrace.net.http import HttpClient
from headrace.net.redact import without_user
from headrace.observe.gpus.dcgm import Dcgm
from headrace.observe.gpus.nvidia_smi import NvidiaSmi, ask
from headrace.observe.gpus.nvml import Nvml
from headrace.observe.prometheus import PREFIX, PrometheusSource, parse_source
from headrace.observe.recording.form import segments
from headrace.observe.recording.reading import is_recording
from headrace.observe.recording.recorder import Source, fetch_from, first_look, record, server_looks
from headrace.observe.recording.writer import RecordingWriter

LEAST_SECONDS = 0.1  # between two samples: an engine's own counters move no faster
KINDS = ("http://", "https://", "nvml:", "nvidia-smi:", "dcgm:", PREFIX)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a recording holds now.

    Attributes:
        folder: where it lies.
        servers, gpus: of which there are samples.
        samples: of servers, by this run.
        seconds: that this run lasted.
        bytes: of the whole recording.
    """

    folder: Path
    servers: int
    gpus: int
    samples: int
    seconds: float
    bytes: int


def record_targets(
    targets: Sequence[str],
    folder: Path,
    *,
    for_seconds: float | None,
    every_seconds: float,
    api_key: str | None = None,
    on_sample: Callable[[int], None] | None = None,
) -> Kept:
    """Records until the time is over or a signal comes; what was kept.

    Raises:
        UsageError: a target or a duration that cannot be.
        UnreachableError: no server answers.
        InputError, BusyError, StorageError: the folder is something else, is being written, or cannot be.
    """
    urls = _checked(targets, every_seconds)
    if folder.exists() and not is_recording(folder) and any(folder.iterdir()):
        raise InputError(f"{folder} holds other things than a recording. Name a new folder with --out.")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            _record(targets, urls, folder, for_seconds, every_seconds, api_key, on_sample or (lambda _: None))
        )


def _checked(targets: Sequence[str], every_seconds: float) -> list[str]:
    problems = []
    if not targets:
        problems.append(
            "nothing was named: give servers' URLs, nvml:, nvidia-smi:, dcgm:URL or prometheus:URL."
        )
    if every_seconds < LEAST_SECONDS:
        problems.append(f"--every takes {LEAST_SECONDS} s or more, got {every_seconds:g} s.")
    problems += [
        f"'{without_user(target)[:120]}' is nothing that can be recorded: give {', '.join(KINDS)}…"
        for target in targets
        if not target.startswith(KINDS)
    ]
    if problems:
        raise UsageError(problems)
    return [target for target in targets if target.startswith(("http://", "https://"))]


async def _record(
    targets: Sequence[str],
    urls: Sequence[str],
    folder: Path,
    for_seconds: float | None,
    every_seconds: float,
    api_key: str | None,
    on_sample: Callable[[int], None],
) -> Kept:
    disk, clock = RealDisk(), SystemClock()
    async with HttpClient(api_key) as http:
        servers = [server_looks(without_user(url) if api_key else url, http) for url in dict.fromkeys(urls)]
        sources = [await _source(target, http) for target in targets if target not in urls]
        await first_look(servers)
        try:
            disk.make_folder(folder)
            lock = FolderLock(folder / ".lock", clock)
        except OSError as error:
            raise StorageError(f"{folder}: {error.strerror}. Name another folder with --out.") from None
        try:
            writer = RecordingWriter(folder, disk, clock, every_seconds=every_seconds)
            stop = asyncio.Event()
            with _signals(stop), _told(writer, on_sample):
                await record(
                    servers, sources, writer, every_seconds=every_seconds, for_seconds=for_seconds, stop=stop
                )
        finally:
            lock.release()
    return Kept(
        folder=folder,
        servers=len(writer.servers_seen),
        gpus=len(writer.gpus_seen),
        samples=writer.samples,
        seconds=writer.at(),
        bytes=sum(path.stat().st_size for path in segments(folder)),
    )


async def _source(target: str, http: HttpClient) -> Source:
    host = socket.gethostname()[:64]
    if target == "nvml:":
        return Nvml(host)
    if target == "nvidia-smi:":
        await ask()
        return NvidiaSmi(host)
    if target.startswith("dcgm:"):
        url = target.removeprefix("dcgm:")
        if not url.startswith(("http://", "https://")):
            raise UsageError(
                f"dcgm: takes the exporter's URL, like dcgm:http://host:9400/metrics, got '{url[:80]}'."
            )
        return Dcgm(fetch_from(http, url))
    asked = parse_source(target)
    return PrometheusSource(asked, fetch_from(http, asked.base))


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGINT and SIGTERM end the recording whole."""
    loop = asyncio.get_running_loop()
    heard = []
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
            heard.append(number)
        except (RuntimeError, ValueError):  # not in the main thread
            continue
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


@contextmanager
def _told(writer: RecordingWriter, on_sample: Callable[[int], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handle: asyncio.TimerHandle

    def tell() -> None:
        nonlocal handle
        on_sample(writer.samples)
        handle = loop.call_later(1.0, tell)

    handle = loop.call_later(1.0, tell)
    try:
        yield
    finally:
        handle.cancel()
