"""The public benchmark table beside the project: how far off, how many judged, how often inside the range.

The wanted figures are those the project set itself before the rows were looked at: median ≤ 15 %, ≥ 80 %
within 30 %, ≥ 85 % of fair rows judged, three quarters to nine tenths inside low to high.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.null_server import shared_folder
from docs.step_accuracy import section
from headrace.forecast.statistics import errors
from headrace.forecast.table import PredictedTable, predict_table

TABLE = shared_folder() / "data" / "benchmarks.csv.gz"


@pytest.fixture(scope="module")
def found() -> PredictedTable:
    if not TABLE.is_file():
        pytest.skip(f"no public benchmark table at {TABLE}")
    return predict_table(TABLE)


def test_fair_rows(found: PredictedTable) -> None:
    fair = errors("fair", [each for each in found.rows if not each.unfair])
    assert fair.rows > 1000
    assert fair.judged / fair.rows >= 0.85
    assert fair.median <= 0.15
    assert fair.within >= 0.80
    assert 0.75 <= fair.coverage <= 0.90


def test_models_with_a_recurrent_state(found: PredictedTable) -> None:
    hybrids = [each for each in found.rows if not each.unfair and "hybrid" in each.row.text("model_class")]
    assert errors("hybrids", hybrids).median <= 0.12


def test_the_page_says_what_is_found(found: PredictedTable) -> None:
    """`python docs/accuracy.py --write` makes docs/accuracy.md anew."""
    page = (Path(__file__).parents[3] / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert "\n".join(section(found.rows)) + "\n" in page


def test_every_row_has_numbers_or_a_reason(found: PredictedTable) -> None:
    for each in found.rows:
        assert (each.prediction.tpot_ms is None) == bool(each.prediction.reason)
