"""The kernel at length: many random fleets against the reference, and compiled against plain Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.simulate.random_fleets import differences, random_fleet, through_kernel

ROOT = Path(__file__).parents[2]
SEEDS = range(0, 120, 3)
_COMPILED = """
import json, sys
from headrace.simulate.kernel.compiled import IS_COMPILED
from tests.unit.simulate.random_fleets import random_fleet, through_kernel
found = {}
for seed in map(int, sys.argv[1:]):
    one = through_kernel(random_fleet(seed))
    one["series"] = one["series"].columns.tolist()
    found[seed] = one
json.dump([IS_COMPILED, found], sys.stdout)
"""


@pytest.mark.parametrize("start", range(100, 1200, 100))
def test_eleven_hundred_random_fleets_are_walked_exactly(start: int) -> None:
    found = {seed: wrong for seed in range(start, start + 100) if (wrong := differences(seed))}
    assert not found


@pytest.mark.timeout(600)
def test_compiled_and_plain_python_agree_to_the_bit() -> None:
    """All times, counts and series of 40 fleets; the first compilation takes a minute on a busy machine."""
    pytest.importorskip("numba")
    environment = {**os.environ, "HEADRACE_KERNEL": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _COMPILED, *map(str, SEEDS)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    is_compiled, found = json.loads(done.stdout)
    assert is_compiled
    for seed in SEEDS:
        plain: dict[str, Any] = through_kernel(random_fleet(seed))
        plain["series"] = plain["series"].columns.tolist()
        assert _comparable(found[str(seed)]) == _comparable(plain), seed


def _comparable(one: dict[str, Any]) -> str:
    """NaN is equal to itself as text; repr keeps every bit of a float."""
    return repr(json.loads(json.dumps(one)))
