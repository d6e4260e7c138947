"""Reading a model's files: config.json and what lies beside it. Bounded, and nothing inside a file is a
path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import InputError

MAX_CONFIG_BYTES = 16 * 2**20  # the largest real ones list 20,000 quantised modules in 3 MB
MAX_DEPTH = 32


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file. Raises InputError: unreadable, too large, too deep, not a JSON
    object."""
    try:
        if not path.is_file():
            raise InputError(f"{path}: not a file; give a config.json, or the folder that holds one")
        with path.open("rb") as stream:
            raw = stream.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; check the path and its permissions"
        ) from error
    if len(raw) > MAX_CONFIG_BYTES:
        raise InputError(
            f"{path}: larger than {MAX_CONFIG_BYTES // 2**20} MiB, which no config.json is; give another"
        )
    return parse_json(raw, str(path))


def parse_json(raw: bytes, name: str) -> dict[str, Any]:
    """Returns the JSON object in `raw`. Raises InputError where it is malformed, too deep, or not an
    object."""
    try:
        document = json.loads(raw)
    except RecursionError as error:
        raise InputError(f"{name}: nested deeper than {MAX_DEPTH} levels; a config.json is not") from error
    except ValueError as error:
        raise InputError(f"{name}: not JSON: {error}; give a config.json") from error
    if not isinstance(document, dict):
        raise InputError(
            f"{name}: a JSON object is needed, this is {type(document).__name__}; give a config.json"
        )
    if _deeper_than(document, MAX_DEPTH):
        raise InputError(f"{name}: nested deeper than {MAX_DEPTH} levels; a config.json is not")
    return document


def _deeper_than(document: Any, limit: int) -> bool:
    level = [document]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def read_config(path: Path) -> Mapping[str, Any]:
    """Returns the config in a file or in a folder's config.json.

    Where hf_quant_config.json lies beside it, its "quantization" is added to the config's own, as engines do.
    """
    folder = path if path.is_dir() else path.parent
    config = read_json(path / "config.json" if path.is_dir() else path)
    beside = folder / "hf_quant_config.json"
    if path.name in {"config.json", folder.name} and beside.is_file():
        inner = read_json(beside).get("quantization")
        if isinstance(inner, dict):
            own = config.get("quantization_config")
            config["quantization_config"] = {**(own if isinstance(own, dict) else {}), **inner}
    return config
