"""The page: one report document in, one self-contained HTML text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from headrace.extras import require
from headrace.report.amounts import ORIGIN_WORDS
from headrace.report.constraint_words import HEADLINES, sureness
from headrace.words import Constraint

MARK = '<meta name="generator" content="headrace">'
_ANSWERS = {"holds": "holds.", "does_not_hold": "does not hold.", "cannot_be_told": "cannot be told."}
_TILES = (
    ("output_tokens_per_s_fleet", "fleet, output"),
    ("output_tokens_per_s_per_gpu", "per GPU, output"),
    ("running", "running per server"),
    ("queued", "queued per server"),
    ("cap", "cap per server"),
    ("in_flight_per_server", "in flight per server"),
    ("step_seconds", "a decode step"),
    ("kv_usage", "KV pool held"),
    ("state_usage", "state pool held"),
    ("cache_hit_rate", "prefix hits"),
)
_DEEPEST = 24


@dataclass(slots=True)
class Unfolded:
    """A quantity of the document with what it rests on; one that is unfolded elsewhere links there."""

    name: str
    where: str
    origin: str
    sourced: bool
    anchor: str = ""
    link: str = ""
    inputs: list[Unfolded] = field(default_factory=list)


def page(document: Mapping[str, Any]) -> str:
    """Returns a report document as HTML: a checked diagnosis, with `series`, `against`, `report` where there.

    Raises:
        UsageError: jinja2 or vl-convert is not installed; it names the extra.
    """
    require("jinja2", "a report as HTML")
    import jinja2
    from markupsafe import Markup

    from headrace.report.html.cap_plots import ladder_plot, throughput_plot
    from headrace.report.html.numbered import Numbered
    from headrace.report.html.step_plots import gap_plot, roofline_plot
    from headrace.report.html.time_plots import time_plots

    here = files("headrace.report.html")
    numbered = Numbered(document)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.ChainableUndefined, trim_blocks=True, lstrip_blocks=True
    )
    drawn = (draw(numbered) for draw in (ladder_plot, throughput_plot, gap_plot, roofline_plot))
    template = environment.from_string((here / "page.html.j2").read_text("utf-8"))
    return template.render(
        d=document,
        say=numbered,
        css=Markup((here / "page.css").read_text("utf-8")),
        plots=[*(plot for plot in drawn if plot is not None), *time_plots(numbered)],
        tiles=_tiles(document),
        numbers=list(_numbers(document)),
        answers=_ANSWERS,
        sureness=sureness,
        headline=headline,
    )


def headline(constraint: str) -> str:
    """Returns what a constraint means, in a few words; empty for one of a newer version."""
    try:
        return HEADLINES[Constraint(constraint)]
    except ValueError:
        return ""


def _tiles(document: Mapping[str, Any]) -> list[dict[str, str]]:
    numbers = document["baseline"]["numbers"]
    split, comparison = document["decomposition"], document["comparison"]
    found = []
    for name, said in _TILES:
        if name in numbers:
            quantity, where = numbers[name], f"/baseline/numbers/{name}"
            found.append({"name": said, "where": where, "source": quantity.get("source", "")})
    if comparison.get("reached"):
        found.append(
            {"name": "of the floor's rate", "where": "/comparison/reached", "source": "rate ÷ bound"}
        )
    if split.get("prefill_share"):
        found.append({"name": "time in prefill", "where": "/decomposition/prefill_share", "source": ""})
    return found


def _numbers(document: Mapping[str, Any]) -> Iterator[Unfolded]:
    from headrace.report.html.numbered import pointer

    seen: dict[str, str] = {}
    split, comparison = document["decomposition"], document["comparison"]
    roofs = document.get("roofline") or {}
    places: list[tuple[str, tuple[str | int, ...], Any]] = [
        (name, ("baseline", "numbers", name), found)
        for name, found in document["baseline"]["numbers"].items()
    ]
    places += [(name, ("decomposition", name), found) for name, found in split.items()]
    places += [
        (name, ("comparison", name), comparison.get(name))
        for name in ("bound_output_tokens_per_s", "reached")
    ]
    places += [(f"roofline.{name}", ("roofline", name), found) for name, found in roofs.items()]
    for index, rung in enumerate(document["ladder"]):
        places.append((f"ladder.{rung['constraint']}", ("ladder", index, "quantity"), rung.get("quantity")))
    for name, keys, found in places:
        if isinstance(found, Mapping):
            yield _unfolded(name, pointer(*keys), found, seen, 0)


def _unfolded(
    name: str, where: str, quantity: Mapping[str, Any], seen: dict[str, str], depth: int
) -> Unfolded:
    """The tree of one quantity. What was unfolded before is linked to: else inputs would come many times."""
    from headrace.report.html.numbered import pointer

    word = ORIGIN_WORDS.get(quantity.get("origin", ""), "unknown")
    item = Unfolded(name, where, word, bool(quantity.get("source")))
    inputs = quantity.get("inputs") or {}
    if not inputs:
        return item
    key = _key(quantity)
    if key in seen or depth >= _DEEPEST:
        item.link = seen.get(key, "numbers")
        return item
    seen[key] = item.anchor = f"n{len(seen) + 1}"
    item.inputs = [
        _unfolded(inner, where + pointer("inputs", inner), found, seen, depth + 1)
        for inner, found in inputs.items()
    ]
    return item


def _key(quantity: Mapping[str, Any]) -> str:
    import json

    return json.dumps(quantity, sort_keys=True)
