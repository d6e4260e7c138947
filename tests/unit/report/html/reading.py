"""Reads a page back: its elements, their ids, and the text that stands outside of them."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

_VOID = {"meta", "br", "link", "img", "input", "hr"}


class PageReader(HTMLParser):
    """What a browser would see of a page, as far as tests ask.

    Attributes:
        numbers: (id, value) of every `data` element.
        texts: (id, text) of every other element with an id of a value.
        drawn: what the marks of drawings say of themselves: "ID = VALUE".
        loose: visible text outside of elements with an id, drawings, style and code of ours.
        tags: every (tag, attributes).
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.numbers: list[tuple[str, str]] = []
        self.texts: list[tuple[str, str]] = []
        self.drawn: list[str] = []
        self.loose: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[tuple[str, str | None]] = []
        self._text: list[str] = []
        self.feed(page)
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.append((tag, known))
        if (said := known.get("aria-label")) and said.startswith("/"):
            self.drawn.append(said)
        if tag in _VOID:
            return
        where = known.get("data-id")
        if where is not None:
            self._text = []
            if tag == "data":
                self.numbers.append((where, str(known.get("value"))))
        self._open.append((tag, where))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        opened, where = self._open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"
        if where is not None and tag != "data":
            self.texts.append((where, "".join(self._text)))

    def handle_data(self, data: str) -> None:
        tags = {tag for tag, _ in self._open}
        if any(where is not None for _, where in self._open):
            self._text.append(data)
        elif not tags & {"style", "svg", "title", "code"} and data.strip():
            self.loose.append(data.strip())


def resolve(document: Any, where: str) -> Any:
    """What a JSON pointer (RFC 6901) points at. Raises KeyError or IndexError where nothing is there."""
    found = document
    for raw in where.split("/")[1:]:
        key = raw.replace("~1", "/").replace("~0", "~")
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found
