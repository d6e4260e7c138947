"""A running job in the terminal, from 80 columns on: what a person looks at while it runs.

Pure: the same `JobStatus` and width always give the same picture. How to read it: `tok/s` counts what
requests in flight have already made; servers show in flight / limit on our side, and what they say
themselves (running + queued / cap). States have a word and a shape; the colour only repeats them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.drive.status import EndpointStatus, JobStatus, SourceStatus
from headrace.report.figures import UNKNOWN, count, cut, duration, listing, printable, rate, share, short_url

MAX_ENDPOINTS = 16  # more are summarised, the worst ones shown
SHOWN_OF_MANY = 12
MIN_ENDPOINTS = 3
MAX_SOURCES = 8
MAX_WHYS = 4
MAX_NOTES = 3  # of how the job began

# worst first; the shape stands before the word
STATES: dict[str, tuple[str, str]] = {
    "broken": ("✖", "red"),
    "refusing": ("⊘", "red"),
    "limited": ("◐", "yellow"),
    "draining": ("▽", "cyan"),
    "drained": ("□", "cyan"),
    "removed": ("-", "dim"),
    "reachable": ("●", "green"),
}
PHASE_STYLES = {"paused": "yellow", "draining": "yellow", "stopped": "yellow", "finished": "green"}


def live_view(status: JobStatus, width: int = 80, height: int | None = None) -> RenderableType:
    """The whole picture of a running job, no line wider than `width` (at least 60) columns.

    Where it would be higher than `height` lines, fewer servers are shown, the worst ones (at least three).
    """
    parts: list[RenderableType] = [_header(status, width), *_rate_lines(status, width)]
    if status.message:
        parts.append(_line("! " + printable(status.message), width, "yellow", lines=3))
    whys, notes = _whys(status.endpoints, width), _notes(status, width)
    if status.endpoints:
        others = len(parts) + len(whys) + len(notes) + min(len(status.notes), MAX_NOTES)
        others += min(len(status.sources), MAX_SOURCES) + 8
        room = MAX_ENDPOINTS if height is None else max(height - others, MIN_ENDPOINTS)
        parts += [Text(), _endpoint_table(status.endpoints, width, room), *whys]
    if status.sources:
        parts += [Text(), _source_table(status.sources, width)]
    if notes:
        parts += [Text(), *notes]
    return Group(*parts)


def _header(status: JobStatus, width: int) -> Text:
    settled_rows = status.done + status.failed + status.excluded
    done_text = f"{count(settled_rows)} of {count(status.rows)} rows"
    share_text = share(settled_rows, status.rows)
    left = ""
    if status.eta_seconds is not None and status.phase in ("running", "draining"):
        left = f"  {duration(status.eta_seconds)} left"
    tail = f" {share_text}  {done_text}{left}"
    bar_width = max(10, min(40, width - len(status.phase) - 2 - len(tail)))
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(status.phase, style=f"bold {PHASE_STYLES.get(status.phase, '')}".strip())
    text.append("  ")
    fraction = settled_rows / status.rows if status.rows else 0.0
    text.append_text(_bar(fraction, bar_width))
    text.append(tail)
    text.truncate(width, overflow="ellipsis")
    return text


def _bar(fraction: float, width: int) -> Text:
    """A bar; full only when everything is done."""
    filled = int(min(max(fraction, 0.0), 1.0) * width)
    return Text.assemble(("█" * filled, "green"), ("░" * (width - filled), "dim"))


def _rate_lines(status: JobStatus, width: int) -> list[Text]:
    speed = f"{rate(status.output_tokens_per_second)} output tok/s"
    if status.output_tokens_per_second is None:
        speed = "output tok/s not known before the first answers"
    elif status.in_flight_tokens is not None:
        speed += ", in flight included"
    parts = [f"{rate(status.requests_per_second)} req/s", speed]
    running = status.phase not in ("finished", "stopped")
    if status.output_tokens_per_second_finished is not None and not status.settled and running:
        parts.append(f"finished only {rate(status.output_tokens_per_second_finished)} (too low yet)")
    parts += [
        f"in flight {count(status.in_flight)} of {count(status.in_flight_limit)}",
        f"latency {duration(status.median_latency_seconds)}",
        f"answer {rate(status.mean_output_tokens)} tokens",
        f"running for {duration(status.elapsed_seconds)}",
    ]
    return _flow(parts, width)


def _flow(parts: Sequence[str], width: int) -> list[Text]:
    """The parts, as many on a line as there is room for."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += " · " + part
        else:
            lines.append(part)
    return [_line(line, width) for line in lines]


def _line(text: str, width: int, style: str = "", lines: int = 1) -> Text:
    """Text of at most `lines` lines of `width` columns."""
    return Text(cut(text, width * lines - (lines - 1) * 20), style=style, overflow="fold", no_wrap=lines == 1)


def _table(width: int) -> Table:
    return Table(
        box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=False, width=width, header_style="bold"
    )


