"""The emulated server against the contract that the real engines are held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from headrace.simulate.emulate import EmulatorOptions, ThreadedFleet
from tests.contract.engine_contract import CHECKS, Engine


@dataclass(frozen=True)
class Emulated:
    url: str
    model: str
    kind: str
    cap: int


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    options = EmulatorOptions(
        replicas=1, cap=8, speed=40, mean_output_tokens=50, context_length=2048, kv_tokens=16_384
    )
    with ThreadedFleet(options) as fleet:
        yield Emulated(fleet.urls[0], options.model, "sglang", options.cap)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(engine: Engine, check: Callable[[Engine], None]) -> None:
    check(engine)
