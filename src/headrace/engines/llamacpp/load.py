"""llama.cpp's load: /props has the slots (its cap), /metrics what runs and what is deferred."""

from __future__ import annotations

import msgspec

from headrace.engines.load import Fetch, Load, sums_of

_NAMES = {"llamacpp:requests_processing": "running", "llamacpp:requests_deferred": "queued"}


class _Props(msgspec.Struct):
    total_slots: int


class LlamaCppLoad:
    """Reads one llama-server."""

    def __init__(self) -> None:
        self._slots: int | None = None

    async def read(self, fetch: Fetch) -> Load | None:
        """The load now, or None when this is no llama-server."""
        if self._slots is None:
            props = await fetch("/props")
            if props is None:
                return None
            try:
                self._slots = msgspec.json.decode(props, type=_Props).total_slots
            except (msgspec.DecodeError, RecursionError):
                return None
        exposition = await fetch("/metrics")
        found = sums_of(exposition, _NAMES) if exposition else {}
        return Load(
            engine="llama.cpp",
            cap=self._slots,
            running=int(found["running"]) if "running" in found else None,
            queued=int(found["queued"]) if "queued" in found else None,
        )
