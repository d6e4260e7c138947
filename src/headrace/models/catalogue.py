"""Finding a model: a path, a built-in id, or an unambiguous short name. No network.

The built-in geometries lie in data/geometries.jsonl, one row per checkpoint: {"id", "source", "config",
"storage"?}, `config` being the fields of its config.json that geometry depends on, `storage` the stored
form of its weights where they are quantised. Adding a model is adding a row.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from headrace.errors import UsageError, nearest
from headrace.models.geometry import ModelGeometry
from headrace.models.headers import stored_bytes
from headrace.models.parse import geometry_from_config
from headrace.models.quantisation import Part, Quantisation
from headrace.models.reading import read_config

_CANDIDATES_SHOWN = 12
# Stored forms that a name's ending announces, where the checkpoint itself is not built in.
_ENDINGS: Mapping[str, Mapping[str, Any]] = {
    "-fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "-fp8-dynamic": {"quant_method": "fp8"},
    "-nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "-fp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "-awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "-awq-int4": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "-gptq-int4": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "-gptq-int8": {"quant_method": "gptq", "bits": 8, "group_size": 128},
    "-int8": {"quant_method": "w8a8_int8"},
    "-int4": {"quant_method": "gptq", "bits": 4, "group_size": 128},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One built-in geometry."""

    id: str
    source: str
    config: dict[str, Any]
    storage: dict[str, Any] | None = None


@lru_cache(maxsize=1)
def _lines() -> Mapping[str, bytes]:
    """Returns {id: line}; a row is only parsed when it is asked for."""
    raw = resources.files("headrace.models").joinpath("data/geometries.jsonl").read_bytes()
    lines = (line for line in raw.split(b"\n") if line)
    return {line.split(b'"', 4)[3].decode(): line for line in lines}


def model_ids() -> tuple[str, ...]:
    """Returns the ids of the built-in models, sorted."""
    return tuple(sorted(_lines()))


@lru_cache(maxsize=32)
def built_in(model_id: str) -> ModelGeometry:
    """Returns the built-in geometry with exactly this id. Raises KeyError where there is none."""
    row = Row(**json.loads(_lines()[model_id]))
    return _stored_as(geometry_from_config(row.config, row.id, row.source), row.storage)


def _stored_as(geometry: ModelGeometry, storage: Mapping[str, Any] | None) -> ModelGeometry:
    if storage is None:
        return geometry
    widths = {Part(part): width for part, width in storage["bytes_per_element"].items()}
    quantisation = Quantisation(
        plain_dtype=geometry.quantisation.plain_dtype,
        method=storage["method"],
        weight_dtype=storage["weight_dtype"],
        bytes_per_element=widths,
        kv_dtype=storage["kv_dtype"],
        source="quantization_config, hf_quant_config.json",
    )
    told = (storage["caveat"],) if "caveat" in storage else ()
    return replace(geometry, quantisation=quantisation, caveats=(*geometry.caveats, *told))


def resolve_model(name: str) -> ModelGeometry:
    """Returns the geometry of a model named by path, id or short name.

    Raises UsageError where the name is unknown or fits several models; it lists them, or the nearest ones.
    Raises InputError where a path leads to something that is not a readable, known config.
    """
    if name.startswith(("/", "./", "../", "~")) or name.endswith(".json") or _is_here(name):
        return read_model(Path(os.path.expanduser(name)))
    return find_model(name)


def _is_here(name: str) -> bool:
    """Returns whether the name is a file or folder; a name that no file can have is not."""
    try:
        return bool(name) and Path(name).exists()
    except OSError:
        return False


def find_model(name: str) -> ModelGeometry:
    """Returns the built-in geometry for an id or an unambiguous short name, case and punctuation aside."""
    matches = _matches(name)
    if len(matches) == 1:
        found = built_in(matches[0])
        if _key(name) in {_key(matches[0]), _key(matches[0].partition("/")[2])}:
            return found
        return replace(found, caveats=(*found.caveats, f"{name!r} is taken to be {matches[0]}"))
    if len(matches) > 1:
        shown = ", ".join(matches[:_CANDIDATES_SHOWN]) + (" …" if len(matches) > _CANDIDATES_SHOWN else "")
        raise UsageError(
            f"{name!r} fits {len(matches)} models: {shown}. Give more of the name, or the whole id"
        )
    quantised = _by_ending(name)
    if quantised is not None:
        return quantised
    short = {model_id.partition("/")[2].lower(): model_id for model_id in model_ids()}
    near = nearest(name.rpartition("/")[2].lower(), short)
    raise UsageError(
        f"model {name!r} is not built in; {len(short)} are, headrace model lists them.{near} "
        "Give the path of its config.json, or of the folder it lies in"
    )


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def _matches(name: str) -> list[str]:
    """Returns the ids that fit a name, by the first rule that finds any."""
    ids = model_ids()
    if name in ids:
        return [name]
    key, short_key = _key(name), _key(name.rpartition("/")[2])
    if not short_key:
        return []
    short = {model_id: _key(model_id.partition("/")[2]) for model_id in ids}
    bare = {model_id: _bare(key) for model_id, key in short.items()}
    inside = "/" not in name and len(short_key) >= 4
    rules = (
        [model_id for model_id in ids if _key(model_id) == key],
        [model_id for model_id in ids if short[model_id] == short_key],
        [model_id for model_id in ids if bare[model_id] == _bare(short_key)],
        [model_id for model_id in ids if inside and short_key in short[model_id]],
    )
    return next((found for found in rules if found), [])


