"""Reads the load of a server whose engine is not known beforehand: asks each engine's cheap endpoints."""

from __future__ import annotations

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


class AnyEngineLoad:
    """Finds out once which engine answers, then asks only what that engine has."""

    def __init__(self) -> None:
        self._reader: Callable[[Fetch], Awaitable[Load | None]] | None = None

    async def read(self, fetch: Fetch) -> Load | None:
        """The server's load now; None when no known engine's endpoints answer."""
        from headrace.engines.llamacpp.load import LlamaCppLoad
        from headrace.engines.sglang.load import SglangLoad
        from headrace.engines.vllm.load import VllmLoad

        if self._reader is not None:
            return await self._reader(fetch)
        for reader in (SglangLoad(), VllmLoad(), LlamaCppLoad()):
            load = await reader.read(fetch)
            if load is not None:
                self._reader = reader.read
                return load
        return None


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
        if value == value:
            found[key] = found.get(key, 0.0) + value
    return found
