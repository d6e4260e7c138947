"""Real servers with a limit planted by flags alone: what `diagnose` says of them from the live endpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.diagnose.document import Diagnosis
from headrace.diagnose.pipeline import diagnose
from headrace.diagnosing import context_of
from headrace.observe.observation import Observation
from headrace.words import Constraint
from tests.engines.load import taken
from tests.engines.server import EngineServer, Launch
from tests.engines.watched import Watched, watch

_C = Constraint


def verdict(watched: Watched) -> Diagnosis:
    """What is said of one server."""
    seen = Observation((watched.seen,))
    return diagnose(seen, context_of(seen))


def said(watched: Watched, found: Diagnosis) -> str:
    """The evidence, for a test that fails."""
    columns = {
        word: [round(float(value), 2) for value in watched.seen.columns.get(word, ())]
        for word in ("running", "queued", "kv_usage")
    }
    return f"{found.binding}\n{columns}\n{watched.seen.readings}"


def test_a_server_at_its_cap(engine: EngineServer, watched_full: Watched) -> None:
    found = verdict(watched_full)
    planted = _C.STATE_POOL if "qwen3next" in engine.model else _C.MAX_RUNNING_REQUESTS
    assert found.binding.constraint is planted, said(watched_full, found)


def test_one_in_flight(engine: EngineServer) -> None:
    watched = watch(engine, 1, 400, taken(1))
    found = verdict(watched)
    assert found.binding.constraint is _C.CLIENT_CONCURRENCY, said(watched, found)


@pytest.fixture
def tight(
    launch: Callable[[str], Launch], tmp_path: Path
) -> Iterator[Callable[[str, tuple[str, ...]], EngineServer]]:
    """A server with flags added to those of its kind."""
    with ExitStack() as running:

        def start(name: str, flags: tuple[str, ...]) -> EngineServer:
            plain = launch(name)
            server = EngineServer(replace(plain, command=(*plain.command, *flags)), tmp_path)
            running.callback(server.stop)
            server.wait_ready()
            return server

        yield start


SGLANG_POOL = ("--max-total-tokens", "2048")  # three answers of 600 tokens and a little


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        # the reserve for tokens to come is a tenth of the usual one: it admits too many, and takes work back
        pytest.param(
            "sglang-llama",
            (*SGLANG_POOL, "--schedule-conservativeness", "0.1"),
            marks=pytest.mark.engine_sglang,
            id="sglang-retracts",
        ),
        pytest.param("sglang-llama", SGLANG_POOL, marks=pytest.mark.engine_sglang, id="sglang"),
        # 64 blocks of 128 tokens: 13 answers of 600
        pytest.param("vllm", ("--num-gpu-blocks-override", "64"), marks=pytest.mark.engine_vllm, id="vllm"),
    ],
)
def test_a_tiny_pool(
    tight: Callable[[str, tuple[str, ...]], EngineServer], name: str, flags: tuple[str, ...]
) -> None:
    server = tight(name, flags)
    watched = watch(server, 24, 600, taken(24))
    found = verdict(watched)
    assert found.binding.constraint in (_C.KV_POOL, _C.RETRACTION), said(watched, found)
