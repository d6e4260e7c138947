"""Where a decode step's time goes, and where it stands under the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace.report.html.drawing import BLUE, ORANGE, QUIET, axis, by, layer, svg
from headrace.report.html.numbered import Numbered, pointer
from headrace.report.html.plot import NAMES, WIDTH, Plot, label, value_at, written

_STEP = "/decomposition/step_seconds/value"
_FLOOR = "/decomposition/floor_seconds/value"
_REST = "/decomposition/remainder_seconds/value"
_REACHED = "/roofline/reached_flop_per_s/value"
_PARTS = {"weights": "reading weights", "kv": "reading the KV", "states": "recurrent states"}


def gap_plot(numbered: Numbered) -> Plot | None:
    """The step as a waterfall: what its bytes take, part by part, and what is above them."""
    step = value_at(numbered, _STEP)
    if step is None or value_at(numbered, _FLOOR) is None or value_at(numbered, _REST) is None:
        return None
    rows: list[dict[str, Any]] = []
    start = 0.0
    for name, where, kind in (*_floor_bars(numbered), ("above the floor", _REST, "above")):
        ends = sorted((start, start + (value_at(numbered, where) or 0.0)))
        start += value_at(numbered, where) or 0.0
        rows.append(_bar(name, kind, ends[0], ends[1], label(numbered, where, "s")))
    rows.append(_bar("a whole step", "step", 0.0, step, label(numbered, _STEP, "s")))
    y = by("name", "nominal", sort=None, axis=NAMES)
    x = by("from", axis=axis("milliseconds of a decode step", grid=True))
    colours = {"domain": ["floor", "above", "step"], "range": [BLUE, ORANGE, QUIET]}
    bars = {"y": y, "x": x, "x2": {"field": "to"}, "color": by("kind", "nominal", scale=colours, legend=None)}
    layers = [layer("bar", rows, bars), written(rows, {"y": y, "x": by("to")}, dx=5)]
    spec = {"width": WIDTH - 160, "height": {"step": 32}, "layer": layers}
    return Plot(
        "gap",
        "Where a step's time goes",
        svg(spec, "gap", "The time of a decode step, part by part"),
        "Blue is the floor: what this GPU needs to read the bytes of a step, or to compute it, at the speed "
        "that long reads reach. Orange is above the floor: the host, traffic between GPUs, prefill between "
        "the steps, slow kernels. Only orange can be won at this batch; a larger batch shares the blue among "
        "more requests.",
    )


def _floor_bars(numbered: Numbered) -> list[tuple[str, str, str]]:
    """The floor's parts where bytes set it, else the floor as one: (name, id, kind)."""
    parts = numbered.get("/comparison/floor/part_seconds")
    read = value_at(numbered, "/comparison/floor/achievable_seconds/value")
    floor = value_at(numbered, _FLOOR)
    by_bytes = read is not None and floor is not None and math.isclose(read, floor, rel_tol=1e-9)
    if not isinstance(parts, Mapping) or not parts or not by_bytes:
        return [("arithmetic" if not by_bytes else "the floor", _FLOOR, "floor")]
    return [
        (
            _PARTS.get(str(key), str(key)),
            pointer("comparison", "floor", "part_seconds", key, "value"),
            "floor",
        )
        for key in parts
    ]


def _bar(name: str, kind: str, start: float, end: float, told: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "kind": kind, "from": start * 1e3, "to": end * 1e3, **told}


def roofline_plot(numbered: Numbered) -> Plot | None:
    """The step under both roofs of one GPU; None where the document has no roofline."""
    names = ("intensity", "memory_achievable", "memory_datasheet", "compute_achievable", "compute_datasheet")
    known = {name: value_at(numbered, f"/roofline/{name}/value") or 0.0 for name in names}
    if min(known.values()) <= 0:
        return None
    bends = {edge: known[f"compute_{edge}"] / known[f"memory_{edge}"] for edge in ("achievable", "datasheet")}
    least, most = known["intensity"] / 8, max(6 * max(bends.values()), 4 * known["intensity"])
    rows: list[dict[str, Any]] = [
        {"x": x, "y": min(known[f"memory_{edge}"] * x, known[f"compute_{edge}"]) / 1e12, "roof": said}
        for edge, said in (("achievable", "achievable"), ("datasheet", "data sheet"))
        for x in sorted({least, max(least, bends[edge]), most})
    ]
    reached = value_at(numbered, _REACHED) or 0.0
    least_y = min([row["y"] for row in rows] + ([reached / 2e12] if reached > 0 else []))
    scale = {"type": "log", "nice": False}
    x_axis = axis("FLOPs per byte", grid=False, format="~s")
    x = by("x", scale={**scale, "domain": [least, most]}, axis=x_axis)
    ends = [least_y, max(row["y"] for row in rows) * 1.2]
    y = by("y", scale={**scale, "domain": ends}, axis=axis("TFLOP/s of one GPU", grid=False, format="~s"))
    roofs = ["achievable", "data sheet"]
    look = {
        "color": by("roof", "nominal", scale={"domain": roofs, "range": [BLUE, QUIET]}),
        "strokeDash": by("roof", "nominal", scale={"domain": roofs, "range": [[1, 0], [6, 4]]}),
    }
    layers = [layer("line", rows, {"x": x, "y": y, **look})]
    if reached > 0:
        told = [{"x": known["intensity"], "y": reached / 1e12, **label(numbered, _REACHED, "FLOP/s")}]
        told[0]["text"] = f"you: {told[0]['text']}"
        point = {"type": "point", "filled": True, "size": 90, "color": ORANGE, "opacity": 1}
        here = {"x": x, "y": y}
        layers += [layer(point, told, here), written(told, here, bold=True, dx=10, dy=9)]
    spec = {"width": WIDTH, "height": 260, "layer": layers}
    return Plot(
        "roofline",
        "The roofline of a decode step",
        svg(spec, "roofline", "Arithmetic of a decode step against the roofs of this GPU"),
        "Left of the bend a step waits for bytes, right of it for arithmetic. The orange point is your step: "
        "right below the blue line it is as fast as this batch allows, and only more requests in the batch "
        "move it (to the right). Far below the line the time goes elsewhere. Both scales are logarithmic.",
    )
