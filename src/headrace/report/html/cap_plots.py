"""The ladder as bars, and throughput against running requests with its rungs."""

from __future__ import annotations

from typing import Any

from headrace.report.html.drawing import BLUE, INK, ORANGE, QUIET, axis, by, layer, svg
from headrace.report.html.numbered import Numbered, pointer
from headrace.report.html.plot import NAMES, WIDTH, Plot, label, value_at, written

_RUNNING = "/baseline/numbers/running/value"
_RATE = "/baseline/numbers/output_tokens_per_s/value"
_HEIGHT = 260
_APART = 0.06  # of the width: rungs nearer than this have their names on both sides of them


def ladder_plot(numbered: Numbered) -> Plot | None:
    """Every cap on running requests against how many run; None where no cap is known."""
    rows = _rungs(numbered)
    if not rows:
        return None
    for row in rows:
        row["kind"] = "lowest" if row is rows[0] else "higher"
    y = by("name", "nominal", sort=None, axis=NAMES)
    x = by("limit", axis=axis("requests of one server", grid=True), scale={"zero": True})
    colours = {"domain": ["lowest", "higher"], "range": [ORANGE, BLUE]}
    bars = {"y": y, "x": x, "color": by("kind", "nominal", legend=None, scale=colours)}
    layers = [
        layer({"type": "bar", "height": {"band": 0.6}}, rows, bars),
        written(rows, {"y": y, "x": x}, dx=5),
    ]
    running = value_at(numbered, _RUNNING)
    if running is not None:
        told = [{"limit": running, **label(numbered, _RUNNING, "requests")}]
        told[0]["text"] = f"{told[0]['text']} run"
        rule = {"type": "rule", "color": INK, "strokeDash": [4, 3], "size": 1.5}
        place = {"x": by("limit"), "y": {"value": 0}}
        layers += [layer(rule, told, {"x": by("limit")}), written(told, place, bold=True, dx=4, dy=-6)]
    spec = {"width": WIDTH - 160, "height": {"step": 32}, "layer": layers}
    return Plot(
        "ladder",
        "The ladder: caps on running requests",
        svg(spec, "ladder", "Caps on running requests, lowest first, and how many run"),
        "Each bar is one cap, computed as if every lower one were gone. The lowest (orange) is met first; "
        "lifting it brings you to the next bar, not further. The dashed line is what runs now.",
    )


def throughput_plot(numbered: Numbered) -> Plot | None:
    """Throughput against concurrency, with the rungs; None where the document has no such curve."""
    points = numbered.get("/throughput_by_running")
    if not isinstance(points, list) or len(points) < 3:
        return None
    rows = []
    for point in points:
        expected = point.get("expected_tokens_per_s") or {}
        spread = {key: expected.get(key) for key in ("low", "mid", "high")}
        rows.append({"running": point["running"], "bound": point["bound_tokens_per_s"], **spread})
    last = max(row["running"] for row in rows)
    top = max(row[key] or 0.0 for row in rows for key in ("bound", "high")) * 1.05
    x = by("running", axis=axis("running requests of one server", grid=False), scale={"domain": [0, last]})
    y_axis = axis("output tokens/s of one server", grid=True)
    bound = by("bound", axis=y_axis, scale={"domain": [0, top]})
    expected_rows = [row for row in rows if row["mid"] is not None]
    band = {"x": x, "y": by("low"), "y2": {"field": "high"}}
    layers = [
        *_rung_rules(numbered, x, last),
        layer({"type": "line", "color": QUIET, "strokeDash": [6, 4]}, rows, {"x": x, "y": bound}),
        layer({"type": "area", "color": BLUE, "opacity": 0.22}, expected_rows, band),
        layer({"type": "line", "color": BLUE}, expected_rows, {"x": x, "y": by("mid")}),
    ]
    running, made = value_at(numbered, _RUNNING), value_at(numbered, _RATE)
    if running is not None and made is not None:
        told = [{"running": running, "rate": made, **label(numbered, _RATE, "tokens/s")}]
        told[0]["text"] = f"you: {told[0]['text']}"
        here = {"x": x, "y": by("rate")}
        point_mark = {"type": "point", "filled": True, "size": 90, "color": ORANGE, "opacity": 1}
        layers += [
            layer(point_mark, told, here),
            written(told, here, bold=True, dx=9, dy=14 if made > 0.12 * top else -12),
        ]
    spec = {"width": WIDTH, "height": _HEIGHT, "layer": layers}
    return Plot(
        "throughput",
        "Throughput against running requests",
        svg(spec, "throughput", "Output tokens per second of one server against its running requests"),
        "The dashed curve is the floor's: no step is faster than its bytes. The blue band is what to expect: "
        "its low end lets the time above the floor grow with the batch, its high end keeps it as it is; only "
        "a trial on one server tells. Dotted lines are the rungs of the ladder. All at the context of now.",
    )


def _rung_rules(numbered: Numbered, x: dict[str, Any], last: float) -> list[dict[str, Any]]:
    """Dotted lines at the rungs, with names: at the top in the left half, where the curve is low."""
    rungs = [row for row in _rungs(numbered) if row["limit"] <= last]
    layers, before, side = [], -last, -1
    for row in rungs:
        near = row["limit"] - before < _APART * last
        side, before = (-side if near else -1), row["limit"]
        low = row["limit"] > 0.45 * last
        told = [{**row, "running": row["limit"], "text": f"{row['name']} {row['text']}"}]
        place = {"x": x, "y": {"value": _HEIGHT - 6 if low else 4}}
        layers += [
            layer({"type": "rule", "color": QUIET, "strokeDash": [2, 3]}, told, {"x": x}),
            written(
                told,
                place,
                angle=270,
                align="left" if low else "right",
                dy=-8 if side < 0 else 14,
                color=QUIET,
            ),
        ]
    return layers


def _rungs(numbered: Numbered) -> list[dict[str, Any]]:
    """The rungs that have a limit, with the id of it."""
    found = numbered.get("/ladder")
    rows = []
    for index, rung in enumerate(found if isinstance(found, list) else []):
        where = pointer("ladder", index, "limit")
        limit = value_at(numbered, where)
        if limit is not None:
            rows.append({"name": rung["constraint"], "limit": limit, **label(numbered, where, "requests")})
    return rows
