"""Real servers as fixtures. An engine that this machine cannot have is skipped, and the reason said."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engines.install import LLAMACPP, SGLANG, SGLANG_MODELS, VLLM, CannotInstall, Recipe, install
from tests.engines.server import EngineServer, Launch, launch_llamacpp, launch_sglang, launch_vllm
from tests.engines.watched import Watched, watch_full

ENGINES = [
    pytest.param("vllm", marks=pytest.mark.engine_vllm),
    pytest.param("sglang-llama", marks=pytest.mark.engine_sglang),
    pytest.param("sglang-qwen3next", marks=pytest.mark.engine_sglang),
    pytest.param("llamacpp", marks=pytest.mark.engine_llamacpp),
]
# booting, and for the first test also installing, counts to the test that asks for the server
BOOT_TIMEOUT_SECONDS = 2400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(BOOT_TIMEOUT_SECONDS))


def _installed(recipe: Recipe, shared: Path) -> Path:
    try:
        return install(recipe, shared)
    except CannotInstall as reason:
        pytest.skip(f"real engine not tested: {reason}")


@pytest.fixture(scope="session")
def launch(shared: Path) -> Callable[[str], Launch]:
    """What to start for a name of ENGINES; installs the engine at the first call."""
    recipes = shared / "engines"

    def find(name: str) -> Launch:
        if name == "vllm":
            return launch_vllm(recipes, _installed(VLLM, shared))
        if name == "llamacpp":
            return launch_llamacpp(recipes, _installed(LLAMACPP, shared))
        at, models = _installed(SGLANG, shared), _installed(SGLANG_MODELS, shared)
        if name == "sglang-qwen3next":
            # 24 state slots, 3 for each request: it runs 8
            flags = ("--max-total-tokens", "16384", "--max-mamba-cache-size", "24")
            return launch_sglang(recipes, at, models, "tiny-qwen3next", 8, flags)
        flags = ("--max-total-tokens", "32768", "--max-running-requests", "32")
        return launch_sglang(recipes, at, models, "tiny-llama", 32, flags)

    return find


@pytest.fixture(scope="session", params=ENGINES)
def engine(
    request: pytest.FixtureRequest,
    launch: Callable[[str], Launch],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EngineServer]:
    """One real server, each kind in its turn; pytest runs all tests of one before it starts the next."""
    server = EngineServer(launch(request.param), tmp_path_factory.mktemp("engine"))
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def watched_full(engine: EngineServer) -> Watched:
    """What was seen live of each engine with more in flight than its cap; one watch for all tests of it."""
    return watch_full(engine)


@pytest.fixture
def start_engines(
    launch: Callable[[str], Launch], tmp_path: Path
) -> Iterator[Callable[..., list[EngineServer]]]:
    """Starts several real servers at once, `start_engines("sglang-llama", "vllm")`, for one test."""
    with ExitStack() as running:

        def start(*names: str) -> list[EngineServer]:
            launches = [launch(name) for name in names]
            servers = []
            for one in launches:
                servers.append(EngineServer(one, tmp_path))
                running.callback(servers[-1].stop)
            for server in servers:
                server.wait_ready()
            return servers

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows the end of what its server said."""
    report = yield
    server = getattr(item, "funcargs", {}).get("engine")
    if report.failed and isinstance(server, EngineServer):
        said = server.log.read_text(errors="replace")
        report.sections.append((f"end of {server.log}", said[-3000:]))
    return report
