"""`@compiled`: numba where it is installed, the same plain Python where it is not.

Compiled code is kept in a folder named after the kernel's whole source: numba itself looks only at the file
of the function it loads, and would go on with a stale callee.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _wanted() -> bool:
    return os.environ.get("HEADRACE_KERNEL", "") != "python"


def _cache_folder() -> Path:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "headrace" / f"kernel-{digest.hexdigest()[:16]}"


def _numba() -> Any:
    if not _wanted():
        return None
    try:
        import numba
    except ImportError:
        return None
    return numba


_NUMBA = _numba()
IS_COMPILED = _NUMBA is not None
_FOLDER = _cache_folder() if IS_COMPILED else None


def compiled(function: _Function) -> _Function:
    """Returns the function compiled on its first call, or itself without numba.

    HEADRACE_KERNEL=python in the environment keeps plain Python.
    """
    if _NUMBA is None:
        return function
    before = _NUMBA.config.CACHE_DIR
    try:
        _NUMBA.config.CACHE_DIR = str(_FOLDER)
        made: _Function = _NUMBA.njit(cache=True)(function)
    except (RuntimeError, OSError):  # no folder can be written: compiled anew in every process
        made = _NUMBA.njit(function)
    finally:
        _NUMBA.config.CACHE_DIR = before
    return made
