"""The ladder: every cap on running requests, lowest first, each without the lower ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.diagnose.estimate import more_running, throughput
from headrace.diagnose.rules.caps import bound_by
from headrace.diagnose.view import View
from headrace.quantities import Estimate, Origin, Quantity, derived
from headrace.words import Constraint


@dataclass(frozen=True, slots=True)
class LadderRung:
    """One cap: how many would run with every lower cap removed; None for the id that sets the step time.

    `output` is what one server would make with that many running, tokens/s; None where it cannot be told.
    """

    constraint: Constraint
    limit: Quantity | None
    term: str
    output: Estimate | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "constraint": str(self.constraint),
            "limit": self.limit.value if self.limit is not None else None,
            "quantity": self.limit.to_json() if self.limit is not None else None,
            "term": self.term,
            "output_tokens_per_s": self.output.to_json() if self.output is not None else None,
        }


def ladder(view: View, rate: Constraint | None) -> tuple[LadderRung, ...]:
    """Returns the rungs of one server, lowest first, ending with the constraint on the rate side.

    Rungs come from the plan that agrees with what the server reported; a reported cap that no plan explains
    has a rung of its own. Of one constraint the lowest stays.
    """
    rungs = [*_client(view), *_planned(view), *_reported(view)]
    rungs.sort(key=lambda rung: rung.limit.value if rung.limit is not None else float("inf"))
    kept: dict[Constraint, LadderRung] = {}
    for rung in rungs:
        kept.setdefault(rung.constraint, rung)
    found = [replace(rung, output=_output(view, rung)) for rung in kept.values()]
    if rate is not None and found:
        found.append(LadderRung(rate, None, "sets the time of a step once the caps are gone"))
    return tuple(found)


def _output(view: View, rung: LadderRung) -> Estimate | None:
    """Tokens per second of one server with as many running as the rung lets."""
    if rung.limit is None or view.running is None or rung.limit.value < 0.98 * view.running:
        return None  # more run than that: the cap is not what it is taken for
    return throughput(view, more_running(view, rung.limit.value), of_fleet=False)


def _client(view: View) -> list[LadderRung]:
    flight = view.baseline.get("in_flight_per_server")
    running = view.baseline.get("running")
    if not view.load_is_free:
        return []
    if flight is None:
        if not running or running.value < 1 or not view.running_is_told or view.waits is not False:
            return []
        flight = running  # nothing queued: what runs is what is in flight
    if flight.value < 1:
        return []
    return [LadderRung(Constraint.CLIENT_CONCURRENCY, flight, "in flight per server")]


def _planned(view: View) -> list[LadderRung]:
    plan = view.planned.plan if view.planned else None
    if plan is None or _plan_disagrees(view):
        return []
    return [LadderRung(rung.constraint, rung.running, rung.term) for rung in plan.ladder]


def _plan_disagrees(view: View) -> bool:
    """A plan that nothing reconciles with the reported cap is no ladder."""
    cap, plan = view.cap, view.planned.plan if view.planned else None
    if plan is None or plan.cap is None:
        return False
    if cap is None:
        return view.running_is_told and view.planned_cap is None
    return int(plan.cap.value) != int(cap.value)


def _reported(view: View) -> list[LadderRung]:
    cap, bound = view.cap, bound_by(view)
    rungs = []
    if cap is not None and bound is not None:
        rungs.append(LadderRung(bound[0], cap, bound[2]))
    flag = view.running_flag
    if flag is not None and (cap is None or flag > cap.value):
        told = Quantity(float(flag), "requests", Origin.CONFIGURED, "the running flag")
        rungs.append(LadderRung(Constraint.MAX_RUNNING_REQUESTS, told, "the running flag"))
    size, context = view.baseline.get("kv_capacity_tokens"), view.baseline.get("context_tokens")
    if size is not None and context is not None and context.value > 0:
        holds = derived(
            float(int(size.value // max(1, round(context.value)))),
            "requests",
            "KV tokens ÷ context",
            kv_tokens=size,
            context=context,
        )
        rungs.append(
            LadderRung(Constraint.KV_POOL, holds, f"{size.value:,.0f} KV tokens ÷ {context.value:,.0f}")
        )
    elif (fits := view.fits_by_usage) is not None and view.running is not None:
        used = {name: found for name in ("running", "kv_usage") if (found := view.baseline.get(name))}
        holds = derived(float(int(fits)), "requests", "running ÷ usage of the pool", **used)
        rungs.append(LadderRung(Constraint.KV_POOL, holds, "running ÷ usage of the pool, at this length"))
    return rungs
