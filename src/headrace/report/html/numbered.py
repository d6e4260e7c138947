"""Numbers and texts on a page, each with its id: where in the JSON document the same value stands.

An id is a JSON pointer (RFC 6901): `/baseline/numbers/running/value`. A number is a `<data>` element whose
`value` is the document's own, whatever its text rounds it to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from headrace.report.amounts import shown
from headrace.report.figures import UNKNOWN, printable


def pointer(*keys: str | int) -> str:
    """Returns the JSON pointer of nested keys: `("a", 0, "b/c")` is `/a/0/b~1c`."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def at(document: Any, where: str) -> Any:
    """Returns what stands at a JSON pointer, None where nothing does."""
    found = document
    for raw in where.split("/")[1:]:
        key = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


class Numbered:
    """Draws the values of one document. Everything in it came from outside: it is escaped, always."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def get(self, where: str) -> Any:
        """What stands there, None where nothing does."""
        return at(self._document, where)

    def number(self, where: str, unit: str = "") -> Markup:
        """The number at a pointer, with the unit that the caller knows; a dash where there is none."""
        value = self.get(where)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return Markup(UNKNOWN)
        return Markup('<data data-id="{}" value="{}">{}</data>').format(
            where, json.dumps(value), shown(value, unit)
        )

    def text(self, where: str) -> Markup:
        """The text at a pointer; empty where there is none."""
        value = self.get(where)
        if not isinstance(value, str):
            return Markup("")
        return Markup('<span data-id="{}">{}</span>').format(where, printable(value))

    def quantity(self, where: str, *, ranged: bool = True) -> Markup:
        """The quantity at a pointer, with its range where it has one that can be seen."""
        found = self.get(where)
        if not isinstance(found, Mapping):
            return Markup(UNKNOWN)
        unit = str(found.get("unit", ""))
        text = self.number(f"{where}/value", unit)
        low, high = found.get("low"), found.get("high")
        if not ranged or low is None or high is None or shown(low, unit) == shown(high, unit):
            return text
        return Markup('{} <span class="range">({} … {})</span>').format(
            text, self.number(f"{where}/low", unit), self.number(f"{where}/high", unit)
        )

    def spread(self, where: str, unit: str) -> Markup:
        """An estimate's low … high at a pointer; one number where both read the same."""
        found = self.get(where)
        if not isinstance(found, Mapping):
            return Markup(UNKNOWN)
        if shown(found.get("low"), unit) == shown(found.get("high"), unit):
            return self.number(f"{where}/mid", unit)
        return Markup("{} … {}").format(self.number(f"{where}/low", unit), self.number(f"{where}/high", unit))

    def quiet(self, text: str) -> Markup:
        """A text that is no value of the document, escaped."""
        return escape(printable(text))
