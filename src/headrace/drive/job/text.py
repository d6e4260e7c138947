"""YAML text with places: every value of a job file knows its `file:line:column`.

PyYAML is used for scanning and composing only. Scalars follow YAML 1.2 (`no` and `on` are words, `1e-3` is a
number, `30000:30001` is text); tags other than the plain ones are refused; nothing is constructed by name.
A job file is written by hand: at most 1 MB, 20 levels, 100,000 values.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from headrace.errors import UsageError

MAX_FILE_BYTES = 1_000_000
MAX_DEPTH = 20
MAX_VALUES = 100_000

Key = tuple[str | int, ...]  # where a value stands: ("sources", 0, "sampling", "max_tokens")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written: what stands before a problem, and where relative paths start from."""

    label: str
    folder: Path


@dataclass(slots=True)
class PlacedText:
    """What a job file says.

    Attributes:
        value: plain mappings, lists and scalars.
        places: the place of every value, by its key.
        names: the place of every mapping key, by the key of its value.
        problems: what is wrong with the text itself.
        faulty: the keys of the values that `problems` speaks of; they stand as None in `value`.
    """

    value: dict[str, Any]
    places: dict[Key, Place] = field(default_factory=dict)
    names: dict[Key, Place] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    faulty: set[Key] = field(default_factory=set)

    def place(self, key: Key) -> Place | None:
        """The place of `key`, or of the nearest value around it."""
        for length in range(len(key), -1, -1):
            if found := self.places.get(key[:length]):
                return found
        return None

    def at(self, key: Key, text: str, *, name: bool = False) -> str:
        """The problem `text` with its place before it: that of the value, or of its name."""
        place = (self.names.get(key) if name else None) or self.place(key)
        return f"{place.label}: {text}" if place else text


class _TooDeep(Exception):
    """The nesting limit was passed; holds the mark."""

    def __init__(self, mark: yaml.Mark) -> None:
        self.mark = mark


class _Resolver(BaseResolver):
    """The scalars of YAML 1.2's core schema."""


for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"^[-+]?[0-9]+(?:_[0-9]+)*$", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
):
    _Resolver.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


class _Loader(Reader, Scanner, Parser, Composer, _Resolver):
    """Composes nodes; has no constructor."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        _Resolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:
            raise _TooDeep(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def read_placed(path: Path) -> PlacedText:
    """The job file's values and their places.

    Raises:
        UsageError: the file cannot be read, is no YAML, or is not a mapping.
    """
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            raise UsageError(
                f"{path}: a job file of {size_bytes:,} bytes; the limit is {MAX_FILE_BYTES:,}. "
                "Put prompts into a file of their own and name it under 'prompts'."
            )
        raw = path.read_bytes()
    except IsADirectoryError:
        raise UsageError(f"{path}: a folder, not a job file. Name the YAML file itself.") from None
    except FileNotFoundError:
        raise UsageError(f"{path}: no such job file. Check the path, or give the job by flags.") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}. Check its permissions.") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(
            f"{path}:{line}: byte 0x{raw[error.start]:02x} is not UTF-8. Save the file as UTF-8."
        ) from None
    return parse_placed(text, str(path), path.absolute().parent)


def parse_placed(text: str, name: str, folder: Path, kind: str = "job file") -> PlacedText:
    """The values of a text; `name` stands before every line number, relative paths start from `folder`.

    Args:
        kind: what the text is called where it is none, e.g. `facts file`.

    Raises:
        UsageError: no YAML, too deep, or not a mapping.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        raise UsageError(
            f"{name}:{line}:{column}: character {error.character!r} is not allowed in YAML. Remove it."
        ) from None
    except _TooDeep as error:
        raise UsageError(
            f"{name}:{_at(error.mark)}: nested deeper than {MAX_DEPTH} levels. A {kind} needs five."
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if _lacks_colon(error):
            mark = error.context_mark  # of the line that has none; the problem is found on the next one
        at = f":{_at(mark)}" if mark else ""
        raise UsageError(f"{name}{at}: not YAML: {_words(error)}.{_hint(text, mark)}") from None
    if not isinstance(node, yaml.MappingNode):
        at = f":{_at(node.start_mark)}" if node is not None else ""
        found = "nothing" if node is None else _kind(node)
        raise UsageError(f"{name}{at}: a {kind} is a mapping of keys to values; here is {found}.")
    placed = PlacedText(value={})
    placed.value = _Converter(name, folder, placed).mapping(node, (), 0)
    return placed


def _at(mark: yaml.Mark) -> str:
    return f"{mark.line + 1}:{mark.column + 1}"


def _words(error: yaml.MarkedYAMLError) -> str:
    if _lacks_colon(error):
        return "a line without ':'; write NAME: VALUE"
    said = [part for part in (error.context, error.problem) if part]
    return ", ".join(said) or "it cannot be parsed"


def _lacks_colon(error: yaml.MarkedYAMLError) -> bool:
    return error.problem == "could not find expected ':'" and error.context_mark is not None


def _hint(text: str, mark: yaml.Mark | None) -> str:
    if mark is None:
        return ""
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1]:
        return " Indent with spaces, not tabs."
    if re.search(r"\S:\S.*:\s|:\s\S.*:\s", line):
        return " Put the value in quotes if it holds ': '."
    return ""


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else f"'{shorten(node.value)}'"


