"""Every constraint id has its page, with the same five headings, and no page is left over."""

from __future__ import annotations

import re

import pytest

from headrace.report.constraint_words import HEADLINES
from headrace.words import Constraint
from tests.documentation import ROOT

CAUSES = ROOT / "docs" / "causes"
HEADINGS = ["What it is", "How it is told", "What to change", "How to verify", "When we are wrong"]


@pytest.mark.parametrize("constraint", list(Constraint))
def test_a_page_per_constraint(constraint: Constraint) -> None:
    text = (CAUSES / f"{constraint}.md").read_text()
    assert text.startswith(f"# `{constraint}`\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    for part in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        assert part.strip()


def test_no_page_and_no_headline_without_a_constraint() -> None:
    assert {page.stem for page in CAUSES.glob("*.md")} == {str(constraint) for constraint in Constraint}
    assert set(HEADLINES) == set(Constraint)
