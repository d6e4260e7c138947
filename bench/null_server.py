"""The null server: a C program that answers every request at once, for measuring the driver alone.

Its source is one of the project's shared facts (`bench/nullserver.c` beside the repository); it is compiled
where it is used and never copied into the project.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FNV_BASIS = 1469598103934665603  # as in nullserver.c, not the textbook's
FNV_PRIME = 1099511628211


class Missing(Exception):
    """What the null server needs is not on this machine; the message says what."""


def shared_folder() -> Path:
    """The folder of shared facts: HEADRACE_SHARED, or `shared` beside the repository.

    Raises:
        Missing: there is none.
    """
    named = os.environ.get("HEADRACE_SHARED")
    folder = Path(named) if named else ROOT.parent / "shared"
    if not (folder / "README.md").is_file():
        raise Missing(f"shared facts not found at {folder} (HEADRACE_SHARED names another place)")
    return folder


def build(folder: Path) -> Path:
    """The compiled null server, in `folder`.

    Raises:
        Missing: no source or no gcc.
    """
    source = shared_folder() / "bench" / "nullserver.c"
    if shutil.which("gcc") is None:
        raise Missing("gcc not found: the null server cannot be compiled")
    binary = folder / "null-server"
    subprocess.run(["gcc", "-O2", "-w", "-o", binary, source], check=True, capture_output=True, text=True)
    return binary


def free_ports(count: int = 1, beside: int = 0) -> int:
    """The first of `count` ports in a row that nobody listens on now.

    They lie below the range from which the kernel takes the ports of outgoing connections.

    Args:
        beside: each port's neighbour so far above it must be free as well.
    """
    for _ in range(200):
        first = random.SystemRandom().randrange(20_000, 32_000)
        wanted = [port + step for port in range(first, first + count) for step in {0, beside}]
        if all(_is_free(port) for port in wanted):
            return first
    raise Missing(f"no {count} free ports in a row on 127.0.0.1 between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def get(url: str, timeout_seconds: float = 10.0) -> bytes:
    """The body of a GET."""
    with urllib.request.urlopen(url, timeout=timeout_seconds) as answer:
        body: bytes = answer.read()
    return body


def request_hash(body: bytes) -> str:
    """The 16 hex digits under which the null server journals a request body (FNV-1a)."""
    value = FNV_BASIS
    for byte in body:
        value = ((value ^ byte) * FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


class NullServer:
    """One running null server on loopback; stops with the `with` block.

    Args:
        binary: from `build`.
        ports: how many ports in a row it listens on.
        first_port: where it listens; None finds a free one.
        cpu: pin it to this core, so that it does not wander onto the driver's.
        options: its flags by name: delay_ms=200, vary=True, journal=path, fail_pct=5, …
    """

    def __init__(
        self,
        binary: Path,
        *,
        ports: int = 1,
        first_port: int | None = None,
        cpu: int | None = None,
        **options: Any,
    ) -> None:
        self.first_port = free_ports(ports) if first_port is None else first_port
        self.urls = [f"http://127.0.0.1:{self.first_port + at}" for at in range(ports)]
        self.url = self.urls[0]
        command = [str(binary), "--port", str(self.first_port), "--ports", str(ports)]
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            command += [flag] if value is True else [flag, str(value)] if value is not False else []
        if cpu is not None and shutil.which("taskset"):
            command = ["taskset", "-c", str(cpu), *command]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)

    def __enter__(self) -> NullServer:
        deadline = time.monotonic() + 10
        while True:
            try:
                get(f"{self.url}/health", 1.0)
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise Missing(
                        f"the null server did not start (exit code {self.process.poll()})"
                    ) from None
                time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stats(self) -> dict[str, Any]:
        """Its counters: req, ok, fail, drop, inflight, inflight_max, span_s, cpu_s, …

        Raises:
            AssertionError: it is gone; the message has its exit code.
        """
        try:
            found: dict[str, Any] = json.loads(get(f"{self.url}/stats"))
        except OSError as error:
            code = self.process.poll()
            assert code is None, f"the null server ended with {code}"
            raise error
        return found

    def reset(self) -> None:
        """Sets its counters to nothing."""
        get(f"{self.url}/reset")

    def kill(self) -> None:
        """kill -9, as a machine that goes away."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ends it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()
