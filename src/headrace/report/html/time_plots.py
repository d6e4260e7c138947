"""Pools, requests and rates over time, where the evidence has samples over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.report.html.drawing import BLUE, GREEN, ORANGE, PURPLE, axis, by, layer, svg
from headrace.report.html.numbered import Numbered
from headrace.report.html.plot import WIDTH, Plot

_FEWEST = 3  # samples: fewer draw no course


@dataclass(frozen=True, slots=True)
class _OverTime:
    """Some columns of the series as one plot."""

    id: str
    title: str
    words: Mapping[str, str]
    read: str
    is_share: bool = False


_ALL = (
    _OverTime(
        "pools",
        "Pools over time",
        {
            "kv_usage": "KV pool",
            "state_usage": "state pool",
            "swa_usage": "sliding-window pool",
            "host_kv_usage": "host KV pool",
        },
        "The share of each pool that requests hold. A pool that stands near its top while requests wait is "
        "what holds them back; one that swings between full and empty throws work away.",
        is_share=True,
    ),
    _OverTime(
        "requests",
        "Running and queued over time",
        {"running": "running", "queued": "queued"},
        "Running that stands at one height while others wait is a cap. Running that falls with nothing "
        "queued is a client that sends too little.",
    ),
    _OverTime(
        "rate",
        "Output tokens per second over time",
        {"output_tokens_per_s": "output tokens/s"},
        "What a server makes. A rise at the start is the ramp, a fall at the end is the tail: neither "
        "belongs to the steady rate.",
    ),
)


def time_plots(numbered: Numbered) -> list[Plot]:
    """Returns the plots over time that the document has samples for."""
    return [plot for each in _ALL if (plot := _draw(each, numbered)) is not None]


def _draw(each: _OverTime, numbered: Numbered) -> Plot | None:
    rows = list(_rows(each, numbered))
    if len({row["t"] for row in rows}) < _FEWEST:
        return None
    drawn = {row["what"] for row in rows}
    seen = [said for said in each.words.values() if said in drawn]
    many = len({row["server"] for row in rows}) > 1
    legend = {} if len(each.words) > 1 else {"legend": None}
    colours = {"domain": seen, "range": [BLUE, ORANGE, GREEN, PURPLE][: len(seen)]}
    y_axis = {**axis("", grid=True), "title": None, **({"format": "%"} if each.is_share else {})}
    encoding = {
        "x": by("t", axis=axis("seconds since the first sample", grid=False), scale={"nice": False}),
        "y": by("v", axis=y_axis, scale={"domain": [0, 1]} if each.is_share else {"zero": True}),
        "color": by("what", "nominal", scale=colours, **legend),
        "detail": by("server", "nominal"),
    }
    mark = {"type": "line", "strokeWidth": 1.4, "opacity": 0.65 if many else 1}
    spec = {"width": WIDTH, "height": 200, "layer": [layer(mark, rows, encoding)]}
    read = each.read + (" One line per server." if many else "")
    return Plot(each.id, each.title, svg(spec, each.id, each.title), read)


def _rows(each: _OverTime, numbered: Numbered) -> list[dict[str, Any]]:
    servers = numbered.get("/series/servers")
    return [
        {"t": second, "v": value, "what": said, "server": number}
        for number, server in enumerate(servers if isinstance(servers, list) else [])
        for word, said in each.words.items()
        for second, value in zip(server["seconds"], server["columns"].get(word, []), strict=False)
        if value is not None
    ]
