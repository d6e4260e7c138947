"""A planned server at work, in the terminal: the decode step by operator, throughput by requests in
flight.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.forecast.serving import Point, Serving
from headrace.perf.operators import Operator
from headrace.perf.step_model import StepTime
from headrace.quantities import Estimate, Origin, Quantity
from headrace.report.amounts import origin
from headrace.report.figures import printable, rate

_BAR = 9
_SMALL = 0.005  # operators below this share of the step are one line
_ROOFS = {"bandwidth": "memory", "compute": "FLOPs", "link": "link", "launch": "launch"}
_READ = (
    "How to read this: a step makes one token for every running request. % of roof is bytes or FLOPs over "
    "what the data sheet's rate would move in that time; an operator at launch is too small for either. "
    "Ranges hold what different engine versions were seen to do. ░ would be served without the cap."
)


def serving_view(serving: Serving) -> RenderableType:
    """Returns the step table and the throughput by requests in flight, within 80 columns."""
    parts: list[RenderableType] = [_head(serving), _operators(serving.step), Text(), _curve(serving)]
    parts += [Text(printable(f"Note: {note}"), style="yellow") for note in serving.notes]
    parts.append(Text(_READ, style="dim"))
    return Group(*parts)


def _head(serving: Serving) -> Text:
    step, context = serving.step, serving.lengths.context_tokens
    per_request = 1.0 / step.token_seconds.mid
    text = (
        f"A decode step, {step.batch:,.0f} running with {context:,.0f} tokens each: {_ms(step.seconds)}, "
        f"{rate(per_request)} tok/s per request"
    )
    return Text(printable(text), style="bold")


def _ms(seconds: Estimate) -> str:
    low, mid, high = (1e3 * value for value in (seconds.low, seconds.mid, seconds.high))
    return f"{rate(mid)} ms ({rate(low)} … {rate(high)})"


def _operators(step: StepTime) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("operator", "ms", "share", "at", "% of roof", "efficiency from"):
        table.add_column(name, justify="right" if name in ("ms", "share", "% of roof") else "left")
    whole = step.seconds.mid
    shown = sorted(step.operators, key=lambda each: -each.seconds.mid)
    large = [each for each in shown if each.seconds.mid >= _SMALL * whole]
    for each in large:
        table.add_row(*_row(each, whole))
    rest = [each for each in shown if each.seconds.mid < _SMALL * whole]
    if rest:
        seconds = sum(each.seconds.mid for each in rest)
        table.add_row(
            f"{len(rest)} smaller ones", f"{1e3 * seconds:.2f}", _percent(seconds / whole), "", "", ""
        )
    host = step.host_seconds.mid
    table.add_row("host, between steps", f"{1e3 * host:.2f}", _percent(host / whole), "", "", "")
    return table


def _row(operator: Operator, whole: float) -> tuple[str, ...]:
    seconds = operator.seconds.mid
    achieved = operator.achieved_fraction
    return (
        operator.name,
        f"{1e3 * seconds:.2f}",
        _percent(seconds / whole),
        _ROOFS[operator.roof],
        "" if achieved is None else _percent(achieved),
        _from(operator.origin),
    )


def _from(found: Origin) -> str:
    return origin(Quantity(0.0, "", found))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _curve(serving: Serving) -> RenderableType:
    several = serving.gpus > 1
    unit = "tok/s" + (" per GPU" if several else "")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("in flight", "running", unit, "range", "ms/token"):
        table.add_column(name, justify="right")
    table.add_column("", no_wrap=True)
    most = max(point.lifted.output_tokens_per_second.mid for point in serving.points)
    for point in serving.points:
        output = point.served.output_tokens_per_second.scaled(1.0 / serving.gpus)
        table.add_row(
            f"{point.in_flight:,}",
            f"{point.served.running:,.0f}",
            rate(output.mid),
            f"{rate(output.low)} … {rate(output.high)}",
            rate(1e3 * point.served.token_seconds.mid),
            _bar(point, most),
        )
    lengths = serving.lengths
    what = (
        f"{lengths.input_tokens:,.0f} tokens in, {lengths.output_tokens:,.0f} out"
        if lengths.input_tokens
        else f"decoding alone, {lengths.context_tokens:,.0f} tokens each"
    )
    head = Text(printable(f"Throughput by requests in flight ({what})"), style="bold")
    return Group(head, table)


def _bar(point: Point, most: float) -> Text:
    served = round(_BAR * point.served.output_tokens_per_second.mid / most)
    lifted = round(_BAR * point.lifted.output_tokens_per_second.mid / most)
    text = Text("█" * max(1, served), style="green")
    text.append("░" * max(0, lifted - served), style="bright_black")
    if point.rung is not None:
        text.append(f" ◀ {point.rung.constraint}", style="bold")
    return text


def summary(serving: Serving) -> Text:
    """Returns one line: what the plan's cap serves."""
    step = serving.step
    at_cap: Sequence[Point] = [p for p in serving.points if p.served.running >= step.batch - 1e-9]
    served = (at_cap[0] if at_cap else serving.points[-1]).served
    output = served.output_tokens_per_second
    text = (
        f"With {step.batch:,.0f} running: about {rate(output.mid)} tok/s ({rate(output.low)} … "
        f"{rate(output.high)}), a step {rate(1e3 * step.seconds.mid)} ms. --steps unfolds it, --search looks "
        "for a better line."
    )
    return Text(printable(text))