def shorten(value: object, limit: int = 60) -> str:
    """The value as one short line of text."""
    text = value if isinstance(value, str) else repr(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Converter:
    """Turns nodes into plain values, remembering places and collecting problems."""

    def __init__(self, name: str, folder: Path, placed: PlacedText) -> None:
        self._name = name
        self._folder = folder
        self._placed = placed
        self._count = 0
        self._open: set[int] = set()

    def mapping(self, node: yaml.MappingNode, key: Key, depth: int) -> dict[str, Any]:
        self._placed.places[key] = self._place(node)
        result: dict[str, Any] = {}
        first_line: dict[str, int] = {}
        for name_node, value_node in node.value:
            if not isinstance(name_node, yaml.ScalarNode):
                self._problem(name_node, f"a key must be a word; here is {_kind(name_node)}.")
                continue
            name = name_node.value
            if name in first_line:
                self._problem(
                    name_node,
                    f"'{shorten(name)}' is given twice, first on line {first_line[name]}. Keep one of them.",
                )
                continue
            first_line[name] = name_node.start_mark.line + 1
            child: Key = (*key, name)
            self._placed.names[child] = self._place(name_node)
            result[name] = self._value(value_node, child, depth + 1)
        return result

    def _value(self, node: yaml.Node, key: Key, depth: int) -> Any:
        """The plain value; None where a problem was noted instead."""
        self._count += 1
        if self._count > MAX_VALUES:
            raise UsageError(
                f"{self._name}:{_at(node.start_mark)}: more than {MAX_VALUES:,} values, aliases written out. "
                "Put prompts into a file of their own and name it under 'prompts'."
            )
        self._placed.places[key] = self._place(node)
        if depth > MAX_DEPTH or id(node) in self._open:
            return self._faulty(
                node, key, f"nested deeper than {MAX_DEPTH} levels. Does an alias hold itself?"
            )
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and kind == "map":
                return self.mapping(node, key, depth)
            if isinstance(node, yaml.SequenceNode) and kind == "seq":
                return [self._value(item, (*key, at), depth + 1) for at, item in enumerate(node.value)]
            if isinstance(node, yaml.ScalarNode):
                return self._scalar(node, key, kind)
        finally:
            self._open.discard(id(node))
        return self._faulty(node, key, f"tag '{shorten(node.tag)}' is not allowed: write the plain value.")

    def _scalar(self, node: yaml.ScalarNode, key: Key, kind: str) -> Any:
        text: str = node.value
        if kind == "str":
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind not in ("int", "float"):
            return self._faulty(
                node, key, f"tag '{shorten(node.tag)}' is not allowed: write the plain value."
            )
        try:
            number = int(text) if kind == "int" and len(text) <= 30 else float(text.replace("_", ""))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            return self._faulty(node, key, f"{shorten(text)} is not a finite number.")
        return number

    def _faulty(self, node: yaml.Node, key: Key, what: str) -> None:
        self._placed.faulty.add(key)
        self._problem(node, what)

    def _place(self, node: yaml.Node) -> Place:
        return Place(f"{self._name}:{_at(node.start_mark)}", self._folder)

    def _problem(self, node: yaml.Node, what: str) -> None:
        self._placed.problems.append(f"{self._name}:{_at(node.start_mark)}: {what}")
