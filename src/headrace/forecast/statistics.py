"""How far predictions are from what was measured, by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from headrace.forecast.prediction import Prediction
from headrace.forecast.row import Row

WITHIN = 0.30
BIAS_LIMIT = 0.15
LEAST_FOR_BIAS = 20


@dataclass(frozen=True, slots=True)
class Judged:
    """A row with its prediction and, where the row states one, the measured figure it is compared with.

    `ratio` is predicted ÷ measured of a rate, or measured ÷ predicted of a time: above 1 is too fast.
    """

    row: Row
    prediction: Prediction
    unfair: tuple[str, ...]
    metric: str = ""
    ratio: float | None = None
    inside: bool | None = None  # the measured value lies between low and high

    @property
    def error(self) -> float | None:
        """|predicted − measured| ÷ measured, None where nothing measured is comparable."""
        if self.ratio is None:
            return None
        return abs((1.0 / self.ratio if self.metric == "tpot_ms" else self.ratio) - 1.0)


@dataclass(frozen=True, slots=True)
class Errors:
    """Error statistics of a group of rows; fractions."""

    group: str
    rows: int  # in the group, judged or not
    judged: int  # with a prediction
    compared: int  # with a measured figure beside it
    median: float
    mean: float
    p90: float
    within: float  # share of compared rows with an error up to 30 %
    bias: float  # median of log(predicted rate ÷ measured): > 0 predicts too fast
    coverage: float  # share of compared rows inside low to high


def compare(row: Row, prediction: Prediction, unfair: tuple[str, ...]) -> Judged:
    """Returns the row with its error: of TPOT where measured, else of output, else of total tokens/s."""
    found = measured_figure(row)
    if found is None:
        return Judged(row, prediction, unfair)
    metric, measured = found
    estimate = {
        "tpot_ms": prediction.tpot_ms,
        "output_tok_s": prediction.output_tok_s,
        "total_tok_s": prediction.total_tok_s,
    }[metric]
    if estimate is None or estimate.mid <= 0:
        return Judged(row, prediction, unfair)
    ratio = measured / estimate.mid if metric == "tpot_ms" else estimate.mid / measured
    return Judged(row, prediction, unfair, metric, ratio, estimate.low <= measured <= estimate.high)


def measured_figure(row: Row) -> tuple[str, float] | None:
    """Returns the figure of a row that a prediction is compared with, and its column; None without any."""
    figures = {
        "tpot_ms": _tpot(row),
        "output_tok_s": row.number("output_tok_s"),
        "total_tok_s": row.number("total_tok_s"),
    }
    return next(((name, value) for name, value in figures.items() if value is not None), None)


def _tpot(row: Row) -> float | None:
    """Returns the row's milliseconds per output token: stated, or from one user's rate while decoding."""
    stated = row.number("tpot_ms") or row.number("itl_ms")
    if stated is not None:
        return stated
    per_user = row.number("decode_tok_s_per_user")
    return 1000.0 / per_user if per_user is not None else None


def errors(group: str, found: Sequence[Judged]) -> Errors:
    """Returns the statistics of a group; NaN where nothing was compared."""
    compared = [each for each in found if each.ratio is not None and each.error is not None]
    sizes = sorted(error for each in compared if (error := each.error) is not None)
    logs = [math.log(each.ratio) for each in compared if each.ratio]
    count = len(compared)
    judged = sum(each.prediction.reason == "" for each in found)
    if not count:
        nan = math.nan
        return Errors(group, len(found), judged, 0, nan, nan, nan, nan, nan, nan)
    return Errors(
        group,
        len(found),
        judged,
        count,
        median(sizes),
        sum(sizes) / count,
        sizes[min(count - 1, int(0.9 * count))],
        sum(size <= WITHIN for size in sizes) / count,
        median(logs),
        sum(bool(each.inside) for each in compared) / count,
    )


def by(found: Iterable[Judged], key: Callable[[Judged], str]) -> list[Errors]:
    """Returns the statistics of every group, the largest first."""
    groups: dict[str, list[Judged]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    rows = [errors(name, members) for name, members in groups.items()]
    return sorted(rows, key=lambda each: (-each.compared, -each.rows, each.group))


def source_name(row: Row) -> str:
    """Returns a short name of a row's source: repository or site, and for a study of several tables which."""
    text = row.text("source").removeprefix("github:").removeprefix("https://").removeprefix("www.")
    name, _, rest = text.partition("@")
    if rest and "Plots/" in rest:
        return f"{name} {rest.split('Plots/')[1].split('/')[0].split('.')[0]}"
    return "/".join(name.split("/")[:3]) or "not stated"
