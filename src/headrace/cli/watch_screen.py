"""The I/O around `watch`: a full-screen table with keys, lines, JSON, or one picture at the end."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from headrace.cli.streams import is_stdout_gone

if TYPE_CHECKING:
    from headrace.report.watch_document import WatchDocument

_MIN_COLUMNS = 70
_LEAVE = (b"q", b"Q", b"\x04")  # Ctrl-D as well


class Screen(Protocol):
    """What shows the moments of a watch."""

    def show(self, document: WatchDocument) -> None:
        """Shows one moment."""
        ...

    def leaves(self) -> bool:
        """Whether whoever looks wants to leave."""
        ...


class Lines:
    """A line per look, on standard output."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def show(self, document: WatchDocument) -> None:
        sys.stdout.write(self._line(document) + "\n")
        sys.stdout.flush()

    def leaves(self) -> bool:
        return is_stdout_gone()

    def _line(self, document: WatchDocument) -> str:
        if self._as_json:
            import msgspec

            return msgspec.json.encode(document.to_json()).decode()
        from headrace.report.watch_view import watch_line

        return watch_line(document)


class Once:
    """The last moment alone: as a picture, or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._last: WatchDocument | None = None

    def show(self, document: WatchDocument) -> None:
        self._last = document

    def leaves(self) -> bool:
        return False

    def end(self) -> None:
        if self._last is None:
            return
        if self._as_json:
            Lines(as_json=True).show(self._last)
            return
        from rich.console import Console

        from headrace.report.watch_view import watch_view

        console = Console(highlight=False, markup=False, emoji=False)
        console.print(watch_view(self._last, max(console.width, _MIN_COLUMNS)))


class FullScreen:
    """A table over the whole terminal; the last picture stays when it is left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, screen=True)
        self._last: WatchDocument | None = None

    def start(self) -> None:
        self._live.start()

    def show(self, document: WatchDocument) -> None:
        from rich.console import Group
        from rich.text import Text

        from headrace.report.watch_view import watch_view

        self._last = document
        width, height = self._console.size
        foot = Text("q leaves", style="dim")
        self._live.update(Group(watch_view(document, width, height - 1), foot), refresh=True)

    def leaves(self) -> bool:
        """Whether q was pressed, or the terminal is gone."""
        while select.select([sys.stdin], [], [], 0)[0]:
            key = os.read(sys.stdin.fileno(), 1)
            if not key or key in _LEAVE:
                return True
        return is_stdout_gone()

    def end(self) -> None:
        from headrace.report.watch_view import watch_view

        self._live.stop()
        if self._last is not None:
            self._console.print(watch_view(self._last, *self._console.size))


@contextmanager
def show(*, once: bool, as_json: bool) -> Iterator[Screen]:
    """The screen that fits: full where both ends are a terminal wide enough, else lines."""
    if once:
        last = Once(as_json=as_json)
        yield last
        last.end()
        return
    import shutil

    wide = shutil.get_terminal_size().columns >= _MIN_COLUMNS
    if as_json or not (sys.stdout.isatty() and sys.stdin.isatty() and wide):
        yield Lines(as_json=as_json)
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    full = FullScreen()
    full.start()
    try:
        tty.setcbreak(sys.stdin)  # keys come at once; Ctrl-C is still a signal
        yield full
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        full.end()
