"""The moments that log lines name, as seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache


def instant(stamp: str, fraction: str | None, zone: str | None = None) -> float | None:
    """Returns seconds since 1970 of `2026-01-01 00:00:00`, `.123` and `+02:00`; None for no such moment."""
    whole = _second(stamp, zone)
    if whole is None or not fraction:
        return whole
    return whole + float(f"0.{fraction}")


@lru_cache(maxsize=4096)
def _second(stamp: str, zone: str | None) -> float | None:
    """Seconds since 1970 of `2026-01-01 00:00:00`, None where there is no such day or hour."""
    try:
        return datetime.fromisoformat(stamp).replace(tzinfo=_zone(zone)).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None


def _zone(zone: str | None) -> timezone:
    if not zone or zone == "Z":
        return UTC
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))
