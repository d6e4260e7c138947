"""Standard output that is closed, gone, full or slow: nothing is raised, and what happened is known."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator

import pytest

from headrace.cli import running, streams
from headrace.cli.streams import LastingRaw


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """(read end, write end) of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass


def guard(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> LastingRaw:
    """Standard output from here on, guarded. Not a fixture: pytest sets its own before the test."""
    raw = LastingRaw(descriptor)
    monkeypatch.setattr(sys, "stdout", streams._text(raw, "ascii", line_buffering=False))
    return raw


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def test_a_reader_that_went_away_is_known_and_not_raised(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    guard(monkeypatch, pipe[1])
    say("one")
    assert os.read(pipe[0], 100) == b"one\n"
    assert (streams.trouble_of_stdout(), streams.is_stdout_gone()) == (None, False)
    os.close(pipe[0])
    say("two")
    say("three")
    trouble = streams.trouble_of_stdout()
    assert trouble is not None
    assert trouble.errno == errno.EPIPE
    assert streams.is_stdout_gone()
    assert streams.last_flush() is None


def test_a_full_disk_is_passing_and_told_at_the_end(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    stdout = guard(monkeypatch, pipe[1])
    written: list[bytes] = []
    full = True

    def write(descriptor: int, data: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(bytes(data))
        return len(data)

    monkeypatch.setattr(stdout, "_write", write)
    say("lost")
    full = False
    say("kept")
    assert written == [b"kept\n"]
    assert not streams.is_stdout_gone()
    assert streams.last_flush() == "standard output is not complete: No space left on device."


def test_a_slow_reader_gets_whole_messages_and_misses_the_rest(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    stdout = guard(monkeypatch, pipe[1])
    with streams.never_waiting():
        for number in range(100):
            say(f"{number:03}" + "x" * 9996)  # 1 MB into a pipe that takes 64 KiB
    got = bytearray()
    with streams.never_waiting():
        for _ in range(2):
            while True:
                os.set_blocking(pipe[0], False)
                try:
                    got += os.read(pipe[0], 1 << 20)
                except BlockingIOError:
                    break
            say("end")
    lines = got.decode().splitlines()
    assert [int(line[:3]) for line in lines[:-1]] == list(range(len(lines) - 1))
    assert {len(line) for line in lines[:-1]} == {9999}
    assert lines[-1] == "end"
    assert 6 <= len(lines) < 20
    assert stdout.waits


def test_letters_that_the_terminal_lacks_are_replaced(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    guard(monkeypatch, pipe[1])
    say("● \udcff")
    assert os.read(pipe[0], 100) == b"? ?\n"


def test_the_lost_view_is_told_once(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    guard(monkeypatch, pipe[1])
    tell = running._once_lost(running.Path("out"))
    tell()
    os.close(pipe[0])
    say("x")
    tell()
    tell()
    assert capsys.readouterr().err == (
        "headrace: standard output takes nothing more (Broken pipe); the job goes on. "
        "See it with `headrace status out`.\n"
    )


def test_streams_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = io.StringIO()
    monkeypatch.setattr(sys, "stdout", theirs)
    streams.guard_streams()
    assert sys.stdout is theirs
    assert streams.last_flush() is None
