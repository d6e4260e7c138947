"""What a window of log lines shows: a server that hangs, that compiles, that ended; one short of its cap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.diagnose.document import Diagnosis
from headrace.diagnose.pipeline import diagnose
from headrace.diagnosing import context_of
from headrace.observe.log import read_log
from headrace.quantities import Quantity
from headrace.words import Constraint
from tests.unit.diagnose.stories import DENSE, HYBRID, observation, told, view

# The engine's own form: loggers.py of vLLM 0.20 to 0.33 writes one such line per 10 s.
_LINE = (
    "INFO 11-20 10:{m:02d}:{s:02d} [loggers.py:259] Engine 000: Avg prompt throughput: {p} tokens/s, Avg "
    "generation throughput: {g} tokens/s, Running: {r} reqs, Waiting: 0 reqs, GPU KV cache usage: 12.0%, "
    "Prefix cache hit rate: 0.0%"
)


def of_log(tmp_path: Path, lines: list[str]) -> Diagnosis:
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines) + "\n")
    seen = read_log(path, "log", "vllm")
    return diagnose(seen, context_of(seen))


def stats(rates: list[tuple[float, float]], running: int = 4) -> list[str]:
    return [
        _LINE.format(m=i // 6, s=10 * (i % 6), p=prompt, g=made, r=running)
        for i, (prompt, made) in enumerate(rates)
    ]


def test_a_server_that_makes_nothing_while_requests_run_is_down(tmp_path: Path) -> None:
    found = of_log(tmp_path, stats([(900.0, 200.0), (0.0, 210.0), *[(0.0, 0.0)] * 5]))
    assert found.binding.constraint is Constraint.SERVER_DOWN
    assert "no token is read or made" in found.binding.evidence[0]


@pytest.mark.parametrize(
    ("rates", "running"),
    [
        ([(0.0, 200.0)] * 7, 4),  # it makes tokens
        ([*[(0.0, 200.0)] * 4, *[(4000.0, 0.0)] * 3], 4),  # it reads a long prompt
        ([*[(0.0, 200.0)] * 4, *[(0.0, 0.0)] * 3], 0),  # nothing is asked of it
    ],
)
def test_a_server_that_works_or_rests_is_not_down(
    tmp_path: Path, rates: list[tuple[float, float]], running: int
) -> None:
    found = of_log(tmp_path, stats(rates, running))
    assert found.binding.constraint is not Constraint.SERVER_DOWN


def test_what_ended_the_server_is_the_answer(tmp_path: Path) -> None:
    """torch's own message of an allocation that fails, as the last word of a log."""
    oom = (
        "ERROR 11-20 10:02:00 [core.py:900] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        "2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is free."
    )
    dead = "ERROR 11-20 10:02:01 [async_llm.py:600] vllm.v1.engine.exceptions.EngineDeadError: EngineCore"
    found = of_log(tmp_path, [*stats([(900.0, 200.0)] * 6), oom, dead])
    assert found.binding.constraint in (Constraint.CONFIGURATION_ERROR, Constraint.SERVER_DOWN)
    assert found.binding.confidence >= 0.8


@pytest.mark.parametrize(
    ("running", "cap", "ranks", "stands"),
    [
        (48, 48, 1, True),
        (46, 48, 1, True),  # 95.8 %
        (44, 48, 1, False),  # 91.7 %: four places short
        (15, 16, 1, True),  # one place short, of sixteen: a prompt is read in chunks there
        (29, 32, 1, False),
        (29, 32, 4, True),  # 90.6 %: within one place per rank
        (28, 32, 4, False),  # 87.5 %
        (1, 2, 1, False),
    ],
)
def test_where_running_stands(running: int, cap: int, ranks: int, stands: bool) -> None:
    seen = view(told(DENSE, observed={"running": running}))
    seen = replace(seen, server=replace(seen.server, data_parallel=ranks))
    assert seen.stands_at(cap) is stands


def test_the_document_keeps_every_input_to_its_end() -> None:
    """Each number unfolds to evidence, assumptions and constants: no level is left out."""
    seen = observation(HYBRID)
    found = diagnose(seen, context_of(seen))
    assert found.comparison.reached is not None
    reached = found.to_json()["comparison"]["reached"]
    assert Quantity.from_json(reached) == found.comparison.reached
    path = ("bound", "floor", "bytes", "kv", "context", "held", "size", "left", "state_pool", "slots", "rest")
    for name in path:
        reached = reached["inputs"][name]
    assert reached["value"] > 0
