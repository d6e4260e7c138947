"""What `headrace simulate` is asked: a server by its flags, a fleet of it, a workload, and variants beside
it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engines import planner as planner_of
from headrace.engines.launch_line import LaunchLine
from headrace.engines.plan import GIB, MemoryPlan, PlanInputs
from headrace.errors import UsageError
from headrace.hardware.device import Device
from headrace.models.geometry import ModelGeometry
from headrace.quantities import Origin, Quantity
from headrace.simulate.fleet import Feeding, FleetSpec, Incident, ServerKind
from headrace.simulate.outcome import Outcome
from headrace.simulate.scheduling import schedule_of
from headrace.simulate.simulator import simulate
from headrace.simulate.steps import StepPoint, StepSeconds, server_kind, step_scale
from headrace.simulate.workload import Workload

Counted = Callable[[int, int], None]
_GOOD_LINE = 0.01  # deviation of the line that is not worth a note
_EVENTS = ("dies", "up", "drains", "rolls")


@dataclass(frozen=True)
class ServerAsked:
    """A server: model, device, engine and launch line, and the GiB that somebody has read off a real one."""

    model: ModelGeometry
    device: Device
    engine: str = "sglang"
    engine_version: str = ""
    flags: str = ""
    free_gib: float | None = None
    weights_gib: float | None = None

    def plan(self, change: str = "", context_tokens: float | None = None) -> MemoryPlan:
        """Returns the memory plan of the line, edited by `change`."""
        planner = planner_of(self.engine)
        rules = planner.rules(self.engine_version)
        line = LaunchLine.parse(self.flags, planner.table, rules.version)
        if change:
            line = line.changed(change, planner.table, rules.version)
        free, weights = (
            None if gib is None else Quantity(gib * GIB, "bytes", Origin.USER, flag)
            for gib, flag in ((self.free_gib, "--free-gib"), (self.weights_gib, "--weights-gib"))
        )
        return planner.plan(PlanInputs(self.model, self.device, rules, line, free, weights, context_tokens))


@dataclass(frozen=True)
class FleetAsked:
    """A fleet of one kind of server, how it is fed, and what befalls it.

    `slow` maps a server to how many times as long its passes take.
    """

    replicas: int = 1
    feeding: Feeding = field(default_factory=Feeding)
    incidents: tuple[Incident, ...] = ()
    slow: tuple[tuple[int, float], ...] = ()
    points: tuple[StepPoint, ...] = ()
    accept_length: float | None = None
    ignore_eos: bool = False
    until_seconds: float | None = None


@dataclass(frozen=True)
class Variant:
    """One line simulated: the edit that made it ("" for the line as given), its plan, and what came of it."""

    change: str
    in_flight: int | None
    plan: MemoryPlan
    seconds: StepSeconds
    outcome: Outcome

    def to_json(self) -> dict[str, Any]:
        """Returns the variant as plain JSON."""
        return {
            "change": self.change or None,
            "in_flight": self.in_flight,
            "flags": self.plan.settings.line.text(),
            "cap_bound_by": str(self.plan.cap_bound_by),
            "step_line_deviation": self.seconds.deviation,
            **self.outcome.to_json(),
        }


def run_variant(
    server: ServerAsked,
    fleet: FleetAsked,
    workload: Workload,
    change: str = "",
    progress: Counted | None = None,
) -> Variant:
    """Returns one variant of the line through the workload; `change` may hold --in-flight N for the client.

    Raises:
        UsageError, InputError: a flag is not known, the server would not start, the fleet makes no sense.
    """
    edit, in_flight = _client_part(change, fleet.feeding.in_flight)
    mean_input, mean_output = float(workload.input_tokens.mean()), float(workload.output_tokens.mean())
    plan = server.plan(edit, mean_input + mean_output / 2)
    schedule = schedule_of(plan)
    scale = step_scale(server.plan(), fleet.points, mean_input + mean_output / 2)
    slow = dict(fleet.slow)
    if any(not 0 <= index < fleet.replicas or factor <= 0 for index, factor in fleet.slow):
        raise UsageError(f"a slow server is one of 0 to {fleet.replicas - 1}, its factor above 0.")
    kinds: list[ServerKind] = []
    by_factor: dict[float, int] = {}
    made: StepSeconds | None = None
    for factor in [1.0, *slow.values()]:
        if factor not in by_factor:
            kind, seconds = server_kind(
                plan, schedule, mean_input, mean_output, scale=scale, accept_length=fleet.accept_length,
                ignore_eos=fleet.ignore_eos, slowness=factor,
            )  # fmt: skip
            by_factor[factor] = len(kinds)
            kinds.append(kind)
            made = made or seconds
    assert made is not None
    ranks, gpus = _ranks(plan)
    spec = FleetSpec(
        kinds,
        [by_factor[slow.get(index, 1.0)] for index in range(fleet.replicas)],
        ranks,
        replace(fleet.feeding, in_flight=in_flight),
        fleet.incidents,
    )
    outcome = simulate(
        spec, workload, until_seconds=fleet.until_seconds, gpus_per_server=gpus, progress=progress,
        notes=(f"the job: {workload.source}", *scale.notes, *_line_note(made)),
    )  # fmt: skip
    return Variant(change, in_flight, plan, made, outcome)


def _line_note(seconds: StepSeconds) -> tuple[str, ...]:
    """What is to be said where no straight line over the context fits."""
    if seconds.deviation <= _GOOD_LINE:
        return ()
    return (
        "seconds of a pass are taken as a straight line over the context, up to "
        f"{100 * seconds.deviation:.0f} % off the step model at a quarter or twice the mean context: "
        "the host or a window bends it.",
    )


def _client_part(change: str, in_flight: int | None) -> tuple[str, int | None]:
    """(the edit without --in-flight, in flight per server)."""
    words = shlex.split(change)
    if "--in-flight" not in words:
        return change, in_flight
    at = words.index("--in-flight")
    try:
        told = int(words[at + 1])
    except (IndexError, ValueError):
        raise UsageError(f"--in-flight in '{change[:60]}' takes a whole number.") from None
    return shlex.join(words[:at] + words[at + 2 :]), told


def _ranks(plan: MemoryPlan) -> tuple[int, float]:
    """(schedulers of one server, its GPUs)."""
    settings = plan.settings
    if settings.engine == "sglang":
        dp, attention = int(settings["dp_size"] or 1), int(settings["attn_dp_size"] or 1)
        gpus = int(settings["tp_size"] or 1) * int(settings["pp_size"] or 1)
        return max(dp, attention), float(gpus if attention > 1 else gpus * dp)
    dp = int(settings["data_parallel_size"] or 1)
    return dp, float(
        int(settings["tensor_parallel_size"] or 1) * int(settings["pipeline_parallel_size"] or 1) * dp
    )


def parse_incidents(texts: Sequence[str]) -> tuple[Incident, ...]:
    """Returns incidents from text like `600:3:dies`.

    Raises:
        UsageError: what is not SECONDS:SERVER:WHAT.
    """
    found = []
    for text in texts:
        parts = text.split(":")
        try:
            seconds, server, what = float(parts[0]), int(parts[1]), parts[2]
        except (IndexError, ValueError):
            what = ""
        if what not in _EVENTS or len(parts) != 3 or seconds < 0:
            raise UsageError(
                f"--event takes SECONDS:SERVER:WHAT with one of {', '.join(_EVENTS)}, like 600:3:dies; "
                f"got '{text[:40]}'."
            )
        found.append(Incident(seconds, server, what))
    return tuple(found)


def parse_slow(texts: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Returns (server, factor) from text like `3:1.5`.

    Raises:
        UsageError: what is not SERVER:FACTOR.
    """
    found = []
    for text in texts:
        server, colon, factor = text.partition(":")
        try:
            found.append((int(server), float(factor)))
        except ValueError:
            colon = ""
        if not colon:
            raise UsageError(f"--slow-server takes SERVER:FACTOR, like 3:1.5; got '{text[:40]}'.")
    return tuple(found)
