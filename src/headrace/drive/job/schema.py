"""The keys of a job file, their types and limits, as pydantic models, and what to say of each mistake.

The same keys are the options of `headrace run` and the keywords of `headrace.run()`. Nothing here looks at
the disk or at a server; `job_file` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

from headrace.drive.job.text import shorten
from headrace.drive.sources.shapes import MAPPABLE
from headrace.errors import nearest
from headrace.words import Api, Flag, FlagPolicy, OutputFormat

MAX_IN_FLIGHT = 65_536
SECRET_KEYS = ("api_key", "apikey", "key", "token", "bearer", "authorization", "password")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _auto(value: Any) -> Any:
    if isinstance(value, str):
        if value == "auto":
            return None
        if not value.isdecimal():
            raise ValueError("'auto' or a whole number of at least 1 is expected")
        return int(value)
    if value is None:
        raise ValueError("'auto' or a whole number of at least 1 is expected")
    return value


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", value)
    if not found:
        raise ValueError("seconds are expected, or a time such as 90s, 30m or 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _pairs(value: Any) -> Any:
    """A mapping as it is, or a list of `name=value` as the command line gives it."""
    if not isinstance(value, list | tuple):
        return value
    result: dict[str, str] = {}
    for item in value:
        name, equals, right = str(item).partition("=")
        if not equals or not name or not right:
            raise ValueError(f"'{shorten(item)}' is not of the form NAME=VALUE")
        if name in result:
            raise ValueError(f"'{name}' is given twice")
        result[name] = right
    return result


def _json_object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError("a JSON object is expected, such as '{\"top_k\": 20}'")
    return parsed


_Text = Annotated[str, Field(min_length=1, max_length=4096)]
_Texts = Annotated[
    list[_Text],
    BeforeValidator(_listed),
    Field(min_length=1, max_length=10_000),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
_Object = Annotated[dict[str, Any], BeforeValidator(_json_object)]


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SourceKeys(_Keys):
    """One entry of `sources`."""

    prompts: _Texts = Field(
        description="Files, folders or globs: JSONL, JSON, CSV, Parquet, also .gz and .zst."
    )
    name: _Name | None = Field(
        default=None, description="Stands in every output row; by default the file's name."
    )
    columns: Annotated[dict[str, _Text], BeforeValidator(_pairs)] | None = Field(
        default=None,
        description=f"Which column holds what: {', '.join(MAPPABLE)}. By default recognised.",
    )
    id_column: _Text | None = Field(
        default=None, description="The column with your own ids, unique over the job."
    )
    count: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="At most this many rows, in file order."
    )
    samples: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Requests per row; default 1."
    )
    system: str | None = Field(default=None, description="System prompt of rows that have none.")
    thinking: bool | None = Field(
        default=None, description="Thinking on or off; left out = as the server has it."
    )
    sampling: dict[str, Any] = Field(
        default_factory=dict,
        description="Sampling parameters by their OpenAI names; a source's go before the job's.",
    )
    extra_body: _Object = Field(default_factory=dict, description="Further fields of the request body.")


class JobKeys(_Keys):
    """A job file. Relative paths start from the folder of the file; `${NAME}` is not replaced."""

    out: _Text = Field(description="Output folder; made if missing.")
    servers: _Texts = Field(description="Base URLs, also port ranges: http://127.0.0.1:30000-30007.")
    model: _Text | None = Field(
        default=None, description="The served name; by default the one model that the servers serve."
    )
    api: Annotated[Api, Strict(False)] = Field(default=Api.CHAT, description="Request form.")
    in_flight: Annotated[
        Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT)] | None,
        BeforeValidator(_auto),
        WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
    ] = Field(default=None, description="Requests in flight per server, or auto.")
    prompts: _Texts | None = Field(
        default=None, description="Short for `sources`: every entry is a source of its own."
    )
    sources: Annotated[list[SourceKeys], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="Sets of prompts, each with its own settings."
    )
    columns: Annotated[dict[str, _Text], BeforeValidator(_pairs)] | None = Field(
        default=None, description="As in a source; for sources that have none."
    )
    id_column: _Text | None = Field(default=None, description="As in a source; for sources that have none.")
    count: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="At most this many rows of each source that has no count of its own."
    )
    samples: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="As in a source; default 1."
    )
    system: str | None = Field(default=None, description="As in a source; for sources that have none.")
    thinking: bool | None = Field(default=None, description="As in a source; for sources that do not say.")
    sampling: dict[str, Any] = Field(
        default_factory=dict, description="For all sources, parameter by parameter."
    )
    extra_body: _Object = Field(default_factory=dict, description="For all sources, field by field.")
    flags_policy: Annotated[
        dict[Annotated[Flag, Strict(False)], Annotated[FlagPolicy, Strict(False)]], BeforeValidator(_pairs)
    ] = Field(default_factory=dict, description="What happens to flagged rows; default keep.")
    exclude: _Texts | None = Field(
        default=None,
        description="Job folders or files: prompts answered there are left out, whatever the sampling.",
    )
    format: Annotated[OutputFormat, Strict(False)] = Field(
        OutputFormat.PARQUET, description="Form of finished shards; jsonl is zstd-compressed."
    )
    token_ids: bool = Field(default=False, description="Keep output token ids where the engine returns them.")
    row_checks: bool = Field(default=True, description="Look for think tags and repetition in every answer.")
    request_timeout: Annotated[
        Annotated[float, Field(ge=1, le=604_800)],
        BeforeValidator(_seconds),
        WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]}),
    ] = Field(
        default=3600.0, description="Seconds, or 90s, 30m, 2h: a request older than this is tried elsewhere."
    )
    max_tries: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=5, description="Tries of a row on servers that fail before it goes to failed/."
    )
    retry_failed: bool = Field(default=False, description="Take up the rows in failed/ again.")
    hedge: bool = Field(
        default=True, description="Near the end, ask a second server for rows stuck on a slow one."
    )
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        default=None, description="Environment variable that holds the bearer key."
    )
    api_key_file: _Text | None = Field(default=None, description="File that holds the bearer key.")
    ledger: _Text | None = Field(
        default=None, description="Where the ledger lies, if not in the output folder."
    )
    dispatch_seed: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Seed of the order in which rows are sent."
    )


SOURCE_DEFAULTS = ("columns", "id_column", "count", "samples", "system", "thinking", "sampling", "extra_body")

_EXPECTED = {
    "int_type": "a whole number is expected",
    "int_parsing": "a whole number is expected",
    "int_from_float": "a whole number is expected",
    "float_type": "a number is expected",
    "bool_type": "true or false is expected",
    "string_type": "text is expected (put it in quotes)",
    "list_type": "a list is expected",
    "dict_type": "a mapping of names to values is expected",
    "model_type": "a mapping of keys to values is expected",
    "model_attributes_type": "a mapping of keys to values is expected",
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "api": tuple(Api),
    "format": tuple(OutputFormat),
    "flag": tuple(Flag),
    "policy": tuple(FlagPolicy),
}
_MISSING = {
    "out": "'out' is missing: say where the output goes (--out DIR).",
    "servers": "'servers' is missing: say who answers (--server http://HOST:PORT).",
    "prompts": "'prompts' is missing: say which files this source reads.",
}
_ELSEWHERE = {
    "temperature": "sampling",
    "max_tokens": "sampling",
    "top_p": "sampling",
    "top_k": "sampling",
    "min_p": "sampling",
    "stop": "sampling",
    "seed": "sampling",
}
_OTHER_NAMES = {
    "limit": "count",
    "max_samples": "count",
    "n": "samples",
    "concurrency": "in_flight",
    "max_concurrency": "in_flight",
    "url": "servers",
    "urls": "servers",
    "base_url": "servers",
    "endpoints": "servers",
    "input": "prompts",
    "inputs": "prompts",
    "path": "prompts",
    "output": "out",
    "output_dir": "out",
    "timeout": "request_timeout",
    "retries": "max_tries",
    "output_format": "format",
    "flags": "flags_policy",
    "flag_policies": "flags_policy",
    "system_prompt": "system",
    "enable_thinking": "thinking",
}


def unknown_key(name: str, in_source: bool) -> str:
    """What to say of a key that no job file has."""
    if name.lower().replace("-", "_") in SECRET_KEYS:
        return (
            f"'{name}': a key may not stand in a job file. Put it into an environment variable or a file "
            "and name that: api_key_env: NAME, or api_key_file: PATH."
        )
    where = "a source" if in_source else "the job"
    known = list((SourceKeys if in_source else JobKeys).model_fields)
    if name in _ELSEWHERE:
        return f"'{name}' is no key of {where}: it belongs under 'sampling'."
    other = _OTHER_NAMES.get(name)
    hint = f" Did you mean '{other}'?" if other in known else nearest(name.replace("-", "_"), known)
    if not hint and in_source and name in JobKeys.model_fields:
        hint = f" '{name}' holds for the whole job: put it at the top level."
    return f"'{shorten(name)}' is no key of {where}.{hint or ' Known: ' + ', '.join(known) + '.'}"


def key_of(error: Mapping[str, Any]) -> tuple[tuple[str | int, ...], bool]:
    """Where a pydantic error lies, and whether it is about the name there instead of the value."""
    loc = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        return loc, True
    if len(loc) > 2 and loc[-1] == "[key]":  # pydantic's mark for the keys of a mapping
        return loc[:-1], True
    return loc, False


def say(error: Mapping[str, Any]) -> str:
    """One sentence for one pydantic error: the key, the value, the limit, the nearest name."""
    loc, kind, value = tuple(error["loc"]), str(error["type"]), error["input"]
    place, of_name = key_of(error)
    key = ".".join(str(part + 1 if isinstance(part, int) else part) for part in place)
    if kind == "missing":
        return _MISSING.get(str(loc[-1]), f"'{key}' is missing.")
    if kind == "extra_forbidden":
        return unknown_key(str(loc[-1]), in_source=len(loc) > 1)
    if kind == "enum":
        if of_name:
            known = _CHOICES["flag"]
            return (
                f"'{shorten(value)}' is no row flag; known: {', '.join(known)}.{nearest(str(value), known)}"
            )
        known = _CHOICES["policy" if loc[0] == "flags_policy" else str(loc[-1])]
        return f"{key} is {_shown(value)}; known: {', '.join(known)}.{nearest(str(value), known)}"
    if kind == "value_error":
        return f"{key} is {_shown(value)}: {error['ctx']['error']}."
    return f"{key} is {_shown(value)}; {_limit(kind, error)}."


def _limit(kind: str, error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind == "greater_than_equal":
        return f"at least {context['ge']:,g} is allowed"
    if kind == "less_than_equal":
        return f"at most {context['le']:,g} is allowed"
    if kind in ("string_too_short", "too_short"):
        return "it may not be empty"
    if kind in ("string_too_long", "too_long"):
        return f"at most {context['max_length']:,} are allowed"
    if kind == "string_pattern_mismatch":
        return "letters, digits and . _ - are allowed, beginning with a letter or digit"
    return str(error["msg"])


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return f"'{shorten(value)}'" if isinstance(value, str) else shorten(value)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a job file, for editors and for the docs."""
    schema = JobKeys.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "headrace job file"
    return schema
