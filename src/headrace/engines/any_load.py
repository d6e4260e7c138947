"""Reads the load of a server whose engine is not known beforehand: asks each engine's cheap endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.engines.llamacpp.load import LlamaCppLoad
from headrace.engines.load import Fetch, Load
from headrace.engines.sglang.load import SglangLoad
from headrace.engines.vllm.load import VllmLoad


class AnyEngineLoad:
    """Finds out once which engine answers, then asks only what that engine has."""

    def __init__(self) -> None:
        self._reader: Callable[[Fetch], Awaitable[Load | None]] | None = None

    async def read(self, fetch: Fetch) -> Load | None:
        """The server's load now; None when no known engine's endpoints answer."""
        if self._reader is not None:
            return await self._reader(fetch)
        for reader in (SglangLoad(), VllmLoad(), LlamaCppLoad()):
            load = await reader.read(fetch)
            if load is not None:
                self._reader = reader.read
                return load
        return None
