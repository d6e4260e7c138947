"""The facts file's keys: what each takes, and the JSON schema made from the same tables."""

from __future__ import annotations

from typing import Any

from headrace.observe.readings import BY_RANK, CLIENT, READINGS

ENGINES = ("sglang", "vllm", "llamacpp")
SCOPES = ("replica", "fleet", "per DP rank")
LOADS = ("free", "given")

TEXTS: dict[str, str] = {
    "engine": "sglang, vllm, llamacpp or another name",
    "engine_version": 'as the engine tells it, in quotes: "0.5.12"',
    "gpu": "as sold: RTX PRO 6000 Blackwell Server",
    "model": "id, or path of a config.json",
    "weights_dtype": "bf16, fp8, nvfp4, …",
    "kv_dtype": "bf16, fp8, …",
    "flags": "the launch line's flags; prose is kept as a note",
    "logs": "a file beside this one with lines the engine printed",
    "notes": "anything else",
}
"""Top-level keys that hold text → what they say."""

COUNTS: dict[str, str] = {
    "gpus": "GPUs in all",
    "replicas": "servers in all",
    "tensor_parallel": "GPUs that share one model",
    "data_parallel": "schedulers within one server",
}
"""Top-level keys that hold a whole number of at least 1 → what they say."""

SECTIONS = ("observed", "client", "claims")
TOP = (*TEXTS, *COUNTS, *SECTIONS)
OBSERVED = ("scope", *READINGS, *BY_RANK)
CLIENT_KEYS = ("load", *CLIENT)

MAX_TEXT = 100_000  # characters of a text value
MAX_CLAIMS = 100
MAX_RANKS = 10_000

PERCENT_UNITS = {"fraction"}


def json_schema() -> dict[str, Any]:
    """The JSON schema of a facts file, for editors and for the docs."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "headrace facts file",
        "description": "What is known of a fleet of inference servers, typed by hand. Every key may be "
        "missing. Fractions are 0…1.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **{key: _text(key, meaning) for key, meaning in TEXTS.items()},
            **{
                key: {"type": "integer", "minimum": 1, "description": meaning}
                for key, meaning in COUNTS.items()
            },
            "observed": {
                "type": "object",
                "description": "What a server shows, per replica unless scope says otherwise.",
                "additionalProperties": False,
                "properties": {
                    "scope": {"enum": list(SCOPES), "default": "replica"},
                    **{key: _reading(word.unit, word.meaning) for key, word in READINGS.items()},
                    **{key: _by_rank(unit) for key, unit in BY_RANK.items()},
                },
            },
            "client": {
                "type": "object",
                "description": "The client's side, over the whole fleet.",
                "additionalProperties": False,
                "properties": {
                    "load": {
                        "enum": list(LOADS),
                        "description": "free: in flight is ours to choose; given: a benchmark or latency "
                        "report at a stated load. Unstated: free, but given at 1 in flight.",
                    },
                    **{key: _number(unit) for key, unit in CLIENT.items()},
                },
            },
            "claims": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": MAX_CLAIMS,
                "description": "What people said of it.",
            },
        },
    }


def _text(key: str, meaning: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "maxLength": MAX_TEXT, "description": meaning}
    if key == "engine":
        schema["examples"] = list(ENGINES)
    return schema


def _number(unit: str, meaning: str = "") -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "number", "minimum": 0, "description": f"{meaning} [{unit}]".strip()}
    if unit == "fraction":
        schema["maximum"] = 1
    return schema


def _reading(unit: str, meaning: str) -> dict[str, Any]:
    if unit == "yes/no":
        return {"type": "boolean", "description": meaning}
    one = _number(unit, meaning)
    return {**one, "type": ["number", "array"], "items": _number(unit), "minItems": 1}


def _by_rank(unit: str) -> dict[str, Any]:
    return {
        "type": ["object", "array"],
        "additionalProperties": _number(unit),
        "items": _number(unit),
        "description": f"one value per rank, worker or GPU [{unit}]",
    }
