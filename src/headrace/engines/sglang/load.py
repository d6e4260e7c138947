"""SGLang's load: /v1/loads (0.5.8 on; works without --enable-metrics), else /server_info and /metrics.

Field names by version: ../shared/facts/engines.md §2.7; `max_running_requests` of /v1/loads is the
*effective* cap per rank, the top-level one of /server_info is only what was asked for.
"""

from __future__ import annotations

import msgspec

from headrace.engines.load import Fetch, Load, sums_of


class _Rank(msgspec.Struct):
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    max_running_requests: int | None = None


class _Loads(msgspec.Struct):
    loads: list[_Rank]
    version: str | None = None


class _Internal(msgspec.Struct):
    effective_max_running_requests_per_dp: int | None = None


class _Info(msgspec.Struct):
    internal_states: list[_Internal] = []
    version: str | None = None


class SglangLoad:
    """Reads one SGLang server."""

    def __init__(self) -> None:
        self._cap: int | None = None
        self._version: str | None = None
        self._old = False

    async def read(self, fetch: Fetch) -> Load | None:
        """The load now, or None when this is no SGLang server."""
        if not self._old:
            body = await fetch("/v1/loads?include=core")
            if body is not None:
                try:
                    loads = msgspec.json.decode(body, type=_Loads)
                except (msgspec.DecodeError, RecursionError):
                    return None
                caps = [rank.max_running_requests for rank in loads.loads if rank.max_running_requests]
                return Load(
                    engine=f"sglang {loads.version}" if loads.version else "sglang",
                    cap=sum(caps) or None,
                    running=sum(rank.num_running_reqs for rank in loads.loads),
                    queued=sum(rank.num_waiting_reqs for rank in loads.loads),
                )
        return await self._read_old(fetch)

    async def _read_old(self, fetch: Fetch) -> Load | None:
        """Before 0.5.8: the cap once from /get_server_info, running and queued from /metrics if it is on."""
        if not self._old:
            body = await fetch("/get_server_info")
            if body is None:
                return None
            try:
                info = msgspec.json.decode(body, type=_Info)
            except (msgspec.DecodeError, RecursionError):
                return None
            self._version = info.version
            caps = [state.effective_max_running_requests_per_dp or 0 for state in info.internal_states]
            self._cap = sum(caps) or None
            self._old = True
        exposition = await fetch("/metrics")
        found = (
            sums_of(exposition, {"sglang:num_running_reqs": "running", "sglang:num_queue_reqs": "queued"})
            if exposition
            else {}
        )
        return Load(
            engine=f"sglang {self._version}" if self._version else "sglang",
            cap=self._cap,
            running=int(found["running"]) if "running" in found else None,
            queued=int(found["queued"]) if "queued" in found else None,
        )
