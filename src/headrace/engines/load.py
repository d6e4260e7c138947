"""What every engine's load reader gives, and how Prometheus text is read for it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

Fetch = Callable[[str], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class Load:
    """A server's load, summed over its ranks; None where it does not say.

    Attributes:
        engine: name, with the version where told.
        cap: effective maximum of running requests.
        running, queued: requests.
    """

    engine: str | None = None
    cap: int | None = None
    running: int | None = None
    queued: int | None = None


def sums_of(exposition: bytes, names: Mapping[str, str]) -> dict[str, float]:
    """Sums over all label sets of a few families in a Prometheus exposition.

    Args:
        exposition: text format; lines that are not samples are passed over.
        names: metric name → key of the result. Families that do not occur are missing from the result.
    """
    found: dict[str, float] = {}
    for line in exposition.decode("utf-8", "replace").splitlines():
        if not line or line[0] == "#":
            continue
        name_end = min((i for i in (line.find("{"), line.find(" ")) if i > 0), default=len(line))
        key = names.get(line[:name_end])
        if key is None:
            continue
        try:
            value = float(line[max(line.rfind("}"), name_end) + (1 if "}" in line else 0) :].split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(value):
            found[key] = found.get(key, 0.0) + value
    return found
