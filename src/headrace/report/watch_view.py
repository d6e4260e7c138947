"""A watched fleet in the terminal, from 80 columns on, and as one line.

Pure: the same document and width always give the same picture. Pools are lanes: the solid part is held, the
shaded part is reserved beside it. A server that does not answer has a shape and its reason, not colour alone.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.report.constraint_words import HEADLINES, sureness
from headrace.report.figures import UNKNOWN, count, cut, duration, printable, rate, share, short_url
from headrace.report.watch_document import ServerRow, Total, WatchDocument, worst_first
from headrace.words import Constraint

_WIDE = 104  # columns from which lanes are longer, and power and clock have a place
_READ = (
    "How to read this: 32+4/37 are requests in the batch, waiting, and the most that may run. Lanes "
    "show pools: █ held, ▒ reserved for what runs, ░ free. tok/s is output of the last minute; step is one "
    "forward pass; hits are prompt tokens from the prefix cache. – is what a server does not tell."
)
_FIXED_LINES = 10  # head, sums, verdict, table head, how to read this
_FEWEST_ROWS = 3
_MOST_NAMED = 4  # silent servers on a line
_EIGHTHS = " ▏▎▍▌▋▊▉"


def watch_view(document: WatchDocument, width: int = 80, height: int | None = None) -> RenderableType:
    """Returns the whole picture, no line wider than `width` (at least 70) columns.

    Where it would be higher than `height` lines, fewer servers are shown, the worst ones (at least three).
    """
    parts: list[RenderableType] = [_head(document, width), _sums(document, width)]
    parts += _verdict(document, width)
    if document.job is not None:
        parts.append(_labelled("job", _job(document), width))
    room = len(document.servers) if height is None else max(_FEWEST_ROWS, height - _FIXED_LINES - len(parts))
    rows = list(document.servers)
    hidden = len(rows) - room
    if hidden > 0:
        rows = worst_first(rows)[: room - 1]
        hidden = len(document.servers) - len(rows)
    parts += [Text(), _table(rows, width)]
    if hidden > 0:
        parts.append(Text(f"and {hidden:,} more; shown are those with the longest queues", style="dim"))
    parts.append(Text(_READ, style="dim"))
    return Group(*parts)


def watch_line(document: WatchDocument) -> str:
    """Returns one line of `name=value` for logs; what is not known is left out."""
    whole = int(document.seconds)
    parts = [
        f"[{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}]",
        f"servers={document.answering}/{len(document.servers)}",
    ]
    for name in ("running", "queued", "cap", "output_tokens_per_s"):
        total = document.total(name)
        if total is not None:
            parts.append(f"{name}={total.value:.0f}")
    if document.verdict is not None:
        parts.append(f"verdict={document.verdict.constraint} confidence={document.verdict.confidence:.2f}")
    if document.job is not None:
        parts.append(f"job={document.job.phase} done={document.job.done} rows={document.job.rows}")
    silent = [printable(row.name) for row in document.servers if row.problem]
    if silent:
        more = f",and_{len(silent) - _MOST_NAMED}_more" if len(silent) > _MOST_NAMED else ""
        parts.append(f"silent={','.join(silent[:_MOST_NAMED])}{more}")
    return " ".join(parts)


def _head(document: WatchDocument, width: int) -> Text:
    silent = len(document.servers) - document.answering
    text = Text("headrace watch", style="bold")
    text.append(f"  {document.answering} of {len(document.servers)} servers answer", style="not bold")
    if silent:
        text.append(f"  ✖ {silent} silent", style="not bold red")
    text.append(f"  {duration(document.seconds)}", style="not bold dim")
    text.truncate(width, overflow="ellipsis")
    return text


def _sums(document: WatchDocument, width: int) -> Text:
    parts = []
    for name, said in (("running", "running"), ("queued", "queued"), ("cap", "cap")):
        if (total := document.total(name)) is not None:
            parts.append(f"{total.value:,.0f} {said}{_of(total, document)}")
    if (total := document.total("output_tokens_per_s")) is not None:
        parts.append(f"{rate(total.value)} output tok/s{_of(total, document)}")
    return _labelled("fleet", " · ".join(parts) or "nothing told yet", width)


def _of(total: Total, document: WatchDocument) -> str:
    """How many servers told, where not all that answer did."""
    return (
        "" if total.servers == document.answering else f" ({total.servers} of {document.answering} servers)"
    )


def _verdict(document: WatchDocument, width: int) -> list[Text]:
    line = document.verdict
    if line is None:
        return [_labelled("verdict", "none yet", width)]
    if line.constraint == Constraint.UNKNOWN:
        head = f"? unknown: {HEADLINES[Constraint.UNKNOWN]}"
    else:
        mark, word = sureness(line.confidence)
        said = HEADLINES[Constraint(line.constraint)]
        head = f"{mark} {line.constraint} ({word}, {line.confidence:.2f}): {said}"
    found = [_labelled("verdict", head, width)]
    if line.evidence:
        found.append(_labelled("", line.evidence, width))
    return found


def _job(document: WatchDocument) -> str:
    job = document.job
    assert job is not None
    settled = job.done + job.failed + job.excluded
    parts = [
        f"{job.phase} {share(settled, job.rows)}",
        f"{count(settled)} of {count(job.rows)} rows",
    ]
    if job.eta_seconds is not None and job.phase in ("running", "draining"):
        parts.append(f"{duration(job.eta_seconds)} left")
    parts.append(f"in flight {count(job.in_flight)} of {count(job.in_flight_limit)}")
    if job.message:
        parts.append(f"! {job.message}")
    return " · ".join(parts)


def _labelled(label: str, text: str, width: int) -> Text:
    return Text(f"{label:<8}", style="bold").append(cut(printable(text), width - 8), style="not bold")


def _table(rows: list[ServerRow], width: int) -> RenderableType:
    wide = width >= _WIDE
    has_states = any(row.state_held is not None or row.state_reserved is not None for row in rows)
    cells = 14 if wide else 6 if has_states else 12
    columns: list[tuple[str, str, Callable[[ServerRow], Text]]] = [
        ("server", "left", lambda row: _name(row, 34 if wide else 19)),
        ("run+queue/cap" if wide else "run/cap", "right", lambda row: Text(_load(row))),
        ("KV pool", "left", lambda row: _lane(row.kv_usage, None, cells)),
    ]
    if has_states:
        columns.append(("states", "left", lambda row: _lane(row.state_held, row.state_reserved, cells)))
    columns += [
        ("tok/s", "right", lambda row: Text(rate(row.output_tokens_per_s))),
        ("step ms", "right", lambda row: Text(rate(row.step_seconds and row.step_seconds * 1e3))),
        ("hits", "right", lambda row: Text(_percent(row.cache_hit_rate))),
    ]
    if wide and any(row.gpu_power_w is not None for row in rows):
        columns.append(("W", "right", lambda row: Text(rate(row.gpu_power_w))))
    if wide and any(row.sm_clock_mhz is not None for row in rows):
        columns.append(("MHz", "right", lambda row: Text(rate(row.sm_clock_mhz))))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for head, justify, _ in columns:
        table.add_column(head, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        if not row.problem:
            table.add_row(*(draw(row) for _, _, draw in columns))
    silent = [row for row in rows if row.problem]
    lines = []
    for row in silent:
        said = f"✖ {short_url(printable(row.name), 30)}: {printable(row.problem)}"
        lines.append(Text(cut(said, 2 * width - 20), style="red", overflow="fold"))
    return Group(*([table] if len(silent) < len(rows) else []), *lines)


def _name(row: ServerRow, width: int) -> Text:
    return Text(short_url(printable(row.name), width))


def _load(row: ServerRow) -> str:
    if row.running is None and row.queued is None and row.cap is None:
        return UNKNOWN
    running = UNKNOWN if row.running is None else f"{row.running:,.0f}"
    queued = "" if row.queued is None else f"+{row.queued:,.0f}"
    return f"{running}{queued}" + ("" if row.cap is None else f"/{row.cap:,.0f}")


def _lane(held: float | None, reserved: float | None, cells: int) -> Text:
    """A pool as a lane: held, reserved beyond that, free; and the higher of both as a number."""
    if held is None and reserved is None:
        return Text(UNKNOWN)
    eighths = round(min(max(held or 0.0, 0.0), 1.0) * cells * 8)
    if held and not eighths:
        eighths = 1  # what is held at all is seen
    full = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    shaded = max(0, round(min(reserved or 0.0, 1.0) * cells) - len(full))
    lane = Text(full, style="blue").append("▒" * shaded, style="blue")
    lane.append("░" * (cells - len(full) - shaded), style="dim")
    both = held is not None and reserved is not None
    said = f"{_percent(held)}/{_percent(reserved)}" if both else _percent(reserved if held is None else held)
    return lane.append(f" {said:>4}", style="default")


def _percent(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else f"{100 * fraction:.0f}%"
