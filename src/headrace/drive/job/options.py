"""The options of a job: one word each, the same on the command line, in Python and in a job file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.drive.job.file import Given

KEYS: Mapping[str, tuple[str, ...]] = {
    "prompts": ("prompts",),
    "server": ("servers",),
    "out": ("out",),
    "model": ("model",),
    "api": ("api",),
    "in_flight": ("in_flight",),
    "max_tokens": ("sampling", "max_tokens"),
    "temperature": ("sampling", "temperature"),
    "top_p": ("sampling", "top_p"),
    "top_k": ("sampling", "top_k"),
    "min_p": ("sampling", "min_p"),
    "seed": ("sampling", "seed"),
    "stop": ("sampling", "stop"),
    "thinking": ("thinking",),
    "system": ("system",),
    "count": ("count",),
    "samples": ("samples",),
    "columns": ("columns",),
    "id_column": ("id_column",),
    "exclude": ("exclude",),
    "format": ("format",),
    "token_ids": ("token_ids",),
    "flags_policy": ("flags_policy",),
    "retry_failed": ("retry_failed",),
    "extra_body": ("extra_body",),
    "request_timeout": ("request_timeout",),
    "max_tries": ("max_tries",),
    "row_checks": ("row_checks",),
    "hedge": ("hedge",),
    "api_key_env": ("api_key_env",),
    "api_key_file": ("api_key_file",),
    "ledger": ("ledger",),
}


def flag(option: str) -> str:
    """The option as the command line has it: `max_tokens` is `--max-tokens`."""
    return "--" + option.replace("_", "-")


def keyword(option: str) -> str:
    """The option as Python has it: `max_tokens` is `max_tokens=`."""
    return option + "="


def given_options(values: Mapping[str, Any], label: Callable[[str], str]) -> list[Given]:
    """What was given of the known options; None and empty lists count as not given."""
    result = []
    for option, key in KEYS.items():
        value = values.get(option)
        if value is None or (isinstance(value, list | tuple) and not value):
            continue
        result.append(Given(key, _plain(value), label(option)))
    return result


def _plain(value: Any) -> Any:
    """The value as a job file would hold it."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
