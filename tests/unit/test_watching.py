"""Watching servers look by look: what is shown is what `diagnose` would say of them, and silence is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.clock import VirtualClock
from headrace.errors import UsageError
from headrace.net.http import HttpFailure
from headrace.report.watch_document import WatchDocument
from headrace.watching import Watching
from tests.unit.observe.test_live import page, sglang_info, sglang_loads

GOLDEN_FLAGS = (
    "--model-path Qwen/Qwen3.6-27B --mem-fraction-static 0.85 --mamba-scheduler-strategy extra_buffer"
)
GPU = "RTX PRO 6000 Blackwell Server"


@dataclass
class Answer:
    status: int
    body: bytes


class Servers:
    """Stands for the HTTP client: servers by URL, each a function of the time; None does not connect."""

    def __init__(self, clock: VirtualClock, servers: dict[str, Any]) -> None:
        self._clock, self._servers = clock, servers
        self.asked: list[str] = []

    async def get(self, url: str, timeout_seconds: float) -> Answer:
        base, path = "/".join(url.split("/")[:3]), "/" + url.split("/", 3)[3]
        self.asked.append(path)
        body = self._servers[base](path.split("?")[0], self._clock.monotonic())
        if body is None:
            raise HttpFailure("dropped", "Connection refused")
        return Answer(200, body) if body else Answer(404, b"")


def sglang(path: str, seconds: float, **more: float) -> bytes:
    if path == "/metrics":
        return page(1000.0 * seconds, **more)
    return {"/server_info": sglang_info(), "/v1/loads": sglang_loads()}.get(path, b"")


def looks(servers: dict[str, Any], times: int, every: float = 2.0, **told: str) -> list[WatchDocument]:
    clock = VirtualClock()
    http = Servers(clock, servers)

    async def go() -> list[WatchDocument]:
        watching = Watching(list(servers), http, clock, told)  # type: ignore[arg-type]
        seen = []
        for _ in range(times):
            seen.append(await watching.look())
            clock.advance(every)
        return seen

    found = asyncio.run(go())
    assert not any("health" in path or "generate" in path for path in http.asked), "only cheap pages"
    return found


def test_the_figures_are_those_of_the_pages() -> None:
    last = looks({"http://a:1": sglang}, 4)[-1]
    (row,) = last.servers
    assert (row.running, row.queued, row.cap, row.kv_usage) == (30, 5, 40, 0.4)
    assert row.output_tokens_per_s == pytest.approx(1000), "tokens grow by 1000 a second"
    assert row.step_seconds == pytest.approx(30 / 1000), "running ÷ tokens per second"
    assert last.seconds == 6.0
    assert last.verdict is not None


def test_the_rate_is_of_the_last_minute() -> None:
    def slower_later(path: str, seconds: float) -> bytes:
        made = 1000.0 * min(seconds, 100) + 100.0 * max(0.0, seconds - 100)
        return page(made) if path == "/metrics" else sglang(path, seconds)

    last = looks({"http://a:1": slower_later}, 100)[-1]
    assert last.servers[0].output_tokens_per_s == pytest.approx(100)


def test_a_server_that_falls_silent_and_comes_back() -> None:
    def flaky(path: str, seconds: float) -> bytes | None:
        return None if 3 < seconds < 9 else sglang(path, seconds)

    seen = looks({"http://a:1": sglang, "http://b:2": flaky}, 8)
    assert [document.answering for document in seen] == [2, 2, 1, 1, 1, 2, 2, 2]
    assert "Connection refused" in seen[2].servers[1].problem
    total = seen[3].total("running")
    assert total is not None
    assert (total.value, total.servers) == (30, 1)


def test_a_server_that_is_down_all_the_time_is_named() -> None:
    (seen,) = looks({"http://a:1": lambda path, seconds: None}, 1)
    assert seen.answering == 0
    assert seen.verdict is not None
    assert seen.verdict.constraint == "server_down"


def test_what_is_no_engine_is_told() -> None:
    (seen,) = looks({"http://a:1": lambda path, seconds: b"<html>"}, 1)
    assert seen.servers[0].problem.startswith("no known engine")


def test_state_slots_are_held_and_reserved() -> None:
    # the golden case: 188 slots, five of them reserved per request with extra_buffer and the radix cache
    slots = {
        "sglang:mamba_used_tokens": 115,
        "sglang:mamba_evictable_tokens": 13,
        "sglang:mamba_available_tokens": 60,
        "sglang:mamba_usage": 0.61,
    }

    def hybrid(path: str, seconds: float) -> bytes:
        return page(1000.0 * seconds, **slots) if path == "/metrics" else sglang(path, seconds)

    last = looks({"http://a:1": hybrid}, 2, flags=GOLDEN_FLAGS, model="Qwen/Qwen3.6-27B", gpu=GPU)[-1]
    assert last.servers[0].state_held == 0.61
    assert last.servers[0].state_reserved == pytest.approx(30 * 5 / 188)


def test_a_log_is_no_target() -> None:
    with pytest.raises(UsageError, match="headrace diagnose"):
        Watching(["server.log"], None, VirtualClock())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="user name or password"):
        Watching(["http://me:secret@a:1"], None, VirtualClock())  # type: ignore[arg-type]