def _bare(key: str) -> str:
    """Returns a short name without what tells apart checkpoints of one shape: "instruct", a date, …"""
    endings = r"(instruct|chat|thinking|base|hf|it|mtp|(2[45]|0[1-9]|1[0-2])\d\d)+$"
    return re.sub(endings, "", key.removeprefix("meta"))


def _by_ending(name: str) -> ModelGeometry | None:
    """Returns a built-in model stored as the name's ending says ("-FP8"), or None where that fits nothing."""
    lower = name.lower()
    for ending in sorted(_ENDINGS, key=len, reverse=True):
        if not lower.endswith(ending):
            continue
        matches = _matches(name[: -len(ending)])
        if len(matches) != 1:
            return None
        row = Row(**json.loads(_lines()[matches[0]]))
        config = {**row.config, "quantization_config": dict(_ENDINGS[ending])}
        geometry = geometry_from_config(config, name, row.source)
        told = f"{name!r} is not built in: shape of {matches[0]}, stored form as the name says"
        return replace(geometry, caveats=(*geometry.caveats, told))
    return None


def read_model(path: Path) -> ModelGeometry:
    """Returns the geometry of a config.json, or of a folder with one.

    Safetensors files in the folder give the exact bytes. A config of a built-in model that lacks fields
    (some copies on the web are cut short) is completed from the built-in one, and says so.
    """
    name = path.name if path.is_dir() else (path.parent.name if path.name == "config.json" else path.stem)
    config = read_config(path)
    geometry = geometry_from_document(config, name, str(path))
    if not path.is_dir():
        return geometry
    files = sorted(path.glob("*.safetensors"))
    if not files:
        return geometry
    return replace(geometry, stored=stored_bytes(files, text_layers=len(geometry.layers)))


def geometry_from_document(
    document: Mapping[str, Any], name: str = "", source: str = "config.json"
) -> ModelGeometry:
    """Returns the geometry of a config, completed from the built-in row of the same model where fields are
    missing.

    Raises InputError as `geometry_from_config` does.
    """
    config = document
    model_id = str(document.get("_name_or_path") or name)
    if isinstance(document.get("config"), Mapping):
        config = document["config"]
        model_id = str(document.get("model_id") or model_id)
        source = str(document.get("source") or source)[:500]
        name = model_id[:200]
    line = _lines().get(model_id) or _lines().get(model_id.replace("--", "/", 1))
    if line is None:
        return geometry_from_config(document, name, source)
    row = Row(**json.loads(line))
    completed, added = _completed(config, row.config)
    storage = None if _says_what_stays_plain(config) else row.storage
    if storage is not None:
        completed.pop("quantization_config", None)
    geometry = _stored_as(geometry_from_config(completed, name, source), storage)
    if added:
        told = f"not in this config, taken from the built-in {row.id}: {', '.join(sorted(added))}"
        geometry = replace(geometry, caveats=(*geometry.caveats, told))
    return geometry


def _says_what_stays_plain(config: Mapping[str, Any]) -> bool:
    """Returns whether the config describes the stored form in full, exclusions and all."""
    settings = config.get("quantization_config")
    lists = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers", "quantized_layers")
    return isinstance(settings, Mapping) and any(settings.get(name) for name in lists)


def _completed(config: Mapping[str, Any], built: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the config with the fields it lacks, and their names. Fields it has are never changed."""
    whole = dict(config)
    added: list[str] = []
    inner, known = config.get("text_config"), built.get("text_config")
    for key, value in built.items():
        if key == "text_config" or key in config:
            continue
        if isinstance(inner, Mapping) and key in inner:
            continue
        whole[key] = value
        if value is not False:
            added.append(key)
    if isinstance(inner, Mapping) and isinstance(known, Mapping):
        missing = {key: value for key, value in known.items() if key not in inner and key not in config}
        whole["text_config"] = {**inner, **missing}
        added += (key for key, value in missing.items() if value is not False)
    return whole, added
