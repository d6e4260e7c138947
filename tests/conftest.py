"""Fixtures that more than one room of tests needs. What is not on this machine is skipped, aloud."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.null_server import Missing, NullServer, build, shared_folder

# Small fleets are faster in plain Python than the kernel's first compilation; the compiled kernel has a test
# of its own.
os.environ.setdefault("HEADRACE_KERNEL", "python")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared facts beside the repository (or HEADRACE_SHARED); the test skips without it."""
    try:
        return shared_folder()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def null_server_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The null server, compiled; the test skips without its source or gcc."""
    try:
        return build(tmp_path_factory.mktemp("null-server"))
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def null_server(null_server_binary: Path) -> Iterator[Callable[..., NullServer]]:
    """Starts null servers (`null_server(delay_ms=200, vary=True)`) that end with the test."""
    with ExitStack() as running:

        def start(**options: Any) -> NullServer:
            return running.enter_context(NullServer(null_server_binary, **options))

        yield start