def _endpoint_table(endpoints: Sequence[EndpointStatus], width: int, room: int) -> RenderableType:
    shown = list(endpoints)
    parts: list[RenderableType] = []
    if len(endpoints) > min(room, MAX_ENDPOINTS):
        shown = sorted(endpoints, key=_badness)[: min(room, SHOWN_OF_MANY)]
        states = Counter(endpoint.state for endpoint in endpoints)
        summary = ", ".join(f"{states[state]} {state}" for state in reversed(STATES) if states[state])
        parts.append(_line(f"{len(endpoints)} servers: {summary}; the {len(shown)} worst:", width))
    wide = width >= 100
    url_width = 34 if wide else 21
    table = _table(width)
    table.add_column("server", no_wrap=True, min_width=8, max_width=url_width, ratio=1)
    table.add_column("state", no_wrap=True, width=11)
    table.add_column("in flight", justify="right", no_wrap=True, min_width=9)
    table.add_column("run+queue/cap" if wide else "run/cap", justify="right", no_wrap=True, min_width=7)
    table.add_column("tok/s", justify="right", no_wrap=True, min_width=6)
    table.add_column("latency", justify="right", no_wrap=True, min_width=7)
    table.add_column("answered", justify="right", no_wrap=True, min_width=8)
    table.add_column("errors", justify="right", no_wrap=True, min_width=6)
    if wide:
        table.add_column("limit", no_wrap=True, min_width=10)
    for endpoint in shown:
        shape, style = STATES.get(endpoint.state, ("?", ""))
        cells: list[RenderableType] = [
            Text(short_url(printable(endpoint.url), url_width)),
            Text(f"{shape} {endpoint.state}", style=style),
            f"{endpoint.in_flight}/{endpoint.limit}",
            _load(endpoint, wide),
            rate(endpoint.output_tokens_per_second),
            _latency(endpoint.median_latency_seconds),
            count(endpoint.answered),
            count(sum(endpoint.errors.values())),
        ]
        if wide:
            cells.append(endpoint.limit_origin)
        table.add_row(*cells)
    return Group(*parts, table)


def _badness(endpoint: EndpointStatus) -> tuple[int, int, float]:
    order = list(STATES)
    rank = order.index(endpoint.state) if endpoint.state in order else 0
    return rank, -sum(endpoint.errors.values()), endpoint.output_tokens_per_second or 0.0


def _load(endpoint: EndpointStatus, wide: bool) -> str:
    """What the server says of itself: running, queued where there are any (or room), cap."""
    if endpoint.running is None and endpoint.queued is None and endpoint.cap is None:
        return UNKNOWN
    running = UNKNOWN if endpoint.running is None else str(endpoint.running)
    queued = f"+{endpoint.queued}" if endpoint.queued or (wide and endpoint.queued is not None) else ""
    cap = f"/{endpoint.cap}" if endpoint.cap is not None else ""
    return f"{running}{queued}{cap}"


def _latency(seconds: float | None) -> str:
    """Fits seven columns."""
    if seconds is None:
        return UNKNOWN
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _whys(endpoints: Sequence[EndpointStatus], width: int) -> list[Text]:
    """Why servers are not reachable, in their own words."""
    told = [endpoint for endpoint in sorted(endpoints, key=_badness) if endpoint.why]
    lines = []
    for endpoint in told[:MAX_WHYS]:
        shape, style = STATES.get(endpoint.state, ("?", ""))
        lines.append(
            _line(
                f"{shape} {short_url(printable(endpoint.url), 30)}: {printable(endpoint.why)}", width, style
            )
        )
    if len(told) > MAX_WHYS:
        lines.append(_line(f"  and {len(told) - MAX_WHYS} more servers with something to say", width, "dim"))
    return lines


def _source_table(sources: Sequence[SourceStatus], width: int) -> RenderableType:
    table = _table(width)
    table.add_column("source", no_wrap=True, min_width=8, max_width=40, ratio=1)
    for name in ("rows", "done", "failed", "excluded"):
        table.add_column(name, justify="right", no_wrap=True, min_width=8)
    table.add_column("mean tokens", justify="right", no_wrap=True, min_width=11)
    table.add_column("truncated", justify="right", no_wrap=True, min_width=9)
    for source in sources[:MAX_SOURCES]:
        table.add_row(
            Text(printable(source.name)),
            count(source.rows),
            count(source.done),
            count(source.failed),
            count(source.excluded),
            rate(source.mean_output_tokens),
            count(source.truncated),
        )
    if len(sources) <= MAX_SOURCES:
        return table
    rest = sources[MAX_SOURCES:]
    done, rows = sum(source.done for source in rest), sum(source.rows for source in rest)
    return Group(
        table, _line(f"and {len(rest)} more sources: {count(done)} of {count(rows)} rows done", width, "dim")
    )


def _notes(status: JobStatus, width: int) -> list[Text]:
    """Flags and failures by kind, then what the job noted of how it began."""
    lines = []
    if status.other_rows:
        said = f"{count(status.other_rows)} in {printable(status.out)} answer none of this job's prompts"
        lines.append(_line(f"other rows    {said}", width, "yellow"))
    if any(status.flags.values()):
        lines.append(_line(f"flags         {listing(status.flags)}", width))
    if any(status.errors.values()):
        lines.append(_line(f"failed tries  {listing(status.errors)}", width))
    if any(status.failures.values()):
        lines.append(_line(f"in failed/    {listing(status.failures)}", width))
    if status.hedged:
        lines.append(
            _line(f"hedged        {count(status.hedged)} rows asked of a second server near the end", width)
        )
    told = status.notes[:MAX_NOTES]
    lines += [_line(f"note          {printable(note)}", width, "yellow", lines=2) for note in told]
    if len(status.notes) > MAX_NOTES:
        lines.append(_line(f"              and {len(status.notes) - MAX_NOTES} more notes", width, "dim"))
    return lines
