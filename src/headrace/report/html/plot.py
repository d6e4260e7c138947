"""What every plot of a page is made of: a drawing, its title, how to read it; and numbers written into it.

A number that is written into a drawing carries its id in `aria-label`: "/ladder/0/limit = 32".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from headrace.report.amounts import shown
from headrace.report.html.drawing import INK, by, layer
from headrace.report.html.numbered import Numbered

WIDTH = 470
# room for the longest constraint id: text is measured with another font than the reader's
NAMES = {"title": None, "ticks": False, "domain": False, "minExtent": 155}


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with its title and how to read it."""

    id: str
    title: str
    drawing: Markup
    read: str


def label(numbered: Numbered, where: str, unit: str) -> dict[str, Any]:
    """Returns the row fields of a number that is written into a drawing: its text and its id."""
    value = numbered.get(where)
    return {"text": shown(value, unit), "says": f"{where} = {json.dumps(value)}"}


def written(
    rows: list[dict[str, Any]], encoding: Mapping[str, Any], *, bold: bool = False, **mark: Any
) -> dict[str, Any]:
    """Returns the layer that writes the rows' texts at their places, with their ids."""
    weight = {"fontWeight": "bold"} if bold else {}
    return layer(
        {"type": "text", "align": "left", "color": INK, **weight, **mark},
        rows,
        {**encoding, "text": {"field": "text"}, "description": by("says", "nominal")},
    )


def value_at(numbered: Numbered, where: str) -> float | None:
    """Returns the finite number at a pointer, None where there is none."""
    found = numbered.get(where)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return float(found)
