"""The locks hold names, versions and hashes, and nothing that belongs to one machine or registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("run", "test")


def pinned(lock: str) -> dict[str, str]:
    """name → the lines that pin it, of requirements/LOCK.txt."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=[a-z0-9])", text.split("\n", 2)[2]):
        name = entry.partition("==")[0]
        found[name] = found.get(name, "") + entry
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_hashes_and_no_address_or_path(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    assert not re.search(r"://|--index|--extra-index|--find-links|@ |\bfile:", text)
    for name, entry in pinned(lock).items():
        assert "--hash=sha256:" in entry, f"{name} has no hash"
    for line in text.splitlines():
        assert re.fullmatch(r"#.*|[a-z0-9.-]+==\S+( ; .*)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line), (
            line
        )


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [("run", ("dependencies", "run", "build")), ("test", ("dependencies", "run", "build", "test"))],
)
def test_a_lock_holds_all_that_the_project_asks_for(lock: str, wanted: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = {
        "dependencies": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
        **project["dependency-groups"],
    }
    names = {re.split(r"[<>=\[ ]", line)[0].lower() for part in wanted for line in asked[part]}
    assert names <= set(pinned(lock))


def test_the_test_lock_holds_the_run_lock() -> None:
    run, test = pinned("run"), pinned("test")
    for name, entry in run.items():
        assert test[name].split() == entry.split()
