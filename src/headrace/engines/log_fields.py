"""Numbers, settings and scrubbed text out of a log message. Nothing is evaluated; sizes are limited."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from headrace.engines.log_event import Value
from headrace.net.redact import redact

MAX_TEXT: Final = 400  # characters kept of a message
MAX_WORD: Final = 64  # characters kept of a value that is a word
MAX_NAME: Final = 200  # characters kept of a model's name or path
_MAX_UNKNOWN = 16  # unknown pairs kept of one line
_MAX_PAIRS = 8192  # characters of a line of pairs; the longest known has 600

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_WORDS: Mapping[str, float] = {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}


def scrub(text: str, limit: int = MAX_TEXT) -> str:
    """Returns the text on one line, secrets replaced by `[redacted]`, cut to `limit` characters."""
    return redact(" ".join(text[: limit + 400].split()), limit)


def number(text: str) -> float | None:
    """Returns the number at the start: `71.2%` is 0.712, `1,234 tokens` 1234, `True` 1; None where none is.

    Only finite numbers are returned.
    """
    found = _NUMBER.match(text)
    if not found:
        return _WORDS.get(text)
    if found.end() > 40:
        return None
    value = float(found[0].replace(",", ""))
    if not math.isfinite(value):
        return None
    return value / 100 if text[found.end() : found.end() + 1] == "%" else value


def pairs(message: str, words: Mapping[str, str]) -> tuple[dict[str, Value], dict[str, str]]:
    """Returns the known values of `key: value, key: value`, and the pairs that nobody knows, as written.

    `words` names the known keys. A value that is no number is kept among the unknown.
    """
    values: dict[str, Value] = {}
    unknown: dict[str, str] = {}
    for part in message[:_MAX_PAIRS].split(", "):
        key, colon, raw = part.partition(": ")
        if not colon:
            continue
        word = words.get(key)
        if word is not None:
            value = _quick(raw)
            # the comparison is false for NaN and for both infinities
            if value is not None and -1e300 < value < 1e300:
                values[word] = value
                continue
        if len(unknown) < _MAX_UNKNOWN:
            unknown[scrub(key, MAX_WORD)] = _scrubbed_value(key, raw)
    return values, unknown


def _quick(raw: str) -> float | None:
    """`number` for the shapes of batch lines: `0.20`, `True`, `64 reqs`, `71.2%`."""
    if raw in _WORDS:
        return _WORDS[raw]
    head = raw.partition(" ")[0]
    try:
        return float(head[:-1]) / 100 if head[-1:] == "%" else float(head)
    except ValueError:
        return number(raw)


def _scrubbed_value(key: str, raw: str) -> str:
    whole = scrub(f"{key[:100]}: {raw}")
    return "[redacted]" if "[redacted]" in whole else scrub(raw, MAX_WORD)


_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|[()\[\]{}]|[,=:]|[^'"()\[\]{},=:]+""",
    re.DOTALL,
)


def settings(text: str, allowed: Mapping[str, str] | frozenset[str] | tuple[str, ...]) -> dict[str, str]:
    """Returns the top-level pairs of `Name(a='x', b=1)`, `{'a': 'x'}` or `a='x', b=1` whose name is allowed.

    Values are as written, without quotes; a nested container comes as its whole text. Quotes and brackets
    are followed, so a name inside a value or a nested record is never taken for a setting.
    """
    found: dict[str, str] = {}
    for key, value in _top_level(text):
        if key in allowed and key not in found:
            found[key] = value
    return found


def _top_level(text: str) -> Iterator[tuple[str, str]]:
    depth = 0
    base: int | None = None  # the depth of the settings themselves: within the first bracket, if one opens
    key = ""
    piece: list[str] = []
    reading_value = False
    for token in _TOKEN.findall(text):
        if token in ("(", "[", "{"):
            if base is None and not reading_value:
                depth += 1
                base = depth
                piece = []
                continue
            depth += 1
        elif token in (")", "]", "}"):
            depth -= 1
            if base is not None and depth < base:
                break
        if base is None and token in ("=", ":"):
            base = 0
        if depth == (base or 0):
            if token in ("=", ":") and not reading_value:
                key = _unquoted("".join(piece))
                piece, reading_value = [], True
                continue
            if token == ",":
                if reading_value:
                    yield key, _unquoted("".join(piece))
                piece, reading_value = [], False
                continue
        piece.append(token)
    if reading_value:
        yield key, _unquoted("".join(piece))


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1]
    return text


def setting_values(found: Mapping[str, str], names: frozenset[str]) -> dict[str, Value]:
    """Returns settings as numbers and scrubbed words; None, records and empty words are left out.

    `names` are the fields that hold a name or path: they may be longer than other words.
    """
    values: dict[str, Value] = {}
    for key, raw in found.items():
        if raw in ("None", "") or raw[0] in "([{":
            continue
        if raw in _WORDS:
            values[key] = _WORDS[raw]
            continue
        try:
            value: float | None = float(raw)
        except ValueError:
            value = None
        if value is not None and math.isfinite(value):
            values[key] = value
        else:
            values[key] = scrub(raw, MAX_NAME if key in names else MAX_WORD)
    return values
