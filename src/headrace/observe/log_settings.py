"""The settings that a log tells (SGLang's server_args, vLLM's arguments) as a launch line and facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.engines import PLANNED_ENGINES, planner
from headrace.engines.launch_line import GivenFlag, LaunchLine
from headrace.engines.log_event import Value
from headrace.engines.sglang.server_info import ALLOWED
from headrace.quantities import Origin

_NOT_FLAGS = ("model", "model_tag", "model_path", "served_model_name", "version", "device", "device_config")
_DECIDING = (*ALLOWED, "quantization", "schedule_conservativeness")  # SGLang tells all its 300 settings
_RENAMED = {"max_seq_len": "max_model_len", "pipeline_parallel": "pipeline_parallel_size"}


@dataclass(frozen=True, slots=True)
class ToldSettings:
    """What the settings say; the fields are those of ServerObservation."""

    flags: str
    model: str | None
    gpus: int | None
    tensor_parallel: int | None
    data_parallel: int | None
    weights_dtype: str | None
    kv_dtype: str | None
    settings: Mapping[str, str | float | bool]


def read_settings(engine: str | None, version: str | None, told: Mapping[str, Value]) -> ToldSettings:
    """Returns what settings say. `told` is by the engine's own names; switches are 1.0 or 0.0."""
    tensor = _count(told, "tp_size", "tensor_parallel_size")
    data = _count(told, "dp_size", "data_parallel_size")
    pipeline = _count(told, "pp_size", "pipeline_parallel_size") or 1
    copies = 1 if told.get("enable_dp_attention") else data or 1
    model = told.get("model_path") or told.get("model") or told.get("model_tag")
    kv_dtype = _word(told.get("kv_cache_dtype"))
    return ToldSettings(
        flags=_line(engine, version, told).text(),
        model=model if isinstance(model, str) else None,
        gpus=tensor * pipeline * copies if tensor else None,
        tensor_parallel=tensor,
        data_parallel=data,
        weights_dtype=_word(told.get("quantization")) or _word(told.get("dtype")),
        kv_dtype=kv_dtype,
        settings=dict(told),
    )


def _line(engine: str | None, version: str | None, told: Mapping[str, Value]) -> LaunchLine:
    """The settings as flags of this engine and version; what is no flag of it is left out."""
    if engine not in PLANNED_ENGINES:
        return LaunchLine(origin=Origin.REPORTED)
    found = planner(engine)
    rules = found.rules(version or "").version
    flags: list[GivenFlag] = []
    for name, value in told.items():
        if name in _NOT_FLAGS or value == "auto" or (engine == "sglang" and name not in _DECIDING):
            continue
        spelling = "--" + _RENAMED.get(name, name).replace("_", "-")
        flag = found.table.find(spelling, rules)
        if flag is None or any(given.name == spelling for given in flags):
            continue
        if flag.kind == "switch" and isinstance(value, float):
            if value:
                flags.append(GivenFlag(spelling))
            elif engine == "vllm" and name in ("enable_prefix_caching", "enable_chunked_prefill"):
                flags.append(GivenFlag("--no-" + spelling[2:]))  # both may be on by default
            continue
        if flag.kind != "switch" and not (flag.kind == "optional" and value in (0.0, 1.0)):
            flags.append(GivenFlag(spelling, (_text(value),)))
        elif value:
            flags.append(GivenFlag(spelling))
    return LaunchLine(tuple(flags), {}, origin=Origin.REPORTED)


def _text(value: Value) -> str:
    if isinstance(value, float):
        return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.12g}"
    return value.removeprefix("torch.")


def _word(value: Value | None) -> str | None:
    return value.removeprefix("torch.") if isinstance(value, str) and value not in ("auto", "None") else None


def _count(told: Mapping[str, Value], *names: str) -> int | None:
    for name in names:
        value = told.get(name)
        if isinstance(value, float) and 1 <= value <= 100_000:
            return int(value)
    return None
