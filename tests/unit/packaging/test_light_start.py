"""`headrace --help` must stay light: what is heavy is imported by the command that needs it."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyarrow", "aiohttp", "numpy", "pydantic", "uvloop", "scipy", "numba")


def test_the_command_line_starts_without_anything_heavy() -> None:
    code = "import sys, headrace.cli.app; print(' '.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "headrace" in loaded
    assert sorted(loaded & set(HEAVY)) == []
