"""The JSON schema of the diagnosis document, version by version."""

from __future__ import annotations

from typing import Any

from headrace.diagnose.document import SCHEMA, SCHEMA_VERSION
from headrace.diagnose.finding import Side
from headrace.words import Constraint, Lever

_TEXT: dict[str, Any] = {"type": "string"}
_QUANTITY = {"$ref": "#/$defs/quantity"}


def _texts(says: str) -> dict[str, Any]:
    return {"type": "array", "items": _TEXT, "description": says}


def _object(says: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": says, "properties": properties, "required": list(properties)}


def _optional(schema: dict[str, Any], says: str) -> dict[str, Any]:
    kind = schema.get("type")
    found = {**schema, "description": says}
    if isinstance(kind, str):
        found["type"] = [kind, "null"]
    elif "$ref" in schema:
        found = {"anyOf": [schema, {"type": "null"}], "description": says}
    return found


def _said(schema: dict[str, Any], says: str) -> dict[str, Any]:
    return {**schema, "description": says}


_CONSTRAINT: dict[str, Any] = {"type": "string", "enum": [str(each) for each in Constraint]}


def _finding(says: str) -> dict[str, Any]:
    finding = _object(
        says,
        constraint=_said(_CONSTRAINT, "its id"),
        side={
            "type": "string",
            "enum": [str(side) for side in Side],
            "description": "which factor it holds down",
        },
        confidence={"type": "number", "minimum": 0, "maximum": 1, "description": "how sure"},
        evidence=_texts("sentences with the numbers in them, the strongest first"),
        would_refute=_texts("what would show that this is wrong"),
    )
    finding["properties"]["numbers"] = {
        "type": "object",
        "description": "the numbers behind the evidence, by name",
    }
    finding["properties"]["gain"] = {
        "type": "object",
        "description": "factor on throughput if this alone were lifted: low, mid, high",
    }
    return finding


def json_schema() -> dict[str, Any]:
    """Returns the JSON schema (draft 2020-12) of `Diagnosis.to_json()`."""
    estimate = _optional(
        {"type": "object"},
        "output tokens/s of the fleet after it: low, mid, high, unit; null where it cannot be told",
    )
    proposal = _object(
        "a change",
        levers={
            "type": "array",
            "items": {"type": "string", "enum": [str(each) for each in Lever]},
            "description": "what moves; several where one needs the other",
        },
        change=_said(_TEXT, "in words"),
        flags=_said(_TEXT, "the edit of the launch line, empty where no flag changes"),
        launch_line=_said(_TEXT, "the resulting line, checked by the planner"),
        needs_restart={"type": "boolean", "description": "whether servers must start again"},
        running=_optional({"type": "integer"}, "requests per server that could run after it"),
        gain=_optional({"type": "object"}, "factor on throughput: low, mid, high"),
        estimate=estimate,
        costs=_texts("what it gives up"),
        checks=_texts("what to look at before it"),
        accuracy={"type": "boolean", "description": "it changes numbers that the model computes with"},
        narrowed_by=_said(_TEXT, "what would narrow the estimate"),
    )
    rung = _object(
        "a cap",
        constraint=_said(_CONSTRAINT, "its id"),
        limit=_optional({"type": "number"}, "requests per server; null for what sets the time of a step"),
        quantity=_optional(_QUANTITY, "the limit with its origin"),
        term=_said(_TEXT, "the engine's own term, in words"),
    )
    document = _object(
        "what binds a fleet, why, and what to change",
        schema={"const": SCHEMA, "type": "string", "description": "always this"},
        schema_version={
            "const": SCHEMA_VERSION,
            "type": "integer",
            "description": "raised when a key changes",
        },
        subject={"type": "object", "description": "source, engine, version, model, GPU, servers, load"},
        binding=_finding("the one constraint that would have to move"),
        also={
            "type": "array",
            "items": _finding(""),
            "description": "what else is at work, the other side first",
        },
        ladder={
            "type": "array",
            "items": rung,
            "description": "every cap, lowest first, and what sets the step",
        },
        baseline=_object(
            "what the fleet does",
            window=_said(_TEXT, "over which time"),
            numbers={
                "type": "object",
                "description": "name → number with origin, per server unless named otherwise",
            },
            lower_bounds=_texts("numbers that count finished requests only"),
            assumptions=_texts("what was assumed for them"),
            notes=_texts("remarks"),
        ),
        comparison=_object(
            "the fleet against its floor and against what was claimed",
            floor=_optional({"type": "object"}, "bytes, batch, context and seconds of the least step"),
            bound_output_tokens_per_s=_optional(_QUANTITY, "a server's rate at that floor"),
            reached=_optional(_QUANTITY, "rate ÷ bound"),
            claims={
                "type": "array",
                "items": {"type": "object"},
                "description": "claim, answer, because, needs",
            },
            contradictions=_texts("where reported and derived numbers disagree"),
        ),
        decomposition={
            "type": "object",
            "description": "running, rate, step, floor, remainder, prefill share",
        },
        proposals={
            "type": "array",
            "items": proposal,
            "description": "changes, the most worth their cost first",
        },
        assumptions=_texts("all that was assumed"),
        ruled_out={
            "type": "array",
            "items": _object(
                "", constraint=_said(_CONSTRAINT, "its id"), because=_said(_TEXT, "the reading")
            ),
            "description": "what a reading speaks against",
        },
        missing=_texts("what the evidence lacks, and how to get it"),
        notes=_texts("remarks of those who read the evidence"),
        servers={
            "type": "array",
            "items": _object(
                "",
                name=_said(_TEXT, "which"),
                constraint=_said(_CONSTRAINT, "what binds it"),
                confidence={"type": "number", "description": "how sure"},
            ),
            "description": "what binds each of several servers",
        },
        roofline=_optional(
            {"type": "object"},
            "intensity (FLOP/byte) and FLOP/s reached of a decode step, and both roofs, of one GPU",
        ),
        throughput_by_running={
            "type": "array",
            "items": _object(
                "",
                running={"type": "number", "description": "requests of one server"},
                bound_tokens_per_s={"type": "number", "description": "at the achievable floor of that batch"},
                expected_tokens_per_s=_optional(
                    {"type": "object"}, "low, mid, high; null below the batch of now"
                ),
            ),
            "description": "output tokens/s of one server by its running requests, rungs among them",
        },
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{SCHEMA} {SCHEMA_VERSION}",
        **document,
        "$defs": {
            "quantity": {
                "type": "object",
                "required": ["value", "unit", "origin"],
                "properties": {
                    "value": {"type": ["number", "null"]},
                    "unit": _TEXT,
                    "origin": _TEXT,
                    "source": _TEXT,
                    "inputs": {"type": "object"},
                    "low": {"type": ["number", "null"]},
                    "high": {"type": ["number", "null"]},
                },
            }
        },
    }
