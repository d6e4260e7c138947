"""The part of docs/accuracy.md on the step model: a public table of measurements against `headrace predict`.

`docs/accuracy.py` puts it into the page; the table stays where it is, only counts and errors come into the page.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from headrace.forecast.statistics import Errors, Judged, by, errors
from headrace.report.predict_view import GROUPINGS, overall, percent, reason_kind

_LEAST = 5  # rows with a measured figure that make a group worth a line
_REASONS = 12
_HEAD = """
## The step model against public measurements

`headrace predict` over {rows:,} rows that others published: {judged:,} of them could be judged. Error is |predicted −
measured| ÷ measured, of milliseconds per output token where measured, else of output, else of total tokens per second.
Nothing of a row but its description is used. *Bias*: above 0 %, predicted too fast. *Inside*: the measured value lies
between low and high. *Fair* rows are chosen by what they say of themselves ([predict.md](predict.md)), never by their
error.

The model's constants were fitted to the fair rows of this very table. On groups (source × GPU × model) that were left
out of the fit, the median error is 8.8 %, and 90 % of the rows are within 30 % (`scripts/fit-efficiencies`, four folds,
three seeds, November 2026). The reading of rows and the choice of what to model were made with these rows in sight, so
expect one to three points more on others.
"""


def section(rows: Sequence[Judged]) -> list[str]:
    """Returns the lines of the section for a predicted table."""
    fair = [each for each in rows if not each.unfair]
    judged = sum(not each.prediction.reason for each in rows)
    hybrid = [each for each in fair if "hybrid" in each.row.text("model_class")]
    pro = [each for each in fair if "RTX PRO 6000" in each.row.gpu]
    lines = _HEAD.format(rows=len(rows), judged=judged).splitlines()
    lines += [
        "",
        *_table(
            "rows",
            [*overall(rows), errors("fair, recurrent state", hybrid), errors("fair, RTX PRO 6000", pro)],
        ),
    ]
    for title, key in GROUPINGS:
        groups = [each for each in by(fair, key) if each.compared >= _LEAST]
        lines += ["", *_table(f"fair rows by {title}", groups)]
    before, after = _one_point(fair)
    lines += [
        "",
        "**One measured point given**, the lowest load of the same server and lengths: the other "
        f"{len(after):,} fair rows are off by {percent(median(after))} (median) instead of {percent(median(before))}.",
        "",
        "What was not judged:",
        "",
        "| rows | why |",
        "| --- | --- |",
    ]
    reasons = Counter(reason_kind(each.prediction.reason) for each in rows if each.prediction.reason)
    lines += [f"| {count:,} | {reason} |" for reason, count in reasons.most_common(_REASONS)]
    lines += [
        "",
        "What was judged and is not counted as fair, by the reasons that hold (a row may have several):",
        "",
    ]
    lines += ["| rows | why not fair | median error |", "| --- | --- | --- |"]
    lines += list(_unfair(rows))
    return lines


def _table(title: str, groups: Sequence[Errors]) -> Iterator[str]:
    yield f"| {title} | rows | judged | median | mean | within 30 % | bias | inside |"
    yield "|" + " --- |" * 8
    for each in groups:
        bias = math.exp(each.bias) - 1.0 if math.isfinite(each.bias) else math.nan
        cells = [percent(value) for value in (each.median, each.mean, each.within)]
        cells += [percent(bias, sign=True), percent(each.coverage)]
        yield f"| {each.group} | {each.rows:,} | {each.judged:,} | " + " | ".join(cells) + " |"


def _one_point(rows: Sequence[Judged]) -> tuple[list[float], list[float]]:
    """Returns the errors of all rows but the lowest load of each server, alone and scaled by that one."""
    servers: dict[tuple[object, ...], list[Judged]] = {}
    words = ("source", "gpu", "model", "weights_dtype", "engine", "engine_version")
    numbers = ("n_gpus", "tp", "pp", "dp", "ep", "input_len", "output_len", "context_len")
    for each in rows:
        if each.ratio is not None:
            key = (*map(each.row.text, words), *map(each.row.number, numbers))
            servers.setdefault(key, []).append(each)
    before: list[float] = []
    after: list[float] = []
    for members in servers.values():
        first, *others = sorted(members, key=_load)
        for each in others:
            ratio = (each.ratio or 1.0) / (first.ratio or 1.0)  # neither is None: see above
            before.append(each.error or 0.0)
            after.append(abs((1.0 / ratio if each.metric == "tpot_ms" else ratio) - 1.0))
    return before, after


def _load(each: Judged) -> float:
    return each.row.number("concurrency") or each.row.number("batch_size") or 0.0


def _unfair(rows: Sequence[Judged]) -> Iterator[str]:
    groups: dict[str, list[Judged]] = {}
    for each in rows:
        if each.ratio is not None:
            for why in each.unfair:
                groups.setdefault(why, []).append(each)
    for why, members in sorted(groups.items(), key=lambda group: -len(group[1])):
        yield f"| {len(members):,} | {why} | {percent(errors(why, members).median)} |"
