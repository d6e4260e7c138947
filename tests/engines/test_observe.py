"""Real servers under load: what is seen live is what they do, and what their own log says."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.observe.log import read_log
from tests.engines.server import EngineServer
from tests.engines.watched import BEYOND_CAP, Watched


def test_a_full_server_is_seen_full(engine: EngineServer, watched_full: Watched) -> None:
    seen = watched_full.seen
    assert seen.engine == engine.kind
    assert seen.engine_version
    assert seen.value("running") == pytest.approx(engine.cap, rel=0.15)
    assert 1 <= (seen.value("queued") or 0) <= BEYOND_CAP + 4
    if engine.kind != "vllm":  # it does not tell its cap
        assert seen.value("cap") == engine.cap
    # some engines count an answer's tokens when it ends: off by what is in flight at either end of the window
    in_flight = engine.cap * watched_full.tokens / watched_full.seconds
    rate = watched_full.counted_per_s
    assert seen.value("output_tokens_per_s") == pytest.approx(rate, abs=in_flight + 0.1 * rate)
    assert "state_usage" in seen.readings or "qwen3next" not in engine.model or engine.kind == "vllm"
    assert seen.events == ()


def test_the_log_says_the_same(engine: EngineServer, watched_full: Watched, tmp_path: Path) -> None:
    if engine.kind == "llamacpp":
        pytest.skip("llama.cpp's log has no line of its load")
    seen = watched_full.seen
    log = tmp_path / "server.log"
    log.write_bytes(watched_full.log)
    (logged,) = read_log(log, "log").servers
    assert logged.engine == engine.kind
    assert logged.value("running") == pytest.approx(seen.value("running"), rel=0.2)
    assert logged.value("kv_capacity_tokens") == seen.value("kv_capacity_tokens")
    if engine.kind == "sglang":
        assert logged.value("cap") == seen.value("cap") == engine.cap
        assert logged.value("state_slots") == seen.value("state_slots")
        assert logged.value("state_usage") == pytest.approx(seen.value("state_usage"), abs=0.02)
