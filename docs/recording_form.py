"""The lines of a recording, for docs/record.md."""

from __future__ import annotations

import inspect
from typing import get_args

import msgspec

from docs.generate import table
from headrace.observe.recording import form as recorded


def form() -> str:
    """Each kind of line, its fields, and what it is."""
    rows = []
    for line in get_args(recorded.Line):
        info = msgspec.structs.fields(line)
        fields = ", ".join(f"`{field.encode_name}`" for field in info)
        meaning = (inspect.getdoc(line) or "").splitlines()[0]
        rows.append((f"`{line.__struct_config__.tag}`", fields, meaning))
    return table(("type", "fields", "what it holds"), rows)
