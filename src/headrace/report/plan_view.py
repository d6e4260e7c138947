"""A memory plan in the terminal: the card as a bar, its pools, the caps as a ladder, what the next changes
give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.engines.advice import Change, Explanation
from headrace.engines.moved import Moved
from headrace.engines.plan import MemoryPlan, Pool, Rung, Solution
from headrace.engines.settings import NoticeKind
from headrace.quantities import Quantity
from headrace.report.amounts import origin, scaled
from headrace.report.figures import printable

_BAR = 76  # cells; the view stays within 80 columns
_SHADES = ("█", "▓", "▒", "░", "▚", "▖", "·")
_COLOURS = ("blue", "magenta", "yellow", "green", "cyan", "white", "bright_black")
_READ = (
    "How to read this: bytes are per GPU, caps are requests per scheduler. The ladder lists every cap on "
    "running requests, lowest first, each computed without the lower ones. A change is checked by its own "
    "plan; those that give up least come first. --json unfolds every number to formula and inputs."
)


def plan_view(
    plan: MemoryPlan,
    changes: Sequence[Change] = (),
    explanations: Sequence[Explanation] | None = None,
    solutions: Sequence[Solution] = (),
    target: int | None = None,
    moved: Sequence[Moved] | None = None,
) -> RenderableType:
    """Returns the plan, with what was asked beside it: explanations of reported numbers, ways to a wanted
    cap, what a change moved.
    """
    parts: list[RenderableType] = [_title(plan)]
    for notice in plan.settings.notices:
        style = {NoticeKind.REFUSAL: "bold red", NoticeKind.WARNING: "yellow", NoticeKind.NOTE: "dim"}[
            notice.kind
        ]
        parts.append(Text(printable(_capital(notice.text)), style=style))
    parts += [Text(), bar(plan.pools), _pools(plan), Text(), _ladder(plan)]
    if moved is not None:
        parts += [Text(), _moved(moved)]
    if explanations is not None:
        parts += [Text(), _explanations(explanations)]
    if target is not None:
        parts += [Text(), _solutions(solutions, target)]
    if changes:
        parts += [Text(), _changes(plan, changes)]
    parts += [Text(printable(f"Assumed: {_capital(text)}"), style="yellow") for text in plan.assumptions]
    parts.append(Text(_READ, style="dim"))
    return Group(*parts)


def _below(text: str) -> RenderableType:
    """A line that belongs to the one above it, set in also where it wraps."""
    return Padding(Text(printable(text), style="dim"), (0, 0, 0, 4))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _title(plan: MemoryPlan) -> Text:
    inputs = plan.inputs
    engine = f"{plan.settings.engine} {inputs.rules.told or inputs.rules.version}"
    text = f"{inputs.model.name} on {inputs.device.name}, {engine}"
    head = Text(printable(text), style="bold")
    if plan.cap is None:
        return head.append("\nWould not start.", style="bold red")
    cap = f"Cap {plan.cap.value:,.0f} running requests, bound by {plan.cap_bound_by}: {plan.cap_term}."
    lowest = plan.lowest
    if lowest is not None and lowest.running.value < plan.cap.value:
        context = plan.inputs.context_tokens or float(plan.settings.values["max_model_len"].value or 0)
        cap += f" At {context:,.0f} tokens each {lowest.running.value:,.0f} run: {lowest.constraint}."
    return head.append("\n" + printable(cap))


def bar(pools: Sequence[Pool]) -> Text:
    """Returns the card as one line of cells, each pool in its own shade, at least one cell for what is
    there.
    """
    total = sum(max(0.0, pool.bytes.value) for pool in pools) or 1.0
    cells = [max(1 if pool.bytes.value > 0 else 0, int(pool.bytes.value / total * _BAR)) for pool in pools]
    while sum(cells) != _BAR and any(cells):
        at = cells.index(max(cells))
        cells[at] += 1 if sum(cells) < _BAR else -1
    line = Text()
    for index, count in enumerate(cells):
        line.append(_SHADES[index % len(_SHADES)] * count, style=_COLOURS[index % len(_COLOURS)])
    return line


def _table(*widths: int | None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for width in widths:
        table.add_column(overflow="fold", width=width)
    return table


def _pools(plan: MemoryPlan) -> RenderableType:
    table = _table(1, 22, 10, None)
    for index, pool in enumerate(plan.pools):
        mark = Text(_SHADES[index % len(_SHADES)], style=_COLOURS[index % len(_COLOURS)])
        held = _holds(plan, pool)
        table.add_row(
            mark,
            pool.name,
            scaled(pool.bytes.value, "bytes"),
            Text(held, style="dim" if not pool.holds else ""),
        )
    return table


def _holds(plan: MemoryPlan, pool: Pool) -> str:
    if pool.holds is None:
        return pool.note or origin(pool.bytes)
    text = f"{pool.holds.value:,.0f} {pool.holds.unit}"
    price = {"slots": "state_bytes_per_request", "tokens": "kv_bytes_per_token", "blocks": "block_bytes"}
    found = plan.figures.get(price.get(pool.holds.unit, ""))
    if found is not None and not pool.note:
        text += f" of {_plain(found)}"
    if pool.holds.unit == "slots" and "slots_per_request" in plan.figures:
        text += f", {plan.figures['slots_per_request'].value:g} per request"
    return text + (f", {pool.note}" if pool.note else "")


def _plain(quantity: Quantity) -> str:
    return scaled(quantity.value, "bytes")


def _ladder(plan: MemoryPlan) -> RenderableType:
    if not plan.ladder:
        return Text("No ladder: the server would not start.", style="dim")
    table = _table(9, 22, None)
    for number, rung in enumerate(_merged(plan.ladder)):
        here = number == 0  # the lowest cap binds
        table.add_row(
            Text(f"{'▶' if here else ' '} {rung.running.value:,.0f}", style="bold" if here else ""),
            str(rung.constraint),
            printable(rung.term),
        )
    return Group(Text("Caps on running requests", style="bold"), table)


def _merged(ladder: Sequence[Rung]) -> Iterator[Rung]:
    seen: set[tuple[float, str]] = set()
    for rung in ladder:
        key = (rung.running.value, str(rung.constraint))
        if key not in seen:
            seen.add(key)
            yield rung


def _changes(plan: MemoryPlan, changes: Sequence[Change]) -> RenderableType:
    lines: list[RenderableType] = [Text("What single changes give (each needs a restart)", style="bold")]
    now = f"running {plan.lowest.running.value:,.0f}" if plan.lowest else "would not start"
    for change in changes:
        tokens = change.plan.figure("kv_tokens") or 0
        head = f"{now} → {change.running:,}, {tokens:,.0f} KV tokens: {change.candidate.change}"
        lines.append(Text(printable(head)))
        lines.append(_below(f"gives up: {change.candidate.cost}"))
    return Group(*lines)


def _moved(moved: Sequence[Moved]) -> RenderableType:
    if not moved:
        return Text("The change moves nothing: no cap, no pool, no setting.", style="yellow")
    table = _table(26, None, 1, None)
    for each in moved:
        values = (_one(each.before, each.unit), "→", _one(each.after, each.unit))
        table.add_row(*(Text(printable(cell)) for cell in (each.name, *values)))
    return Group(Text("Before and after the change", style="bold"), table)


def _one(value: float | str | None, unit: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if unit.startswith("bytes"):
        return scaled(value, unit)
    return f"{value:,.4g}" if abs(value) < 1000 and value != int(value) else f"{value:,.0f}"


def _solutions(solutions: Sequence[Solution], target: int) -> RenderableType:
    lines: list[RenderableType] = [Text(f"Ways to a cap of {target:,}, one knob at a time", style="bold")]
    for solution in solutions:
        if solution.change is None:
            lines.append(Text(printable(f"  {solution.knob}: no, {solution.text}"), style="dim"))
        else:
            lines.append(Text(printable(f"  {solution.knob}: {solution.change}")))
            lines.append(_below(solution.text))
    return Group(*lines)


def _explanations(explanations: Sequence[Explanation]) -> RenderableType:
    lines: list[RenderableType] = [Text("What explains the reported numbers", style="bold")]
    if not explanations:
        lines.append(Text("None of the settings tried reconciles them, alone or in pairs.", style="yellow"))
    for index, found in enumerate(explanations):
        change = " ".join(part.change for part in found.untold)
        label = "" if index == 0 else "also possible: "
        text = f"  {label}{found.text}" + (f" ({change})" if change else "")
        sizes = f"sizes within {100 * found.error:.1f} %"
        slots, tokens = found.plan.figure("state_slots"), found.plan.figure("kv_tokens")
        detail = f"    cap {found.plan.cap.value if found.plan.cap else 0:,.0f}"
        detail += f", {slots:,.0f} slots" if slots is not None else ""
        detail += f", {tokens or 0:,.0f} KV tokens; {sizes}"
        lines += [Text(printable(text), style="bold" if index == 0 else ""), Text(detail, style="dim")]
    return Group(*lines)
