"""Which rows make a fair score, by what a row says of itself; never by how far off a prediction is."""

from __future__ import annotations

import re

from headrace.forecast.layout import Layout
from headrace.forecast.load import OpenLoop, load_of
from headrace.forecast.model_name import form_of
from headrace.forecast.reason import CannotJudge
from headrace.forecast.row import Row
from headrace.hardware.device import Device

# Studies that state no engine version in their tables and are dated by their paper: vLLM of early 2024.
DATED_STUDIES = {"argonne-lcf/LLM-Inference-Bench": (0, 4, 0)}
# When an engine's scheduler was rewritten (release of vLLM 0.8.0, of SGLang 0.4.0), and a version before it.
_REWRITTEN = {"vllm": ("2025-03", (0, 7, 3)), "sglang": ("2024-12", (0, 3, 6))}
_DATE = re.compile(r"\b20[12]\d-[01]\d\b")
# Accelerators that are not NVIDIA's, by how tables name them, also where none such is built in.
_OTHERS = re.compile(
    r"\b(intel|gaudi|arc|amd|instinct|mi\d{2,3}\w?|radeon|rx|apple|tpu|sn\d+l?)\b", re.IGNORECASE
)


def unfair(row: Row, device: Device | None, layout: Layout | None) -> tuple[str, ...]:
    """Returns why a row is left out of the fair score, in a word or two each; () for a fair row.

    The exclusions are a priori: other engines and vendors; speculation whose acceptance length is not stated;
    work in progress by its own label; attention data parallel and layouts beyond one server of 8; warm-up in
    the number; open loop and MLPerf; dtype, version or lengths not stated; copies.
    """
    said: list[str] = []
    source, notes = row.text("source"), row.text("notes")
    if row.engine not in ("vllm", "sglang"):
        said.append("another engine")
    if (device is not None and device.vendor != "NVIDIA") or _OTHERS.search(row.text("gpu") or row.gpu):
        said.append("another vendor's GPU")
    speculates = row.text("spec_decode").lower() not in {"", "none", "none stated"}
    if speculates and "accept length" not in f"{row.text('spec_decode')} {notes}".lower():
        said.append("speculation without acceptance length")
    if "InferenceX" in source and "experimental/" in source:
        said.append("experimental by its own label")
    if layout is None or layout.tp > 8:
        said.append("layout unclear or beyond 8 ranks")
    elif layout.dp > 1:
        said.append("attention data parallel")
    if "cookbook" in source and row.number("concurrency") == 1:
        said.append("warm-up in the number")
    kind = row.text("load_kind")
    if kind.startswith(("open_loop", "mlperf")):
        said.append("open loop or MLPerf")
    elif not _has_load(row):
        said.append("load not stated")
    if not _has_dtype(row):
        said.append("dtype not stated")
    if not row.text("engine_version") and not any(study in source for study in DATED_STUDIES):
        said.append("engine version not stated")
    if row.text("dup_of"):
        said.append("a copy of another row")
    return tuple(said)


def dated_version(row: Row) -> tuple[int, ...] | None:
    """Returns the engine version that a date stands for: that of a study's paper, or in the version cell.

    Only the generation is meant: the last version before the engine's scheduler was rewritten. None for a
    later date, and for a row without any.
    """
    found = _DATE.search(row.text("engine_version"))
    if found is not None:
        date, turned = found.group(0)[:7], _REWRITTEN.get(row.engine)
        return turned[1] if turned is not None and date < turned[0] else None
    if row.engine != "vllm":
        return None
    return next((version for study, version in DATED_STUDIES.items() if study in row.text("source")), None)


def _has_dtype(row: Row) -> bool:
    """Returns whether the cell, the model's name or the study's own word on its table says how weights are
    stored.
    """
    told = form_of(row.text("weights_dtype")) or form_of(row.text("model"))
    return told is not None or "16-bit per paper" in row.text("notes")


def _has_load(row: Row) -> bool:
    try:
        return not isinstance(load_of(row), OpenLoop)
    except CannotJudge:
        return False
