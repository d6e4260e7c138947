"""The keys of the diagnosis document, for docs/diagnose.md; the schema itself is `headrace.diagnose.schema`."""

from __future__ import annotations

from typing import Any

from docs.generate import table
from headrace.diagnose.schema import json_schema


def document_keys() -> str:
    """A table of the document's keys, those of the objects in it beneath their own."""
    rows: list[tuple[str, str, str]] = []

    def add(prefix: str, schema: dict[str, Any]) -> None:
        for key, inner in schema.get("properties", {}).items():
            rows.append((f"`{prefix}{key}`", _kind(inner), inner.get("description", "")))
            items = inner.get("items", inner)
            if "properties" in items:
                add(f"{prefix}{key}{'[]' if 'items' in inner else ''}.", items)

    add("", json_schema())
    return table(("key", "type", "says"), rows)


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "number with origin" if "$ref" in schema else "any")
    if isinstance(kind, list):
        kind = " or ".join(kind)
    return f"list of {schema['items'].get('type', 'numbers')}" if kind == "array" else str(kind)
