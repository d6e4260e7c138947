"""The Diagnosis: one document model for every view, with a versioned JSON form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headrace.diagnose.baseline import Baseline
from headrace.diagnose.compare import Comparison
from headrace.diagnose.curve import CurvePoint
from headrace.diagnose.decompose import Decomposition
from headrace.diagnose.finding import Finding
from headrace.diagnose.ladder import LadderRung
from headrace.diagnose.propose import Proposal
from headrace.diagnose.roofline import Roofline
from headrace.words import Constraint

SCHEMA = "headrace.diagnosis"
SCHEMA_VERSION = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""


@dataclass(frozen=True)
class Subject:
    """What was diagnosed: a fleet in a line."""

    source: str
    engine: str | None
    engine_version: str | None
    model: str | None
    gpu: str | None
    gpus: int | None
    servers: int
    load_is_free: bool
    load_stated: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "model": self.model,
            "gpu": self.gpu,
            "gpus": self.gpus,
            "servers": self.servers,
            "load": "free" if self.load_is_free else "given",
            "load_stated": self.load_stated,
        }


@dataclass(frozen=True)
class ServerVerdict:
    """What binds one server of several."""

    name: str
    constraint: Constraint
    confidence: float

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "constraint": str(self.constraint),
            "confidence": round(self.confidence, 2),
        }


@dataclass(frozen=True)
class Diagnosis:
    """What binds a fleet, why, and what to do; see DESIGN's six steps for the parts."""

    subject: Subject
    baseline: Baseline
    comparison: Comparison
    decomposition: Decomposition
    binding: Finding
    also: tuple[Finding, ...]
    ladder: tuple[LadderRung, ...]
    proposals: tuple[Proposal, ...]
    assumptions: tuple[str, ...]
    ruled_out: tuple[tuple[Constraint, str], ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...] = ()
    servers: tuple[ServerVerdict, ...] = ()
    roofline: Roofline | None = None
    curve: tuple[CurvePoint, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the document as plain JSON; `docs/diagnosis-json.md` describes it."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "subject": self.subject.to_json(),
            "binding": self.binding.to_json(),
            "also": [finding.to_json() for finding in self.also],
            "ladder": [rung.to_json() for rung in self.ladder],
            "baseline": self.baseline.to_json(),
            "comparison": self.comparison.to_json(),
            "decomposition": self.decomposition.to_json(),
            "proposals": [proposal.to_json() for proposal in self.proposals],
            "assumptions": list(self.assumptions),
            "ruled_out": [
                {"constraint": str(constraint), "because": because} for constraint, because in self.ruled_out
            ],
            "missing": list(self.missing),
            "notes": list(self.notes),
            "servers": [server.to_json() for server in self.servers],
            "roofline": self.roofline.to_json() if self.roofline is not None else None,
            "throughput_by_running": [point.to_json() for point in self.curve],
        }
        plain: dict[str, Any] = _plain(document)
        return plain


def _plain(value: Any) -> Any:
    """The same document, with null for what is no finite number."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
