"""The emulated server against the contract that the real engines are held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from headrace.simulate.emulate import EmulatorOptions, ThreadedFleet
from headrace.simulate.emulate.launched import LaunchAsked, with_line
from tests.contract.engine_contract import CHECKS, Engine


@dataclass(frozen=True)
class Emulated:
    url: str
    model: str
    kind: str
    cap: int


@pytest.fixture(scope="module", params=["sglang", "vllm"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    options = EmulatorOptions(
        replicas=1, cap=8, speed=40, mean_output_tokens=50, context_length=2048, kv_tokens=16_384
    )
    if request.param == "vllm":
        line = LaunchAsked(
            "vllm", "0.33.0", "RTX PRO 6000 Blackwell Server", "--max-model-len 2048 --max-num-seqs 8"
        )
        options = with_line(EmulatorOptions(replicas=1, speed=10, model="Qwen3-8B"), line)
    with ThreadedFleet(options) as fleet:
        yield Emulated(fleet.urls[0], options.model, request.param, options.cap)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(engine: Engine, check: Callable[[Engine], None]) -> None:
    check(engine)
