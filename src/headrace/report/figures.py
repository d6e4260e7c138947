"""Numbers as people read them: one way to print a count, a rate, a time or a share, everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.net.redact import redact

UNKNOWN = "–"


def count(value: int | None) -> str:
    """1234567 is `1,234,567`; None is a dash."""
    return UNKNOWN if value is None else f"{value:,}"


def several(number: int, noun: str) -> str:
    """`1 server`, `1,200 servers`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rate(value: float | None) -> str:
    """A rate with three significant digits, whole from 100 on: `0.43`, `12.1`, `5,040`."""
    if value is None:
        return UNKNOWN
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """A time in its two largest units: `8.4 s`, `58 s`, `12 min 05 s`, `2 h 14 min`, `3 d 04 h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02} h"


def share(part: float, whole: float) -> str:
    """A share in percent with one digit; a dash of nothing. Never 100.0 % or 0.0 % unless exactly so."""
    if not whole:
        return UNKNOWN
    percent = 100 * part / whole
    if 0 < percent < 0.05:
        return "<0.1 %"
    if 99.95 <= percent < 100:
        return "99.9 %"
    return f"{percent:.1f} %"


def listing(counts: Mapping[str, int]) -> str:
    """`truncated 12, empty 3`, most first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {number:,}" for name, number in ordered if number)


def printable(text: str) -> str:
    """The text without control characters and secrets: what servers say must not steer the terminal."""
    return redact("".join(letter if letter.isprintable() else " " for letter in text))


def cut(text: str, width: int) -> str:
    """The text in at most `width` characters; an ellipsis where it was longer."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def short_url(url: str, width: int) -> str:
    """The server without its scheme, cut in its middle: the port is what tells servers apart."""
    bare = url.split("://", 1)[-1]
    if len(bare) <= width:
        return bare
    tail = min(len(bare.rsplit(":", 1)[-1]) + 1, width - 2) if ":" in bare else width // 2
    tail = max(tail, (width - 1) // 2)
    return bare[: width - 1 - tail] + "…" + bare[-tail:]
