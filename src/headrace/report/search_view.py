"""A search over configurations in the terminal: the best line, what it gives up, and the frontier."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from headrace.forecast.search import Configuration, JobCost, Search
from headrace.report.figures import duration, printable, rate

_READ = (
    "How to read this: each line was planned as the engine would; refused ones are left out. A line on the "
    "frontier has no other that is better both in tokens per second and GPU and in time per token. Rates have"
    " the ranges of the step model; between two lines of one server most of that range is the same, so their "
    "order is surer than their rates. One server with the new line, measured, settles it."
)


def search_view(search: Search) -> RenderableType:
    """Returns the best lines, each with what it serves and gives up, and the frontier."""
    lines: list[RenderableType] = [_head(search)]
    if search.now is not None:
        lines += _configuration("As it is", search.now, search)
    if search.best is None:
        lines.append(Text("None of the lines tried would start.", style="bold red"))
    elif search.best.change:
        lines += _configuration("Most tokens per GPU", search.best, search)
    else:
        lines.append(Text("None of them serves more per GPU than the line as it is.", style="bold"))
    if search.best_any is not None:
        lines += _configuration("With accuracy given up, to be checked first", search.best_any, search)
    if len(search.frontier) > 1:
        lines += [Text(), Text("Frontier: tokens per second and GPU against time per token", style="bold")]
        for each in search.frontier:
            lines.append(Text(printable(f"  {_figures(each)}")))
            lines.append(_below(each.change or "as it is"))
    lines.append(Text(_READ, style="dim"))
    return Group(*lines)


def _head(search: Search) -> Text:
    text = f"Search over {search.tried:,} lines for {search.gpus} GPU{'s' if search.gpus > 1 else ''}"
    if search.refused:
        text += f", {search.refused:,} of them refused"
    if search.left_out:
        text += f"; {search.left_out:,} with more edits were left out"
    return Text(printable(text + "."), style="bold")


def _configuration(title: str, found: Configuration, search: Search) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(), Text(printable(f"{title}: {_figures(found)}"), style="bold")]
    if found.change:
        lines.append(_below(found.change))
        gain = _gain(found, search.now)
        given_up = ", ".join(found.gives_up) or "nothing"
        lines.append(_below(f"{gain}gives up: {given_up}"))
    cost = search.cost_of(found)
    if cost is not None:
        lines.append(_below(_job(cost)))
    return lines


def _gain(found: Configuration, now: Configuration | None) -> str:
    if now is None:
        return ""
    ratio = found.tokens_per_second_per_gpu.mid / now.tokens_per_second_per_gpu.mid
    return f"×{ratio:.2f} of the line as it is; "


def _figures(found: Configuration) -> str:
    output = found.tokens_per_second_per_gpu
    place = f"{found.replicas} × {found.gpus} GPU" + ("s" if found.gpus > 1 else "")
    return (
        f"{rate(output.mid)} tok/s per GPU ({rate(output.low)} … {rate(output.high)}), "
        f"{rate(1e3 * found.token_seconds)} ms/token, {found.served.running:,.0f} running, {place}"
    )


def _job(cost: JobCost) -> str:
    text = f"job: {duration(cost.seconds.mid)} ({duration(cost.seconds.low)} … {duration(cost.seconds.high)})"
    text += f", {rate(cost.gpu_hours.mid)} GPU hours"
    if cost.price is not None:
        text += (
            f", {rate(cost.price.mid)} at the told price ({rate(cost.price.low)} … {rate(cost.price.high)})"
        )
    return text


def _below(text: str) -> RenderableType:
    return Padding(Text(printable(text), style="dim"), (0, 0, 0, 4))
