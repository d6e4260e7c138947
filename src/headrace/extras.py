"""What headrace's extras bring, and what to say where one is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from headrace.errors import UsageError

# Which extra of pyproject.toml brings a module.
EXTRA_OF: Mapping[str, str] = {
    "pyarrow": "run",
    "numba": "sim",
    "vl_convert": "report",
    "jinja2": "report",
    "starlette": "web",
    "uvicorn": "web",
    "huggingface_hub": "hf",
    "safetensors": "hf",
    "mcp": "mcp",
    "pynvml": "gpu",
}


def missing(module: str, what: str = "this command") -> UsageError:
    """Returns the error for a module of an extra that is not installed.

    Args:
        what: that needs it, as the beginning of a sentence.
    """
    name = module.split(".")[0]
    extra = EXTRA_OF[name]
    return UsageError(
        f"{what} needs {name}, which is not installed. The extra [{extra}] brings it: "
        f"pip install 'headrace[{extra}]'"
    )


def require(module: str, what: str) -> None:
    """Raises UsageError, which names the extra, where the module is not installed."""
    if importlib.util.find_spec(module) is None:
        raise missing(module, what)


def missing_in(error: ImportError) -> UsageError | None:
    """Returns what to say of an import that failed for want of an extra; None where it failed otherwise."""
    name = (error.name or "").split(".")[0]
    if name not in EXTRA_OF or importlib.util.find_spec(name) is not None:
        return None
    return missing(name)
