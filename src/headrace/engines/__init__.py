"""Everything that is particular to an inference engine, by version.

Belongs here: launch lines and flags, what a setting resolves to, how an engine divides memory, its metrics,
log lines, failures and levers. One folder per engine; what they share lies beside them: `launch_line`,
`flags`, `settings`, `versions`, and `plan`, the memory plan every engine returns. Does not belong here:
what binds a running fleet (`diagnose/` decides that from a plan and an observation), step times (`perf/`),
starting or stopping servers (`fleet/`). Adding an engine is adding a folder with `planner.py` and a line in
`planner` below.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headrace.errors import UsageError, nearest

if TYPE_CHECKING:
    from headrace.engines.plan import MemoryPlan, Planner
    from headrace.engines.search_space import Axis
    from headrace.perf.options import StepOptions

PLANNED_ENGINES = ("sglang", "vllm")


def planner(engine: str) -> Planner:
    """Returns the memory planner of an engine by name.

    Raises:
        UsageError: no planner of that name.
    """
    name = engine.lower()
    if name not in PLANNED_ENGINES:
        raise UsageError(
            f"no memory planner for the engine '{engine}'.{nearest(name, PLANNED_ENGINES)} "
            f"Known: {', '.join(PLANNED_ENGINES)}."
        )
    found: Planner = import_module(f"headrace.engines.{name}.planner").PLANNER
    return found


def step_options(plan: MemoryPlan, accept_length: float | None = None) -> StepOptions:
    """Returns how the steps of a planned server run, for the step model.

    Args:
        accept_length: tokens that a speculative step yields per request; without it a step counts for one.
    """
    module = import_module(f"headrace.engines.{plan.settings.engine}.step_options")
    found: StepOptions = module.step_options(plan, accept_length)
    return found


def search_axes(plan: MemoryPlan, gpus: int) -> tuple[Axis, ...]:
    """Returns what a search may vary on a planned server that has `gpus` GPUs, replicas included."""
    found: tuple[Axis, ...] = import_module(f"headrace.engines.{plan.settings.engine}.search_axes").axes(
        plan, gpus
    )
    return found
