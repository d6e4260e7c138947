"""A row made into a case that the step model can answer: model, GPU, step options, caps, load."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module

from headrace.engines import PLANNED_ENGINES, planner
from headrace.engines.launch_line import LaunchLine
from headrace.engines.plan import MemoryPlan, PlanInputs
from headrace.engines.versions import Version
from headrace.errors import HeadraceError
from headrace.forecast.fairness import dated_version
from headrace.forecast.gpu_name import device_of
from headrace.forecast.layout import Layout, layout_of
from headrace.forecast.load import Load, load_of, speculation_of
from headrace.forecast.model_name import model_of
from headrace.forecast.reason import CannotJudge
from headrace.forecast.row import Row
from headrace.hardware.device import Device
from headrace.models.geometry import ModelGeometry
from headrace.perf.efficiency import is_old
from headrace.perf.options import StepOptions
from headrace.perf.step_model import StepModel

# Of a GPU's memory, what an engine whose planner is not known gives to weights and KV: the documented default
# of vLLM and TensorRT-LLM is 0.90 of the memory (of the free memory there).
_USED_FRACTION = 0.90
_UNLIMITED = 1 << 20  # requests; an engine whose cap a table would not state
_CPP_SLOTS = 1  # llama.cpp decodes one request at a time unless told otherwise (-np 1); so do its bindings
_TRT_LLM_BATCH = 2048  # TensorRT-LLM's default max_batch_size since 0.17
_FLAGS = re.compile(r"flags:\s*([^;]*)")
_IN_WORDS = re.compile(
    r"\b(max-num-seqs|max-running-requests|mem-fraction-static|gpu-memory-utilization) ([\d.]+)"
)


@dataclass(frozen=True, slots=True)
class Case:
    """What a row asks: seconds of a step on this device, under this load. `cap` and `kv_tokens` are per
    attention rank.
    """

    step: StepModel
    layout: Layout
    cap: float
    kv_tokens: float
    load: Load
    assumptions: tuple[str, ...]


def case_of(row: Row) -> Case:
    """Returns the case a row describes.

    Raises:
        CannotJudge: the row lacks something, or names a GPU, model, dtype or layout that is not known; the
            message is the reason.
    """
    if not row.engine:
        raise CannotJudge("engine not stated")
    load = load_of(row)
    speculation = speculation_of(row)
    layout = layout_of(row)
    device = device_of(row.gpu)
    if device.memory_bytes_per_second is None:
        raise CannotJudge(f"memory bandwidth of {device.name} is not published")
    model_of(row.text("model"), row.text("weights_dtype"))  # its reason goes before the server's
    version = Version.parse(_version_text(row.text("engine_version")))
    told = (version.major, version.minor, version.patch) if version is not None else dated_version(row)
    server = _server(
        row.engine,
        "" if told is None else ".".join(map(str, told)),
        row.text("model"),
        row.text("weights_dtype"),
        row.gpu,
        layout,
        kv_dtype_of(row.text("kv_dtype")),
        _flags(row.text("notes")),
        "batched" in row.text("dataset"),
    )
    if isinstance(server, str):
        raise CannotJudge(server)
    step = server.step
    if speculation is not None:
        step = StepModel(step.model, step.device, replace(step.options, speculation=speculation))
    assumptions = (*device.assumptions, *((layout.note,) if layout.note else ()), *server.assumptions)
    return Case(step, layout, server.cap, server.kv_tokens, load, assumptions)


def kv_dtype_of(text: str) -> str:
    """Returns "fp8" or "int8" where a KV dtype cell names one, else "auto"."""
    lower = text.lower()
    return "fp8" if "fp8" in lower else "int8" if "int8" in lower or "q8_0" in lower else "auto"


def _version_text(text: str) -> str:
    found = re.search(r"(?<![\d.])v?(\d+\.\d+(?:\.\d+)?)(?!\d)", text)
    return found.group(1) if found and not re.match(r"20\d\d", found.group(1)) else ""


def _flags(notes: str) -> str:
    """Returns the launch flags that a row's notes print, those alone that are flags."""
    found = _FLAGS.search(notes)
    text = found.group(1) if found else ""
    words = [f"--{name} {value}" for name, value in _IN_WORDS.findall(notes)]
    kept = re.findall(r"--[a-z][a-z0-9-]*(?:[ =][\w./:-]+)?", text)
    return " ".join([*kept, *words])


