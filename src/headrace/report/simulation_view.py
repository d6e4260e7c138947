"""A simulated job in the terminal: what it yields, pools over time, what bound it; variants side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.report.figures import UNKNOWN, duration, printable, rate, several, share
from headrace.simulate.outcome import Outcome
from headrace.simulate.question import Variant

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 44  # cells of a line over time; the view stays within 80 columns
_READ = (
    "How to read this: steady is the stretch between ramp (the first mean latency) and tail (after the "
    "last prompt "
    "was sent). A finished-only rate misses tokens that are still being made. Lines run from start to end; "
    "full height is the limit. Time shares: client = fewer running than the server takes and nothing queued; "
    "slots = the cap; tokens = KV pool or admission. --json has every number."
)
_CAUSES = {
    "client": "the client sends too little",
    "slots": "the cap on running requests",
    "tokens": "KV tokens or admission",
    "prefill": "prompts are computed",
    "tail": "no prompt left to send",
    "idle": "nothing to do",
}


def simulation_view(variants: Sequence[Variant]) -> RenderableType:
    """Returns the first variant on one screen, and all of them as a table where there are several."""
    parts: list[RenderableType] = [_head(variants[0])]
    if len(variants) > 1:
        parts += [Text(""), _compared(variants)]
    else:
        parts += [
            Text(""),
            _figures(variants[0]),
            Text(""),
            _over_time(variants[0]),
            Text(""),
            _bound(variants[0]),
        ]
    notes = list(dict.fromkeys(note for variant in variants for note in variant.outcome.notes))
    stuck = [variant.outcome.stuck for variant in variants if variant.outcome.stuck]
    for text in stuck:
        parts.append(Text(f"! {text}", style="yellow"))
    for note in notes:
        parts.append(Text(f"· {note}", style="dim"))
    parts += [Text(""), Text(_READ, style="dim")]
    return Group(*parts)


def _head(variant: Variant) -> Text:
    plan, outcome = variant.plan, variant.outcome
    settings = plan.settings
    line = (
        f"{several(outcome.servers, 'server')} of {printable(plan.inputs.model.name)} on "
        f"{plan.inputs.device.name}, "
        f"{settings.engine} {settings.rules.version}"
    )
    return Text(line, style="bold")


def _figures(variant: Variant) -> Table:
    outcome, steady = variant.outcome, variant.outcome.steady()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    done = f"{outcome.finished:,} of {outcome.prompts:,} prompts"
    if outcome.failed:
        done += f", {outcome.failed:,} failed"
    whole = "the whole job" if outcome.finished == outcome.prompts else "simulated"
    table.add_row(whole, f"{duration(outcome.seconds)}: {done}")
    table.add_row("  ramp, tail", f"{duration(outcome.ramp_seconds)}, {duration(outcome.tail_seconds)}")
    table.add_row(
        "steady",
        f"{rate(steady['output_tokens_per_s'])} output tokens/s, "
        f"{rate(steady['output_tokens_per_s_per_gpu'])} per GPU, {rate(steady['requests_per_s'])} requests/s",
    )
    table.add_row("whole time", f"{rate(outcome.tokens_per_second)} output tokens/s; finished answers alone "
                  f"{rate(outcome.completed_tokens_per_second)}")  # fmt: skip
    step = steady["step_seconds"]
    table.add_row("pass", UNKNOWN if step is None else f"{step * 1e3:.1f} ms, mean; prompts included")
    table.add_row(
        "latency", f"{duration(_known(outcome.mean_latency_seconds))}, first token after "
        f"{duration(_known(outcome.mean_first_token_seconds))}"
    )  # fmt: skip
    queued = steady["queued"] or 0.0
    table.add_row(
        "running", f"{rate(steady['running'])} of {outcome.cap} ({printable(variant.plan.cap_term)}), "
        f"{rate(queued) if queued >= 0.005 else 'none'} queued, per scheduler"
    )  # fmt: skip
    if outcome.retractions:
        again = outcome.prefilled_tokens + outcome.cached_tokens
        table.add_row(
            "retracted", f"{outcome.retractions:,} times; {again:,.0f} prompt tokens computed or found"
        )
    return table


def _known(value: float) -> float | None:
    return None if value != value else value


def _over_time(variant: Variant) -> Table:
    outcome = variant.outcome
    columns = outcome.timeline.columns
    table = Table.grid(padding=(0, 2))
    for _ in range(4):
        table.add_column()
    rows = [
        ("running", columns["running"] / max(1, outcome.cap)),
        ("KV pool", columns["kv_pages"] * outcome.page_tokens / max(1.0, outcome.kv_capacity_tokens)),
    ]
    if outcome.state_slots:
        rows.append(("state pool", columns["state_slots"] / outcome.state_slots))
    for name, values in rows:
        mean = values.mean(axis=0)
        table.add_row(
            Text(name, style="dim"), _line(mean), Text("at most " + share(float(values.max()), 1.0))
        )
    return table


def _line(values: np.ndarray) -> str:
    """A line of block elements: means of equal stretches, full height is 1."""
    if not len(values):
        return ""
    cells = [chunk.mean() for chunk in np.array_split(values, min(_WIDTH, len(values)))]
    return "".join(_BARS[min(8, max(0, round(float(cell) * 8)))] for cell in cells)


def _bound(variant: Variant) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column()
    shares = sorted(variant.outcome.cause_shares.items(), key=lambda item: -item[1])
    for name, part in shares:
        if part >= 0.0005:
            table.add_row(Text(_CAUSES[name], style="dim"), "█" * max(1, round(part * 30)), share(part, 1.0))
    return table


def _compared(variants: Sequence[Variant]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("line", overflow="fold", max_width=34)
    for name in ("cap", "running", "pass ms", "tok/s/GPU", "×", "time"):
        table.add_column(name, justify="right")
    base = _steady_rate(variants[0].outcome)
    for variant in variants:
        outcome, steady = variant.outcome, variant.outcome.steady()
        own = _steady_rate(outcome)
        step = steady["step_seconds"]
        table.add_row(
            printable(variant.change) or "as given",
            f"{outcome.cap}",
            rate(steady["running"]),
            UNKNOWN if step is None else f"{step * 1e3:.1f}",
            rate(own),
            f"{own / base:.2f}" if base else UNKNOWN,
            duration(outcome.seconds) if outcome.finished + outcome.failed == outcome.prompts else UNKNOWN,
        )
    return table


def _steady_rate(outcome: Outcome) -> float:
    return outcome.steady()["output_tokens_per_s_per_gpu"] or 0.0
