"""A Vega-Lite specification as inline SVG in the page's own colours: light, dark and print.

vl-convert brings Vega with it and renders in this process: no browser, no network, nothing loaded later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from headrace.extras import require

INK, QUIET, GRID = "var(--ink)", "var(--quiet)", "var(--grid)"
BLUE, ORANGE, GREEN, PURPLE = "var(--blue)", "var(--orange)", "var(--green)", "var(--purple)"
FONT = "system-ui, sans-serif"
_CONFIG: dict[str, Any] = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": QUIET, "titleColor": QUIET, "gridColor": GRID, "domainColor": GRID, "tickColor": GRID,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 220,
    },
    "legend": {
        "labelColor": INK, "titleColor": QUIET, "orient": "top", "title": None, "labelFontSize": 12,
        "symbolStrokeWidth": 3, "offset": 4,
    },
    "text": {"fontSize": 12, "font": FONT},
    "bar": {"cornerRadiusEnd": 2},
}  # fmt: skip
Row = Mapping[str, Any]


def svg(spec: Mapping[str, Any], id: str, label: str) -> Markup:
    """Returns the drawing as an SVG element; `label` is what a screen reader says of it.

    Args:
        id: of the drawing on its page: what is named in the SVG is named after it.

    Raises:
        UsageError: vl-convert is not installed; it names the extra.
    """
    require("vl_convert", "a report's plots")
    import vl_convert

    text = vl_convert.vegalite_to_svg({**spec, "config": _CONFIG})
    text = re.sub(r' id="(\w+)"', rf' id="{id}-\1"', text)
    text = re.sub(r'="url\(#(\w+)\)"', rf'="url(#{id}-\1)"', text)
    head = '<svg role="img" aria-label="{}" '
    # the sizes stay as viewBox alone: the drawing is as wide as its place on the page, up to its own width
    width = re.search(r'<svg [^>]*?width="([\d.]+)"', text)
    text = re.sub(r'^<svg ([^>]*?) width="[\d.]+" height="[\d.]+"', r"<svg \1", text, count=1)
    style = Markup('style="max-width:{}px" ').format(width[1] if width else "600")
    body = text.removeprefix("<svg ")
    return Markup(head).format(label) + style + Markup(body)


def layer(
    mark: str | Mapping[str, Any], rows: Sequence[Row], encoding: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Returns one layer with its own rows."""
    return {"mark": mark, "data": {"values": list(rows)}, "encoding": encoding, **more}


def by(field: str, kind: str = "quantitative", **more: Any) -> dict[str, Any]:
    """Returns a channel: a field of the rows by name."""
    return {"field": field, "type": kind, **more}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Returns an axis with a title and few ticks."""
    return {"title": title, "tickCount": 6, **more}
