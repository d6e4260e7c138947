"""`headrace watch` on emulated servers: in a terminal with keys, as lines, and on a job."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from headrace import api
from headrace.report.watch_document import WatchDocument
from headrace.simulate.emulate.fleet import ThreadedFleet
from headrace.simulate.emulate.options import EmulatorOptions

ARGS = (sys.executable, "-m", "headrace", "watch", "--every", "0.3")


@pytest.fixture
def fleet() -> Iterator[ThreadedFleet]:
    with ThreadedFleet(EmulatorOptions(replicas=2, cap=8, speed=20)) as running:
        yield running


def test_a_server_that_stops_is_silent_and_the_other_stays(fleet: ThreadedFleet) -> None:
    seen: list[WatchDocument] = []

    def look(document: WatchDocument) -> None:
        seen.append(document)
        if len(seen) == 2:
            fleet.stop_replica(1)

    api.watch(fleet.urls, on_look=look, every_seconds=0.2, looks=4)
    assert [document.answering for document in seen] == [2, 2, 1, 1]
    assert seen[-1].servers[0].cap == 8
    assert "connect" in seen[-1].servers[1].problem


def test_lines_where_there_is_no_terminal(fleet: ThreadedFleet) -> None:
    done = subprocess.run(
        [*ARGS, *fleet.urls, "--once"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("headrace watch  2 of 2 servers answer")
    done = subprocess.run(
        [*ARGS, *fleet.urls, "--once", "--json"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["fleet"]["answering"] == 2
    running = subprocess.Popen([*ARGS, *fleet.urls], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    with running:
        lines = [running.stdout.readline() for _ in range(3)]
        running.send_signal(signal.SIGINT)
        running.stdout.read()
    assert running.returncode == 0, "Ctrl-C is the way to leave"
    assert all("servers=2/2" in line for line in lines)


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_a_full_screen_that_a_key_leaves(fleet: ThreadedFleet, key: bytes) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    watching = subprocess.Popen(
        [*ARGS, *fleet.urls],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(theirs)
    shown = _read_until(ours, b"q leaves")
    assert b"\x1b[?1049h" in shown, "the alternate screen"
    assert b"2 of 2 servers answer" in shown
    os.write(ours, key)
    rest = _read_until(ours, None)
    assert watching.wait(20) == 0
    os.close(ours)
    assert b"\x1b[?1049l" in rest, "the terminal's own screen is back"
    assert b"servers answer" in rest.split(b"\x1b[?1049l")[1], "the last picture stays"


def _own_terminal() -> None:
    """Makes the pseudo-terminal the child's own, so that Ctrl-C is a signal to it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_until(descriptor: int, word: bytes | None) -> bytes:
    """What comes until a word, or (None) until the other side closes; at most 30 seconds."""
    found, end = b"", time.monotonic() + 30
    while time.monotonic() < end:
        if not select.select([descriptor], [], [], 0.2)[0]:
            continue
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:  # Linux says so when the last process with the terminal has ended
            return found
        if not piece:
            return found
        found += piece
        if word is not None and word in found:
            return found
    return found
