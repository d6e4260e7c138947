"""The exported JSON schema, against documents of every story."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.diagnose.schema import json_schema
from tests.unit.diagnose.stories import STORIES, judged

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "number": (int, float), "integer": (int,),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> list[str]:
    """What of `value` does not fit: the keywords that this schema uses, no others."""
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, at)
    if "anyOf" in schema:
        tried = [problems(value, option, root, at) for option in schema["anyOf"]]
        return [] if any(not found for found in tried) else tried[0]
    found: list[str] = []
    kinds = schema.get("type")
    if kinds is not None:
        allowed = [kinds] if isinstance(kinds, str) else kinds
        if not any(isinstance(value, _TYPES[kind]) for kind in allowed):
            return [f"{at}: {value!r:.60} is no {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is not in the vocabulary")
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: {value!r} is not {schema['const']!r}")
    if isinstance(value, dict):
        found += [f"{at}: {key} is missing" for key in schema.get("required", []) if key not in value]
        known = schema.get("properties")
        if known is not None:
            found += [f"{at}: {key} is not in the schema" for key in value if key not in known]
            for key, inner in known.items():
                if key in value:
                    found += problems(value[key], inner, root, f"{at}.{key}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            found += problems(item, schema["items"], root, f"{at}[{index}]")
    return found


@pytest.mark.parametrize("name", list(STORIES))
def test_every_document_fits(name: str) -> None:
    schema = json_schema()
    assert problems(judged(STORIES[name].facts).to_json(), schema, schema, "$") == []
