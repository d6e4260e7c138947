"""Predicted against measured, in the terminal: error by GPU, engine, class and source, and what was not
judged.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.forecast.statistics import Errors, Judged, by, errors, source_name
from headrace.forecast.table import PredictedTable
from headrace.report.figures import UNKNOWN, printable

_READ = (
    "How to read this: error is |predicted − measured| ÷ measured, of milliseconds per output token where "
    "measured, else of output, else of total tokens per second. Bias: above 0 %, predicted too fast. Inside: "
    "measured value between low and high. Fair: what a row says of itself decides, never its error "
    "(docs/predict.md)."
)
_SHOWN_GROUPS = 12
_SHOWN_REASONS = 10

GROUPINGS: tuple[tuple[str, Callable[[Judged], str]], ...] = (
    ("GPU", lambda each: each.row.gpu or "not stated"),
    ("engine", lambda each: each.row.engine or "not stated"),
    ("class of model", lambda each: each.row.text("model_class") or "not stated"),
    ("source", lambda each: source_name(each.row)),
)


def predict_view(table: PredictedTable, *, every: bool = False) -> RenderableType:
    """Returns the statistics of a predicted table, 80 columns wide."""
    rows = table.rows
    judged = sum(not each.prediction.reason for each in rows)
    parts: list[RenderableType] = [Text(f"{judged:,} of {len(rows):,} rows judged", style="bold")]
    if any(each.ratio is not None for each in rows):
        parts += [_errors_table("", overall(rows)), Text("")]
        shown = list(rows) if every else [each for each in rows if not each.unfair]
        for title, key in GROUPINGS:
            groups = [each for each in by(shown, key) if each.compared]
            if groups:
                of = "all rows" if every else "fair rows"
                parts += [_errors_table(f"by {title}, {of}", groups[:_SHOWN_GROUPS]), Text("")]
        parts.append(Text(_READ, style="dim"))
    reasons = Counter(reason_kind(each.prediction.reason) for each in rows if each.prediction.reason)
    if reasons:
        parts += [Text(""), Text("Not judged", style="bold"), _reasons(reasons)]
    return Group(*parts)


def overall(rows: Sequence[Judged]) -> list[Errors]:
    """Returns the statistics of all rows, of SGLang and vLLM, and of the fair rows, those with a version
    apart.
    """
    fair = [each for each in rows if not each.unfair]
    planned = [each for each in rows if each.row.engine in ("sglang", "vllm")]
    return [
        errors("all rows", rows),
        errors("SGLang and vLLM", planned),
        errors("fair rows", fair),
        errors("fair, engine version in the row", [e for e in fair if e.row.text("engine_version")]),
    ]


def reason_kind(reason: str) -> str:
    """Returns a reason without its particulars, so that equal ones are counted together."""
    return re.sub(r"\d[\d.,]*", "…", re.sub(r"'[^']*'", "…", reason)).split(" per GPU")[0]


def _errors_table(title: str, groups: Sequence[Errors]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(title, no_wrap=True, max_width=32, overflow="ellipsis")
    for heading in ("rows", "judged", "median", "mean", "≤30 %", "bias", "inside"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in groups:
        table.add_row(
            printable(each.group),
            f"{each.rows:,}",
            f"{each.judged:,}",
            *(percent(value) for value in (each.median, each.mean, each.within)),
            percent(math.exp(each.bias) - 1.0, sign=True) if math.isfinite(each.bias) else UNKNOWN,
            percent(each.coverage),
        )
    return table


def percent(value: float, *, sign: bool = False) -> str:
    """Returns a fraction as percent, a dash where there is none."""
    if not math.isfinite(value):
        return UNKNOWN
    return f"{value:+.0%}" if sign else f"{value:.1%}" if value < 0.995 else f"{value:.0%}"


def _reasons(reasons: Counter[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for reason, count in reasons.most_common(_SHOWN_REASONS):
        table.add_row(f"{count:,}", printable(reason))
    rest = len(reasons) - _SHOWN_REASONS
    if rest > 0:
        table.add_row(
            f"{sum(reasons.values()) - sum(c for _, c in reasons.most_common(_SHOWN_REASONS)):,}", "other"
        )
    return table
