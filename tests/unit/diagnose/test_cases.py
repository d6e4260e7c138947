"""Public cases with a known cause: how often the first answer is right. They lie in the shared folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.accuracy import PAGE, Scored, page, score


@pytest.fixture(scope="module")
def found(shared: Path) -> list[Scored]:
    return list(score(shared / "cases"))


def test_most_first_answers_are_right(found: list[Scored]) -> None:
    scored = [case for case in found if case.scored]
    assert len(scored) > 30
    assert sum(case.is_right for case in scored) >= 0.65 * len(scored)
    assert sum(case.is_acceptable for case in scored) >= 0.80 * len(scored)


def test_what_must_not_be_named_is_never_named_first(found: list[Scored]) -> None:
    assert [case.id for case in found if case.said in case.must_not] == []


def test_what_is_said_to_be_sure_is_mostly_right(found: list[Scored]) -> None:
    sure = [case.is_right for case in found if case.said != "unknown" and case.confidence >= 0.7]
    assert len(sure) > 20
    assert sum(sure) / len(sure) >= 0.75


def test_the_page_is_up_to_date(found: list[Scored]) -> None:
    # the part on the step model follows; tests/unit/forecast/test_public_rows.py holds it
    said = PAGE.read_text(encoding="utf-8")
    assert said.startswith(page(found)), "run: python docs/accuracy.py --write"
