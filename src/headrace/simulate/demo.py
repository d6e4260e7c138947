"""The demo's job: its prompts, its job file, and emulated servers in a child process that ends with it."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from headrace.errors import UnreachableError
from headrace.simulate.demo_prompts import write_prompts

START_SECONDS = 60.0
STOP_SECONDS = 5.0
# What goes wrong in the demo's fleet: 1 % of requests are turned away, 1 % are cut off in the middle, and one
# server dies when it has answered half of its share and is back 6 s later.
FAULTS = ("--error-503", "1", "--drop-middle", "1")
CRASH = ("--crash-after", "{replica}={answers}", "--back-after-seconds", "{replica}=6")
MEAN_OUTPUT_TOKENS = 220

JOB = """\
# Written by `headrace demo`. The servers are emulated and gone when the demo ends.
out: data
servers: [{servers}]
in_flight: auto
sampling: {{max_tokens: 700, temperature: 0.7}}
thinking: true
sources:
  - prompts: prompts/shop.jsonl        # the question is recognised in the column `question`, the ids in `id`
    name: shop
  - prompts: prompts/trips.csv
    name: trips
    sampling: {{max_tokens: 300}}
    thinking: false
  - prompts: prompts/teacher.jsonl     # chats: `messages`
    name: teacher
flags_policy: {{truncated: keep, empty: retry_once}}
"""


@contextmanager
def demo_job(*, rows: int, out: Path, speed: float, replicas: int) -> Iterator[Path]:
    """The job file of the demo in `out`, beside its prompts; its servers run while the block does.

    Args:
        speed: so many times faster than real servers.

    Raises:
        UnreachableError: the servers did not start.
    """
    write_prompts(out / "prompts", rows)
    with emulated_servers(replicas, speed, crash_after=max(rows // replicas // 2, 1)) as urls:
        job_file = out / "job.yaml"
        job_file.write_text(JOB.format(servers=", ".join(urls)), encoding="utf-8")
        yield job_file


@contextmanager
def emulated_servers(replicas: int, speed: float, crash_after: int) -> Iterator[list[str]]:
    """URLs of a fleet in a child process, which ends with the block, or with this process however it ends."""
    crash: list[str] = []
    if replicas >= 3:
        crash = [word.format(replica=replicas - 2, answers=crash_after) for word in CRASH]
    command = [sys.executable, "-m", "headrace", "emulate", "--replicas", str(replicas), "--base-port", "0"]
    command += ["--speed", str(speed), "--mean-output-tokens", str(MEAN_OUTPUT_TOKENS)]
    command += ["--reasoning-parser", "demo", *FAULTS, *crash]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the job: it drains, and needs its servers for that
        preexec_fn=_die_with_parent,
    )
    try:
        yield _first_lines(child, replicas)
    finally:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()


def _die_with_parent() -> None:
    """In the child, before it begins: ask the kernel to end it when this process is gone (Linux)."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


_LIBC: Any = ctypes.CDLL(None) if sys.platform == "linux" else None


def _first_lines(child: subprocess.Popen[str], count: int) -> list[str]:
    """The URLs that the child prints once all its ports are open.

    Raises:
        UnreachableError: it ended, or said nothing within START_SECONDS.
    """
    assert child.stdout is not None
    assert child.stderr is not None
    deadline = time.monotonic() + START_SECONDS
    urls: list[str] = []
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while len(urls) < count:
            if child.poll() is None and not selector.select(deadline - time.monotonic()):
                raise UnreachableError(
                    f"the emulated servers did not start within {START_SECONDS:g} s. Try again."
                )
            lines = _available(child.stdout)
            if not lines and child.poll() is not None:
                raise UnreachableError(f"the emulated servers did not start: {child.stderr.read().strip()}")
            urls += lines
    return urls[:count]


def _available(stream: IO[str]) -> list[str]:
    """The lines that can be read now (the child writes them all at once)."""
    return os.read(stream.fileno(), 1 << 16).decode().split()
