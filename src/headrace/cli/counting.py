"""How far a command is, on a terminal's standard error; silent where that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(noun: str) -> Iterator[Callable[[int, int], None] | None]:
    """Gives a function to call with (done, all); None where nobody would see it. The line goes at the end."""
    if not sys.stderr.isatty():
        yield None
        return

    def say(done: int, whole: int) -> None:
        sys.stderr.write(f"\r{done:,} of {whole:,} {noun}")
        sys.stderr.flush()

    try:
        yield say
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
