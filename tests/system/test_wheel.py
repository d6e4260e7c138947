"""A wheel built from the tree installs into an empty virtual environment, and `headrace --help` works."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_REGISTRY = ("Temporary failure in name resolution", "No matching distribution found", "ConnectionError",
               "Failed to establish a new connection", "Read timed out", "Could not fetch URL")  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree with what is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("headrace-*.whl")
    return built


def pip(*arguments: object, python: Path = Path(sys.executable)) -> None:
    """Runs pip; the test skips, saying so, where the package registry does not answer."""
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd="/")
    if done.returncode and any(words in done.stderr for words in NO_REGISTRY):
        pytest.skip(f"the package registry does not answer: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def test_the_wheel_holds_the_package_its_type_marker_its_data_and_the_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "headrace/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    in_tree = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "headrace").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert in_tree <= set(names)
    assert not [name for name in names if not name.startswith(("headrace/", "headrace-"))]


def test_the_wheel_installs_into_an_empty_environment_and_says_help(wheel: Path, tmp_path: Path) -> None:
    venv.EnvBuilder(with_pip=True, symlinks=True).create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    pip("install", wheel, python=python)

    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "headrace", "--help"], capture_output=True, text=True, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert "run" in done.stdout
    assert "status" in done.stdout
    # the core install stays small: pyarrow and its like come with extras
    for extra in ("pyarrow", "scipy", "numba"):
        assert subprocess.run([python, "-c", f"import {extra}"], capture_output=True).returncode != 0
