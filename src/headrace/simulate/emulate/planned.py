"""A server made from its launch line: caps and pools of the memory planner, seconds of the step model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.engines.plan import MemoryPlan
from headrace.engines.versions import Version
from headrace.errors import InputError, UsageError
from headrace.hardware.catalogue import resolve
from headrace.models.catalogue import resolve_model
from headrace.simulate.emulate.physics import hidden_kind
from headrace.simulate.emulate.refusals import refusal_text
from headrace.simulate.fleet import ServerKind
from headrace.simulate.question import ServerAsked
from headrace.simulate.scheduling import schedule_of
from headrace.simulate.steps import server_kind

# Assumed, as `headrace simulate` does: the step model's straight lines are drawn around this prompt.
_INPUT_TOKENS = 150.0
DIALECTS = {
    "sglang": (Version(0, 5, 12), Version(0, 5, 12)),
    "vllm": (Version(0, 20, 2), Version(0, 33, 0)),
}
"""Engine → the oldest and the newest version whose pages are spoken."""


@dataclass(frozen=True)
class PlannedServer:
    """What a launch line makes of a model on a device: the plan, and a scheduler's rules and real seconds."""

    plan: MemoryPlan
    kind: ServerKind
    model: str

    @property
    def engine(self) -> str:
        """`sglang` or `vllm`."""
        return self.plan.settings.engine

    @property
    def version(self) -> str:
        """The engine's version as told, else that whose rules are used."""
        return self.plan.settings.rules.told or str(self.plan.settings.rules.version)

    @property
    def cap(self) -> int:
        """Most running requests."""
        return self.kind.rules.cap

    @property
    def pool_tokens(self) -> int:
        """KV pool in tokens, as the engine says it."""
        return int(self.plan.figure("kv_tokens") or 0)

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and answer together."""
        return int(self.setting("context_length" if self.engine == "sglang" else "max_model_len") or 0)

    @property
    def state_slots(self) -> int | None:
        """Slots of recurrent state; None where there is no pool of its own for them."""
        slots = self.plan.figure("state_slots")
        return int(slots) if slots is not None and self.engine == "sglang" else None

    def setting(self, name: str) -> Any:
        """A resolved setting's value; None where the engine has no such setting."""
        found = self.plan.settings.values.get(name)
        return None if found is None else found.value

    def pool_gib(self, name: str) -> float:
        """GiB of a part of memory, 0 where there is none of it."""
        found = self.plan.pool(name)
        return 0.0 if found is None else found.bytes.value / 2**30


def planned_server(
    model: str,
    gpu: str,
    engine: str = "",
    engine_version: str = "",
    flags: str = "",
    *,
    free_gib: float | None = None,
    weights_gib: float | None = None,
    mean_output_tokens: float,
    physics_seed: int | None = None,
) -> PlannedServer:
    """Returns the server of a launch line.

    Args:
        model, gpu: by any name that the catalogues know, or a file; the model is served by the name given
            here, unless the line names one.
        free_gib, weights_gib: as read off a real server; None: the planner's own.
        physics_seed: see `physics`; None: the step model's seconds.

    Raises:
        InputError: the server would not start, with the engine's own words first.
        UsageError: an engine, a version, or several schedulers behind one port, that are not emulated.
    """
    engine = engine or "sglang"
    if engine not in DIALECTS:
        raise UsageError(f"--engine {engine} is not emulated; take one of {', '.join(DIALECTS)}.")
    oldest, newest = DIALECTS[engine]
    engine_version = engine_version or str(newest)
    version = Version.parse(engine_version)
    if version is None or not oldest <= version <= newest:
        spoken = f"{newest}" if oldest == newest else f"{oldest} to {newest}"
        raise UsageError(f"--engine-version {engine_version}: the emulated {engine} speaks {spoken}.")
    plan = ServerAsked(
        resolve_model(model), resolve(gpu, None), engine, engine_version, flags, free_gib, weights_gib
    ).plan()
    if not plan.would_start:
        raise InputError("\n".join((refusal_text(plan), *plan.refusals)))
    ranks = plan.settings.values.get("dp_size") or plan.settings.values.get("data_parallel_size")
    if ranks is not None and int(ranks.value or 1) > 1:
        raise UsageError(
            f"{ranks.value} data-parallel ranks behind one port are not emulated; leave the flag "
            f"out and give --replicas {ranks.value}."
        )
    kind, _ = server_kind(plan, schedule_of(plan), _INPUT_TOKENS, mean_output_tokens)
    for flag in plan.settings.line.flags:
        if flag.name == "--served-model-name" and flag.words:
            model = flag.words[0]
    return PlannedServer(plan, hidden_kind(kind, physics_seed), model)
