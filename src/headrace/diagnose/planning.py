"""The memory plan behind a diagnosis, and what reconciles it with the sizes that the server reported."""

from __future__ import annotations

from headrace.diagnose.context import Context, Planned
from headrace.engines.advice import explain
from headrace.engines.plan import GIB, MemoryPlan, PlanInputs
from headrace.engines.told_line import told_line
from headrace.errors import UsageError
from headrace.observe.observation import ServerObservation
from headrace.quantities import Quantity

_PRINTED_STEP = 0.01  # logs print shares with two decimals
_REPORTED = (("cap", "cap"), ("state_slots", "slots"), ("kv_capacity_tokens", "kv"))


def planned(server: ServerObservation, context: Context, context_tokens: float | None) -> Planned | None:
    """Returns the plan of one server, reconciled with its reported sizes; None where there is no planner, no
    model or no device.

    Args:
        context_tokens: mean tokens resident per running request, where they are known: puts the KV pool on
            the ladder.
    """
    planner, model, device = context.planner, context.model, context.device
    if planner is None or model is None or device is None:
        return None
    rules = planner.rules(server.engine_version or "")
    try:
        line = told_line(
            planner,
            rules.version,
            server.flags,
            tensor_parallel=server.tensor_parallel,
            kv_dtype=server.kv_dtype,
            origin=server.flags_origin,
        )
        inputs = PlanInputs(
            model,
            device,
            rules,
            line,
            weight_bytes=_weights(server),
            context_tokens=float(max(1, round(context_tokens))) if context_tokens else None,
        )
        told = planner.plan(inputs)
    except UsageError:
        return None
    reported = {
        key: value for word, key in _REPORTED if (value := server.value(word)) is not None and value > 0
    }
    _add_read_sizes(server, reported)
    if not reported:
        return Planned(told)
    found = explain(planner, told, reported)
    if not found:
        differs = _difference(told, reported)
        return Planned(told, contradiction=differs)
    best = found[0]
    text = ""
    if best.untold:
        text = f"{_difference(told, reported)}; {best.text} explains it"
    return Planned(told, best, tuple(found[1:4]), text)


def _add_read_sizes(server: ServerObservation, reported: dict[str, float]) -> None:
    """Sizes from what is held ÷ what share that is, where the share's rounding leaves them within 1.5 %."""
    for key, held, share in (
        ("slots", "state_used_slots", "state_usage"),
        ("kv", "kv_used_tokens", "kv_usage"),
    ):
        used, usage = server.value(held), server.value(share)
        if key not in reported and used and usage and _PRINTED_STEP / 2 / usage <= 0.015:
            reported[key] = used / usage


def _weights(server: ServerObservation) -> Quantity | None:
    """Bytes that loading takes per GPU, where the server said it."""
    per_rank = server.get("weights_gb_per_rank")
    if per_rank is not None and per_rank.value > 0:
        return Quantity(per_rank.value * GIB, "bytes", per_rank.origin, per_rank.source)
    return None


def _difference(told: MemoryPlan, reported: dict[str, float]) -> str:
    parts = []
    names = {"cap": "running requests", "slots": "state slots", "kv": "KV tokens"}
    derived = {
        "cap": told.cap.value if told.cap else None,
        "slots": told.figure("state_slots"),
        "kv": told.figure("kv_tokens"),
    }
    for key, value in reported.items():
        if derived[key] is None:
            continue
        if abs(derived[key] - value) > 0.02 * value:  # type: ignore[operator]
            parts.append(f"{value:,.0f} {names[key]} reported, {derived[key]:,.0f} derived from the flags")
    return "; ".join(parts)