@dataclass(frozen=True, slots=True)
class _Server:
    """One attention rank of a server: its step model, cap and KV pool."""

    step: StepModel
    cap: float
    kv_tokens: float
    assumptions: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def _server(
    engine: str,
    version: str,
    model_name: str,
    weights_dtype: str,
    gpu: str,
    layout: Layout,
    kv_dtype: str,
    flags: str,
    batches: bool,
) -> _Server | str:
    """Returns the server that a row's words describe, or why there can be none."""
    model, device = model_of(model_name, weights_dtype), device_of(gpu)
    parsed = Version.parse(version)
    told = None if parsed is None else (parsed.major, parsed.minor, parsed.patch)
    # the planners' rules are those of the schedulers after the rewrite: an older engine is judged without
    if engine in PLANNED_ENGINES and not is_old(engine, told):
        plan = _plan(engine, version, model, device, layout, kv_dtype, flags)
        if plan is not None and plan.would_start and plan.cap is not None:
            tokens = plan.figure("kv_tokens")
            options = replace(_step_options(engine)(plan), engine=engine, engine_version=told)
            step = StepModel(model, device, options)
            return _Server(step, plan.cap.value, tokens if tokens is not None else float("inf"))
    tokens = _tokens_that_fit(model, device, layout, kv_dtype)
    if tokens <= 0:
        total = model.weight_bytes(layout.tp).value / layout.pp / 1e9
        return (
            f"weights of {total:.0f} GB per GPU do not fit {device.name} "
            f"({device.usable_bytes.value / 1e9:.0f} GB) at the dtype and GPU count stated"
        )
    options = StepOptions(
        engine=engine,
        engine_version=told,
        tp=layout.tp * layout.dp,
        pp=layout.pp,
        dp=layout.dp,
        ep=min(layout.ep, layout.tp * layout.dp),
        kv_dtype_bytes=1.0 if kv_dtype != "auto" or model.quantisation.kv_dtype else 2.0,
    )
    caps = {"tensorrt-llm": _TRT_LLM_BATCH, "llama.cpp": _CPP_SLOTS} | dict.fromkeys(PLANNED_ENGINES, 1024)
    cap = _UNLIMITED if batches else caps.get(engine, _UNLIMITED)
    step = StepModel(model, device, options)
    note = f"no memory plan of {engine} for this row: 0.9 of the memory for weights and KV"
    return _Server(step, float(cap), tokens, (note,))


def _step_options(engine: str) -> Callable[[MemoryPlan], StepOptions]:
    found: Callable[[MemoryPlan], StepOptions] = import_module(
        f"headrace.engines.{engine}.step_options"
    ).step_options
    return found


def _plan(
    engine: str, version: str, model: ModelGeometry, device: Device, layout: Layout, kv_dtype: str, flags: str
) -> MemoryPlan | None:
    """Returns the engine's memory plan, None where its rules refuse the layout."""
    found = planner(engine)
    rules = found.rules(version)
    edits: list[str] = [flags] if flags else []
    if engine == "sglang" and model.is_hybrid and not flags:
        # a benchmark of random prompts runs without the prefix cache, which also keeps the overlap scheduler
        edits.append("--disable-radix-cache")
    names: Mapping[str, str] = _NAMES[engine]
    edits.append(f"{names['tp']} {layout.tp * (layout.dp if engine == 'sglang' else 1)}")
    if layout.pp > 1:
        edits.append(f"{names['pp']} {layout.pp}")
    if layout.dp > 1:
        edits.append(f"{names['dp']} {layout.dp}" + (" --enable-dp-attention" if engine == "sglang" else ""))
    if layout.ep > 1:
        edits.append(f"--ep-size {layout.ep}" if engine == "sglang" else "--enable-expert-parallel")
    if kv_dtype == "fp8":
        edits.append("--kv-cache-dtype " + ("fp8_e4m3" if engine == "sglang" else "fp8"))
    try:
        line = LaunchLine.parse("", found.table, rules.version)
        for edit in edits:
            line = line.changed(edit, found.table, rules.version)
        return found.plan(PlanInputs(model, device, rules, line))
    except HeadraceError:
        return None


_NAMES = {
    "sglang": {"tp": "--tp-size", "pp": "--pp-size", "dp": "--dp-size"},
    "vllm": {"tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size", "dp": "--data-parallel-size"},
}


def _tokens_that_fit(model: ModelGeometry, device: Device, layout: Layout, kv_dtype: str) -> float:
    """Returns KV tokens of one attention rank: 0.9 of the memory less the weights."""
    width = 1.0 if kv_dtype != "auto" or model.quantisation.kv_dtype else 2.0
    weights = model.weight_bytes(layout.tp, vision=False).value / layout.pp
    if layout.dp > 1:  # experts are divided by all ranks
        whole = model.weight_bytes(layout.tp * layout.dp, vision=False).value / layout.pp
        weights = min(weights, 1.15 * whole)
    left = _USED_FRACTION * device.usable_bytes.value - weights
    per_token = model.kv_bytes_per_token(width, layout.tp).value / layout.pp
    return left / per_token if per_token > 0 else float("inf")
