"""What recording a thousand servers costs: python -m bench.record [--servers 1000] [--seconds 30]

A small loopback server in a process of its own stands for all of them: every address of 127.0.0.0/8 reaches
it, so each is a server of its own to the client, with its own connections. It answers /metrics with real
pages of SGLang 0.5.12 (captured while a server worked, 61 KB, 560 lines), /v1/loads and /server_info
likewise. Printed is the CPU time of the recorder's process, all its threads, per sample of a server:
requests, parsing, packing and syncing included, start-up left out.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from bench.null_server import shared_folder

WARM_SECONDS = 5.0  # connections are opened, and every page is read in full once
CAPTURE = "captures/sglang/0.5.12-qwen3next"


class _Answers(asyncio.Protocol):
    """Answers GETs by path; bodies are made once."""

    pages: dict[bytes, list[bytes]] = {}  # noqa: RUF012 - one table for the process
    asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._begin = b""

    def data_received(self, data: bytes) -> None:
        self._begin += data
        while b"\r\n\r\n" in self._begin:
            head, _, self._begin = self._begin.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].split(b"?")[0]
            pages = self.pages.get(path)
            _Answers.asked += 1
            if pages is None:
                self._transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")  # type: ignore[attr-defined]
            else:
                self._transport.write(pages[_Answers.asked // 2000 % len(pages)])  # type: ignore[attr-defined]


def _http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def serve(folder: Path, told: Connection) -> None:
    """Serves the captured pages until it is killed, on a free port that it tells."""

    async def run() -> None:
        def pages(pattern: str) -> list[bytes]:
            return [_http(path.read_bytes()) for path in sorted(folder.glob(pattern))]

        _Answers.pages = {
            b"/metrics": pages("metrics_during_?.txt"),
            b"/v1/loads": pages("loads_during_?.json"),
            b"/server_info": pages("server_info.json"),
        }
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Answers, "0.0.0.0", 0, backlog=4096)
        told.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(run())


def cpu_seconds() -> float:
    """User and system time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(port: int, servers: int, seconds: float, every_seconds: float) -> None:
    """Records and prints what it cost."""
    from headrace.clock import SystemClock
    from headrace.durable.disk import RealDisk
    from headrace.net.http import HttpClient
    from headrace.observe.recording.reading import read_recording
    from headrace.observe.recording.recorder import first_look, record, server_looks
    from headrace.observe.recording.writer import RecordingWriter

    urls = [f"http://127.0.{number // 200 + 1}.{number % 200 + 1}:{port}" for number in range(servers)]

    async def run(folder: Path) -> tuple[int, float, float]:
        async with HttpClient() as http:
            looks = [server_looks(url, http) for url in urls]
            for begin in range(0, len(looks), 100):
                await first_look(looks[begin : begin + 100])
            writer = RecordingWriter(folder, RealDisk(), SystemClock(), every_seconds=every_seconds)
            begun: list[tuple[int, float, float]] = []
            asyncio.get_running_loop().call_later(
                WARM_SECONDS,
                lambda: begun.append((writer.samples, cpu_seconds(), time.perf_counter())),
            )
            await record(
                looks,
                [],
                writer,
                every_seconds=every_seconds,
                for_seconds=WARM_SECONDS + seconds,
                stop=asyncio.Event(),
            )
            ((samples, cpu, wall),) = begun
            return writer.samples - samples, cpu_seconds() - cpu, time.perf_counter() - wall

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "recording"
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            samples, cpu, wall = runner.run(run(folder))
        size = sum(path.stat().st_size for path in folder.iterdir())
        began = time.process_time()
        found = read_recording(folder)
        reading = time.process_time() - began
    kept = sum(len(columns.seconds) for columns in found.gauges.values())
    wanted = servers * seconds / every_seconds
    print(
        f"{servers:,} servers every {every_seconds:g} s, {wall:.1f} s: {samples:,} samples of {wanted:,.0f}, "
        f"{1e3 * cpu / samples:.3f} ms CPU per sample, {cpu / wall:.2f} cores; {size / kept:,.0f} bytes "
        f"per sample; read back {kept:,} in {reading:.2f} s; load {os.getloadavg()[0]:.1f}"
    )
    if kept < samples:
        sys.exit(f"{samples:,} samples were taken and {kept:,} are in the recording")


def verdict(folder: Path) -> None:
    """Makes a recording of 8 servers × 1 h at 1 Hz from the captured pages, and times a diagnosis of it."""
    from headrace import api
    from headrace.clock import VirtualClock
    from headrace.durable.disk import RealDisk
    from headrace.engines.sglang.metrics import page_lines, read_metrics
    from headrace.observe.recording.form import ServerAbout
    from headrace.observe.recording.writer import RecordingWriter

    lines = page_lines()
    pages = [
        read_metrics(path.read_bytes(), "0.5.12", lines)
        for path in sorted(folder.glob("metrics_during_?.txt"))
    ]
    clock = VirtualClock()
    with tempfile.TemporaryDirectory() as name:
        writer = RecordingWriter(Path(name) / "r", RealDisk(), clock, every_seconds=1.0)
        for server in range(8):
            writer.about(f"http://s{server}", ServerAbout(engine="sglang", engine_version="0.5.12"))
        for second in range(3600):
            for server in range(8):
                page = pages[second // 10 % len(pages)]
                made = {**page.counters, "output_tokens": page.counters["output_tokens"] + 640.0 * second}
                writer.add(f"http://s{server}", float(second), replace(page, counters=made))
            if second % 5 == 4:
                writer.flush()
        writer.close()
        began, cpu = time.perf_counter(), time.process_time()
        api.diagnose(
            Path(name) / "r", gpu="RTX PRO 6000 Blackwell Server", model="Qwen/Qwen3.6-27B", window=0
        )
        print(
            f"a verdict from 8 servers × 1 h at 1 Hz: {time.perf_counter() - began:.2f} s, "
            f"{time.process_time() - cpu:.2f} s CPU"
        )


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--servers", type=int, default=1000)
    asked.add_argument("--seconds", type=float, default=30.0)
    asked.add_argument("--every", type=float, default=1.0)
    options = asked.parse_args()
    context = multiprocessing.get_context("spawn")
    hear, tell = context.Pipe(duplex=False)
    server = context.Process(target=serve, args=(shared_folder() / CAPTURE, tell), daemon=True)
    server.start()
    try:
        measure(hear.recv(), options.servers, options.seconds, options.every)
        verdict(shared_folder() / CAPTURE)
    finally:
        server.kill()
        server.join()


if __name__ == "__main__":
    main()
