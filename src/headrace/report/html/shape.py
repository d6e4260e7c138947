"""The shape of a diagnosis document as a page needs it: what a file must have before it is drawn."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.diagnose.document import SCHEMA, SCHEMA_VERSION
from headrace.errors import InputError
from headrace.quantities import Origin


class QuantityShape(msgspec.Struct):
    value: float | None
    unit: str
    origin: Origin
    source: str = ""
    low: float | None = None
    high: float | None = None
    inputs: dict[str, QuantityShape] = {}


class SpreadShape(msgspec.Struct):
    low: float | None
    mid: float | None
    high: float | None


class FindingShape(msgspec.Struct):
    constraint: str
    side: str
    confidence: float
    evidence: list[str]
    would_refute: list[str]
    numbers: dict[str, QuantityShape] = {}
    gain: SpreadShape | None = None


class RungShape(msgspec.Struct):
    constraint: str
    term: str
    limit: float | None = None
    quantity: QuantityShape | None = None


class BaselineShape(msgspec.Struct):
    window: str
    numbers: dict[str, QuantityShape]
    lower_bounds: list[str] = []
    assumptions: list[str] = []
    notes: list[str] = []


class ClaimShape(msgspec.Struct):
    claim: str
    answer: str
    because: list[str]
    needs: list[str] = []


class FloorShape(msgspec.Struct):
    bytes: QuantityShape
    datasheet_seconds: QuantityShape
    achievable_seconds: QuantityShape
    part_seconds: dict[str, QuantityShape] = {}
    compute_seconds: QuantityShape | None = None


class ComparisonShape(msgspec.Struct):
    floor: FloorShape | None = None
    bound_output_tokens_per_s: QuantityShape | None = None
    reached: QuantityShape | None = None
    claims: list[ClaimShape] = []
    contradictions: list[str] = []


class ProposalShape(msgspec.Struct):
    change: str
    flags: str
    launch_line: str
    needs_restart: bool
    accuracy: bool
    running: int | None = None
    gain: SpreadShape | None = None
    estimate: SpreadShape | None = None
    costs: list[str] = []
    checks: list[str] = []
    narrowed_by: str = ""


class RuledOutShape(msgspec.Struct):
    constraint: str
    because: str


class ServerShape(msgspec.Struct):
    name: str
    constraint: str
    confidence: float


class RooflineShape(msgspec.Struct):
    intensity: QuantityShape
    memory_achievable: QuantityShape
    memory_datasheet: QuantityShape
    compute_achievable: QuantityShape
    compute_datasheet: QuantityShape
    reached_flop_per_s: QuantityShape | None = None


class CurvePointShape(msgspec.Struct):
    running: float
    bound_tokens_per_s: float | None
    expected_tokens_per_s: SpreadShape | None = None


class SubjectShape(msgspec.Struct):
    servers: int
    load: str
    load_stated: bool
    source: str = ""
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    gpu: str | None = None
    gpus: int | None = None


class SeriesServerShape(msgspec.Struct):
    name: str
    seconds: list[float]
    columns: dict[str, list[float | None]]


class SeriesShape(msgspec.Struct):
    servers: list[SeriesServerShape]


class DiagnosisShape(msgspec.Struct):
    subject: SubjectShape
    binding: FindingShape
    also: list[FindingShape]
    ladder: list[RungShape]
    baseline: BaselineShape
    comparison: ComparisonShape
    decomposition: dict[str, QuantityShape | None]
    proposals: list[ProposalShape]
    assumptions: list[str]
    ruled_out: list[RuledOutShape]
    missing: list[str]
    notes: list[str] = []
    servers: list[ServerShape] = []
    roofline: RooflineShape | None = None
    throughput_by_running: list[CurvePointShape] = []
    series: SeriesShape | None = None


def checked_diagnosis(document: Any, name: str) -> dict[str, Any]:
    """Returns the document itself where it is a diagnosis that this version can draw; keys may be more.

    Args:
        name: of the file, for what is said.

    Raises:
        InputError: it is no diagnosis, of another version, or a part of it is not as it should be.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{name}: is no diagnosis. Make one with `headrace diagnose … --json`.")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{name}: is a diagnosis of schema version {str(version)[:20]}; this headrace reads version "
            f"{SCHEMA_VERSION}. Make it anew with this headrace, or use the one that made it."
        )
    try:
        msgspec.convert(document, DiagnosisShape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"{name}: is a damaged diagnosis: {str(error)[:300]}. Make it anew.") from None
    return document
