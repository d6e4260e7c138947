"""Two diagnoses of the same fleet, or of two: what binds each, and which numbers moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_PLACES = (("baseline", "numbers"), ("decomposition",))
_SINGLE = ("bound_output_tokens_per_s", "reached")


def against(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what changed from one diagnosis document to another, both as `Diagnosis.to_json` gives them.

    Keys: `subject`, `binding` and `ladder` of `before`; `changes`, one per number that both or one of them
    has: `id` (where it stands in a document; a rung by its constraint), `name`, `unit`, `before`, `after`,
    `ratio` (after ÷ before, null where that cannot be told) and `within_range` (their ranges meet: they
    may be the same number).
    """
    then, now = dict(_numbers(before)), dict(_numbers(after))
    return {
        "subject": before.get("subject"),
        "binding": before.get("binding"),
        "ladder": before.get("ladder"),
        "changes": [_change(where, then.get(where), now.get(where)) for where in {**now, **then}],
    }


def _numbers(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    seen: set[str] = set()  # running and the step stand in both places
    for place in _PLACES:
        found: Any = document
        for key in place:
            found = found.get(key) or {}
        for name, quantity in found.items():
            if quantity is not None and name not in seen:
                seen.add(name)
                yield f"/{'/'.join(place)}/{name}", quantity
    comparison = document.get("comparison") or {}
    for name in _SINGLE:
        if comparison.get(name) is not None:
            yield f"/comparison/{name}", comparison[name]
    for rung in document.get("ladder") or []:
        if rung.get("quantity") is not None:
            yield f"/ladder/{rung['constraint']}", rung["quantity"]


def _change(where: str, then: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> dict[str, Any]:
    one = now or then or {}
    before = then.get("value") if then else None
    after = now.get("value") if now else None
    ratio = after / before if before and after is not None else None
    return {
        "id": where,
        "name": where.rsplit("/", 1)[-1],
        "unit": one.get("unit", ""),
        "before": before,
        "after": after,
        "ratio": ratio,
        "within_range": bool(then and now and _overlap(then, now)),
    }


def _overlap(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two quantities may be the same number: their ranges meet, or they are equal."""
    ends = []
    for quantity in (then, now):
        value = quantity.get("value")
        if value is None:
            return False
        low, high = quantity.get("low"), quantity.get("high")
        ends.append((value if low is None else low, value if high is None else high))
    return bool(max(ends[0][0], ends[1][0]) <= min(ends[0][1], ends[1][1]))
