"""The Python in the documentation runs, on a finished job of the emulated fleet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documentation import Block, blocks
from tests.driver_process import HEADRACE, environment, headrace


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a finished job in out/first, as the documentation has it."""
    folder = tmp_path_factory.mktemp("docs")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Count to {at}."}) + "\n" for at in range(30)))
    emulator = subprocess.Popen(
        [*HEADRACE, "emulate", "--replicas", "1", "--base-port", "0", "--speed", "50"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with emulator:
        try:
            assert emulator.stdout is not None
            url = next(line.strip() for line in emulator.stdout if line.startswith("http://"))
            done = headrace("run", "--prompts", prompts, "--server", url, "--out", folder / "out" / "first")
            assert done.returncode == 0, done.stdout + done.stderr
            yield folder
        finally:
            emulator.terminate()


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.where)
def test_the_python_shown_runs(block: Block, workplace: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        capture_output=True,
        text=True,
        cwd=workplace,
        env=environment(),
    )
    assert done.returncode == 0, f"{block.where}\n{done.stderr}"
