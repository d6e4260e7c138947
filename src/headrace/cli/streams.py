"""The process's own standard streams, so that no command fails by them: closed, gone, full or not UTF-8.

A job of days must outlive the reader of its standard output. What is written there goes through a raw stream
that remembers what went wrong instead of raising it; `run` says so once, and the job goes on.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MESSAGE_BYTES = 1 << 20  # buffered, so that what is flushed at once reaches the raw stream at once
PIECE_BYTES = 4096  # a pipe that is ready takes so many without blocking (PIPE_BUF)
_PASSING = (errno.ENOSPC, errno.EDQUOT)  # the next write may go well again


class LastingRaw(io.RawIOBase):
    """A file descriptor whose writes never raise.

    Attributes:
        trouble: what the system said of the first write that failed; None while all went well.
        gone: nothing more is written: nobody reads it.
        waits: whether a write waits for a slow reader. If not, a message that finds it busy is dropped.
    """

    def __init__(self, descriptor: int, write: Callable[[int, ReadableBuffer], int] = os.write) -> None:
        self._descriptor = descriptor
        self._write = write
        self._rest = b""  # of a message that a slow reader has half of
        self.trouble: OSError | None = None
        self.gone = False
        self.waits = True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        try:
            return os.isatty(self._descriptor)
        except OSError:
            return False

    def write(self, data: ReadableBuffer) -> int:
        """The length of the data, whatever became of it."""
        message = bytes(data)
        try:
            if not self.gone and self._send_rest():
                self._rest = message
                self._send_rest()
        except OSError as error:
            self._rest = b""
            self.trouble = self.trouble or error
            self.gone = error.errno not in _PASSING
        return len(message)

    def _send_rest(self) -> bool:
        """Whether nothing is left of the message."""
        while self._rest:
            if not self._ready():
                return False
            try:
                sent = self._write(self._descriptor, self._rest[:PIECE_BYTES])
            except BlockingIOError:  # somebody who shares it made it so
                if self.waits:
                    self._poll(None)
                    continue
                return False
            self._rest = self._rest[sent:]
        return True

    def _ready(self) -> bool:
        return self.waits or self._poll(0)

    def _poll(self, milliseconds: int | None) -> bool:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        return bool(poller.poll(milliseconds))


def guard_streams() -> None:
    """Makes standard output and error safe to write to; does nothing where they are not the process's own."""
    _fill_closed()
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper) and _is_descriptor_1():
        sys.stdout = _lasting(sys.stdout, 1)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _lasting(sys.stderr, 2)


def _fill_closed() -> None:
    """Opens /dev/null in the place of closed standard streams: else the next file opened would be one.

    Standard output that was closed from the start counts as gone, see `trouble_of_stdout`.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free one: this one
    if sys.stdout is None:
        raw = LastingRaw(1)
        raw.trouble, raw.gone = OSError(errno.EBADF, "it is closed"), True
        sys.stdout = _text(raw, "utf-8", line_buffering=False)
    if sys.stderr is None:
        sys.stderr = _text(LastingRaw(2), "utf-8", line_buffering=True)


def _is_descriptor_1() -> bool:
    try:
        return sys.stdout.fileno() == 1
    except (OSError, ValueError):
        return False


def _lasting(stream: io.TextIOWrapper, descriptor: int) -> TextIO:
    stream.flush()
    at_once = stream.line_buffering or stream.write_through  # the latter with `python -u`
    return _text(LastingRaw(descriptor), stream.encoding, line_buffering=at_once)


def _text(raw: LastingRaw, encoding: str, *, line_buffering: bool) -> TextIO:
    # "replace": a terminal that cannot show a letter shows a question mark
    return io.TextIOWrapper(
        io.BufferedWriter(raw, MESSAGE_BYTES),
        encoding=encoding,
        errors="replace",
        line_buffering=line_buffering,
    )


def _raw_stdout() -> LastingRaw | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, LastingRaw) else None


def trouble_of_stdout() -> OSError | None:
    """What went wrong with standard output so far."""
    raw = _raw_stdout()
    return raw.trouble if raw is not None else None


def is_stdout_gone() -> bool:
    """Whether nobody reads standard output any more."""
    raw = _raw_stdout()
    return raw is not None and raw.gone


@contextmanager
def never_waiting() -> Iterator[None]:
    """Within, a reader of standard output who is slow, or a stopped terminal, misses what it cannot take."""
    raw = _raw_stdout()
    if raw is None:
        yield
        return
    raw.waits = False
    try:
        yield
    finally:
        raw.waits = True


def last_flush() -> str | None:
    """What must be said of standard output at the end: that a full disk, say, took only a part of it."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return None  # not ours
    trouble = trouble_of_stdout()
    if trouble is None or trouble.errno in (errno.EPIPE, errno.EBADF, errno.EIO):
        return None  # nobody reads it, and nobody is misled
    return f"standard output is not complete: {trouble.strerror}."
