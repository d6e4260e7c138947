"""The real engines against the contract that the emulated server is held to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contract.engine_contract import CHECKS, Engine
from tests.engines.server import EngineServer


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(engine: EngineServer, check: Callable[[Engine], None]) -> None:
    check(engine)
