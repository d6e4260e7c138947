"""The I/O around the views: a live table, lines, or JSON on standard output, from the statuses of a job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headrace.cli.streams import is_stdout_gone
from headrace.clock import Clock, SystemClock

if TYPE_CHECKING:
    from headrace.drive.status import JobStatus

MIN_TABLE_COLUMNS = 60
FIRST_LINES_SECONDS = 10.0  # a plain line this often in the first five minutes, then
LATER_LINES_SECONDS = 60.0
JSON_SECONDS = 2.0
FINAL_PHASES = ("finished", "stopped")


def choose(asked: str, *, terminal: bool, columns: int) -> str:
    """`table`, `plain`, `json` or `none`: what `auto` is here."""
    if asked != "auto":
        return asked
    return "table" if terminal and columns >= MIN_TABLE_COLUMNS else "plain"


class TableView:
    """A live table on the terminal; the last picture stays."""

    every_seconds = 0.5

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, status: JobStatus) -> None:
        from headrace.report.job_view import live_view

        width, height = self._console.size
        self._live.update(live_view(status, width, height), refresh=True)


class LineView:
    """Lines on standard output, not more often than `gap` says (seconds, from the job's age).

    What the job has noted of how it began comes once, in lines of its own, if there is a `note_line`.
    """

    every_seconds = 1.0

    def __init__(
        self,
        line: Callable[[JobStatus], str],
        gap: Callable[[float], float],
        clock: Clock | None = None,
        note_line: Callable[[JobStatus, str], str] | None = None,
    ) -> None:
        self._line = line
        self._gap = gap
        self._note_line = note_line
        self._noted: set[str] = set()
        self._clock = clock or SystemClock()
        self._last: float | None = None
        self._said: tuple[str, str] = ("", "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, status: JobStatus) -> None:
        """Prints a line when it is time, and at once when the phase or the message changes."""
        now = self._clock.monotonic()
        said = (status.phase, "" if status.phase == "starting" else status.message)
        due = self._last is None or now - self._last >= self._gap(status.elapsed_seconds)
        if due or said != self._said:
            self._last, self._said = now, said
            sys.stdout.write(self._line(status) + "\n")
        if self._note_line is not None:
            for note in status.notes:
                if note not in self._noted:
                    self._noted.add(note)
                    sys.stdout.write(self._note_line(status, note) + "\n")
        sys.stdout.flush()


class NoView:
    """Shows nothing."""

    every_seconds = 5.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, status: JobStatus) -> None:
        return None


View = TableView | LineView | NoView


def plain_gap_seconds(elapsed_seconds: float) -> float:
    """Seconds between plain lines: often at first, rarely in a long job."""
    return FIRST_LINES_SECONDS if elapsed_seconds < 300 else LATER_LINES_SECONDS


def view_of(progress: str) -> View:
    """The view that shows a running job in this form."""
    from headrace.report.job_lines import json_line, note_line, plain_line

    if progress == "table":
        return TableView()
    if progress == "plain":
        return LineView(plain_line, plain_gap_seconds, note_line=note_line)
    if progress == "json":
        return LineView(json_line, lambda elapsed_seconds: JSON_SECONDS)
    return NoView()


def show_status(out: Path, *, as_json: bool) -> None:
    """Prints the job's status once; a snapshot with its age and the host that wrote it."""
    from headrace.drive.commands import read_status

    status, live = read_status(out)
    if as_json:
        _print_json(status, live)
        return
    from rich.console import Console

    from headrace.report.job_view import live_view

    console = Console()
    console.print(live_view(status, console.width))
    if not live:
        console.print(snapshot_note(status, SystemClock().wall()), style="dim", markup=False, highlight=False)


def _print_json(status: JobStatus, live: bool) -> None:
    from headrace.report.job_lines import found_line

    sys.stdout.write(found_line(status, live, age_seconds(status, SystemClock().wall())) + "\n")
    sys.stdout.flush()


def age_seconds(status: JobStatus, wall_time: float) -> float:
    """Seconds since the status was made; 0 where clocks disagree."""
    return max(wall_time - status.wall_time, 0.0)


def snapshot_note(status: JobStatus, wall_time: float) -> str:
    """What to know of a status that no running job gave."""
    from headrace.report.figures import duration, printable

    age, host = duration(age_seconds(status, wall_time)), printable(status.host)
    if status.phase in FINAL_PHASES:
        more = " The same `headrace run` goes on with it." if status.phase == "stopped" else ""
        return f"The job ended {age} ago on {host}.{more}"
    return (
        f"A snapshot of {age} ago, by process {status.pid} on {host}; nothing answers here. "
        "If it does not run there either, the same `headrace run` goes on with it."
    )


def watch_status(out: Path, *, as_json: bool, every_seconds: float) -> None:
    """Shows the job's status again and again until it ends, nobody reads it, or Ctrl-C."""
    from headrace.drive.commands import read_status

    form = "json" if as_json else choose("auto", terminal=sys.stdout.isatty(), columns=_columns())
    with view_of(form) as view:
        while True:
            status, live = read_status(out)
            if as_json:
                _print_json(status, live)
            else:
                view.show(status)
            if status.phase in FINAL_PHASES or not live or is_stdout_gone():
                break
            time.sleep(every_seconds)
    if not live and not as_json:
        sys.stdout.write(snapshot_note(status, SystemClock().wall()) + "\n")


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
