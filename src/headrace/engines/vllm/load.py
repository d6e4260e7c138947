"""vLLM's load from /metrics. It exports no cap of running requests (engines.md §4.3): that stays None."""

from __future__ import annotations

from headrace.engines.load import Fetch, Load, sums_of

_NAMES = {"vllm:num_requests_running": "running", "vllm:num_requests_waiting": "queued"}


class VllmLoad:
    """Reads one vLLM server; its engines (DP ranks) are summed."""

    async def read(self, fetch: Fetch) -> Load | None:
        """The load now, or None when this is no vLLM server or it runs with --disable-log-stats."""
        exposition = await fetch("/metrics")
        found = sums_of(exposition, _NAMES) if exposition else {}
        if "running" not in found:
            return None
        return Load(engine="vllm", running=int(found["running"]), queued=int(found.get("queued", 0)))
