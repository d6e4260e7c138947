"""SGLang's /v1/loads (0.5.8 on) in headrace's words: fresh, cheap, and there without --enable-metrics.

Fields by version: 0.5.12 and 0.5.23 as served. `gen_throughput` and `cache_hit_rate` come from the metrics'
bookkeeping and stay 0 without it, so 0 says nothing. In 0.5.23 `decode_moments` holds sums over decode
steps that follow a decode step: steps, batch, microseconds, batch², batch × microseconds, tokens.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headrace.engines.metrics import Page

PATH = "/v1/loads?include=core"
OLD_PATH = "/get_load"
_NAME = re.compile(r"[A-Za-z0-9 ._()/+-]{2,80}$")
_MAX_RANKS = 4096
_LARGEST = 1e15

_GAUGES = {
    "num_running_reqs": "running",
    "num_waiting_reqs": "queued",
    "num_used_tokens": "kv_used_tokens",
    "max_total_num_tokens": "kv_capacity_tokens",
    "max_running_requests": "cap",
}


class Loads(msgspec.Struct):
    """The answer; ranks are read field by field, so that a new or broken field costs only itself."""

    loads: list[dict[str, Any]]
    version: str | None = None
    accelerator: Any = None  # 0.5.23: the GPU's name, null on the CPU


def read_loads(body: bytes) -> tuple[Page, str | None] | None:
    """Returns the answer in headrace's words and the version it tells; None where it is no such answer."""
    try:
        told = msgspec.json.decode(body, type=Loads)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    page = Page(ranks=max(1, min(len(told.loads), _MAX_RANKS)))
    for place, rank in enumerate(told.loads[:_MAX_RANKS]):
        name = str(rank.get("dp_rank", place))[:12]
        for field, word in _GAUGES.items():
            value = _amount(rank.get(field))
            if value is not None:
                page.seen += 1
                page.names[word] = f"/v1/loads {field}"
                page.gauges[word] = page.gauges.get(word, 0.0) + value
                page.by_rank.setdefault(word, {})[name] = value
        usage = _amount(rank.get("token_usage"))
        if usage is not None:
            page.by_rank.setdefault("kv_usage", {})[name] = usage
        _moments(page, rank)
    usages = page.by_rank.get("kv_usage", {})
    if usages:
        page.gauges["kv_usage"] = sum(usages.values()) / len(usages)
        page.names["kv_usage"] = "/v1/loads token_usage"
    if not page.gauges.get("cap"):
        page.gauges.pop("cap", None)
    if len(told.loads) < 2:
        page.by_rank.clear()
    if isinstance(told.accelerator, str) and _NAME.match(told.accelerator):
        page.settings["accelerator"] = told.accelerator
    return (page, (told.version or "")[:64] or None) if page.seen else None


def read_old_load(body: bytes) -> Page | None:
    """Returns the answer of /get_load, the name before 0.5.8; None where it is no such answer."""
    try:
        ranks = msgspec.json.decode(body, type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    page = Page(ranks=max(1, min(len(ranks), _MAX_RANKS)))
    for rank in ranks[:_MAX_RANKS]:
        total, waiting = _amount(rank.get("num_reqs")), _amount(rank.get("num_waiting_reqs"))
        if total is None or waiting is None:
            continue
        page.seen += 1
        page.gauges["queued"] = page.gauges.get("queued", 0.0) + waiting
        page.gauges["running"] = page.gauges.get("running", 0.0) + max(total - waiting, 0.0)
    page.names.update(dict.fromkeys(page.gauges, OLD_PATH))
    return page if page.seen else None


def _moments(page: Page, rank: dict[str, Any]) -> None:
    moments = rank.get("decode_moments")
    if isinstance(moments, list) and len(moments) >= 3:
        steps, microseconds = _amount(moments[0]), _amount(moments[2])
        if steps is not None and microseconds is not None:
            _add(page, "moment_steps", steps, "decode_moments")
            _add(page, "moment_seconds", microseconds / 1e6, "decode_moments")
    busy, computed = (
        _amount(rank.get("total_prefill_busy_us")),
        _amount(rank.get("total_prefill_uncached_tokens")),
    )
    if busy is not None:
        _add(page, "prefill_seconds", busy / 1e6, "total_prefill_busy_us")
    if computed is not None:
        _add(page, "prefill_tokens", computed, "total_prefill_uncached_tokens")


def _add(page: Page, word: str, value: float, field: str) -> None:
    page.counters[word] = page.counters.get(word, 0.0) + value
    page.names[word] = f"/v1/loads {field}"


def _amount(value: object) -> float | None:
    """A number from 0 on; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value) if abs(value) < _LARGEST else -1.0
    return number if number >= 0 else None
