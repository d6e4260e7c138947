"""Caps on running requests: which one running stands at, and which one a launch line sets."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, COUNTED, SAID, SUGGESTED, Finding
from headrace.diagnose.view import PRESSED, View
from headrace.engines.signs import Sign
from headrace.words import Constraint

_REFUTES = {
    Constraint.MAX_RUNNING_REQUESTS: "the flag raised: running stays where it is if another cap is next",
    Constraint.STATE_POOL: "state slots ÷ slots per request, from the server's start lines: not the cap",
    Constraint.KV_POOL: "the KV pool's usage at the cap: low means the cap comes from elsewhere",
}


def findings(view: View) -> Iterator[Finding]:
    """Yields what the caps show."""
    yield from _impossible(view)
    yield from _at_cap(view)
    yield from _capped_below_flag(view)


def _impossible(view: View) -> Iterator[Finding]:
    """More may run than there are state slots: no engine starts so, each request needs at least one."""
    cap, slots = view.baseline.value("cap"), view.baseline.value("state_slots")
    if cap is None or slots is None or slots <= 0 or cap <= slots or view.server.value("running"):
        return
    yield Finding(
        Constraint.CONFIGURATION_ERROR,
        SAID,
        (
            f"{cap:,.0f} may run, and there are {slots:,.0f} state slots: each running request needs at "
            f"least "
            "one, so the server does not start",
        ),
        ("a server that answers with these settings",),
    )


def bound_by(view: View) -> tuple[Constraint, float, str] | None:
    """Returns what sets the effective cap, how sure that is, and why; None where no cap is known."""
    effective = view.cap
    flag = view.running_flag
    plan = view.planned.plan if view.planned else None
    if effective is None:
        return None
    cap = effective.value
    if flag is not None and int(cap) in (flag, flag * (view.server.data_parallel or 1)):
        return Constraint.MAX_RUNNING_REQUESTS, SAID, f"the cap of {cap:,.0f} is the running flag itself"
    if plan is not None and plan.cap is not None and int(plan.cap.value) == int(cap):
        return plan.cap_bound_by, COUNTED, f"the cap of {cap:,.0f} is {plan.cap_term}"
    slots = view.baseline.value("state_slots")
    if slots and cap < slots:
        each = int(slots // cap)
        if each * cap <= slots < each * (cap + 1) and each <= 8:
            return (
                Constraint.STATE_POOL,
                COUNTED,
                f"the cap of {cap:,.0f} is {slots:,.0f} state slots ÷ {each} per request",
            )
    if flag is not None and cap < flag:
        which = Constraint.STATE_POOL if view.is_hybrid else Constraint.KV_POOL
        return which, CONFIGURED, f"the cap of {cap:,.0f} is lower than the flag's {flag:,}"
    if view.is_hybrid and view.server.value("state_usage"):
        return Constraint.STATE_POOL, SUGGESTED, f"a cap of {cap:,.0f} with no flag that says so"
    return Constraint.MAX_RUNNING_REQUESTS, SUGGESTED, f"a cap of {cap:,.0f}"


def _at_cap(view: View) -> Iterator[Finding]:
    """As many run as may, and more are offered."""
    cap, running = view.cap.value if view.cap else None, view.running
    if cap is None and view.running_flag is not None and running is not None:
        if view.stands_at(view.running_flag) and view.waits is not False:
            yield Finding(
                Constraint.MAX_RUNNING_REQUESTS,
                COUNTED,
                (f"{running:,.0f} running, the flag allows {view.running_flag:,}",),
                (_REFUTES[Constraint.MAX_RUNNING_REQUESTS],),
            )
        return
    bound = bound_by(view)
    if cap is None or bound is None or cap <= 0:
        return
    constraint, sure, why = bound
    flight = view.flight
    told = running is not None and view.running_is_told
    if told and running is not None and view.stands_at(cap):
        if view.queued == 0 and (flight is None or flight <= 1.1 * running):
            return  # as many are offered as run
        evidence = [f"{running:,.0f} running of {cap:,.0f} that may"]
        if view.queued:
            evidence[0] += f", {view.queued:,.0f} queued"
        elif flight is not None:
            evidence[0] += f", {flight:,.0f} in flight per server"
        confidence = sure if view.waits else min(sure, CONFIGURED)
    elif not told and flight is not None and flight > 1.1 * cap and not _pool_pressed(view):
        evidence = [f"{flight:,.0f} in flight per server, {cap:,.0f} may run: the others wait"]
        confidence = min(sure, COUNTED)
    else:
        return
    evidence.append(why)
    evidence += _beside(view, constraint)
    yield Finding(
        constraint,
        confidence,
        tuple(evidence),
        (_REFUTES.get(constraint, "running above the cap"),),
        {name: found for name in ("running", "queued", "cap") if (found := view.baseline.get(name))},
    )


def _pool_pressed(view: View) -> bool:
    usage = view.server.value("kv_usage")
    return usage is not None and usage >= PRESSED


def _beside(view: View, constraint: Constraint) -> list[str]:
    """What the pools read at the cap."""
    parts = []
    for word, name in (("state_usage", "state pool"), ("kv_usage", "KV pool")):
        usage = view.server.value(word)
        if usage is not None:
            parts.append(f"{name} {usage:.0%}")
    if not parts:
        return []
    text = "at the cap: " + ", ".join(parts)
    if constraint is Constraint.STATE_POOL and (view.server.value("state_usage") or 1.0) < 1.0:
        text += " (slots held; what is reserved per request is full)"
    return [text]


def _capped_below_flag(view: View) -> Iterator[Finding]:
    """No request was seen: what the sizes alone say is the lowest cap, below what was asked for."""
    if view.running is not None and view.running_is_told:
        return
    if not view.load_is_free:
        return
    flight = view.flight
    bound = bound_by(view)
    cap = view.cap.value if view.cap else None
    if bound is not None and cap is not None and flight is None:
        constraint, sure, why = bound
        flag = view.running_flag
        if flag is None or cap < flag or constraint is not Constraint.MAX_RUNNING_REQUESTS:
            yield Finding(constraint, min(sure, COUNTED), (why,), (_REFUTES.get(constraint, "a larger cap"),))
        else:
            yield Finding(constraint, CONFIGURED, (why, *_room_beyond(view, cap)), (_REFUTES[constraint],))
        return
    if bound is not None:
        return
    yield from _planned_lowest(view, flight)
    yield from _flag_below_flight(view, flight)


def _room_beyond(view: View, cap: float) -> list[str]:
    slots = view.baseline.value("state_slots")
    tokens = view.baseline.value("kv_capacity_tokens")
    parts = [f"{slots:,.0f} state slots" if slots else "", f"{tokens:,.0f} KV tokens" if tokens else ""]
    parts = [part for part in parts if part]
    return [f"{' and '.join(parts)} for {cap:,.0f} requests"] if parts else []


def _flag_below_flight(view: View, flight: float | None) -> Iterator[Finding]:
    """The user's own limit is below what is offered, and nobody told how many run."""
    flag, ranks = view.running_flag, max(1, view.server.data_parallel or 1)
    if flag is None or flight is None or flight <= 1.1 * flag * ranks or _pool_pressed(view):
        return
    yield Finding(
        Constraint.MAX_RUNNING_REQUESTS,
        CONFIGURED,
        (
            f"{flight:,.0f} in flight per server, and the flag lets {flag:,} run"
            + (f" on each of {ranks} ranks" if ranks > 1 else ""),
        ),
        ("running below the flag while requests wait: a pool is lower",),
    )


def _planned_lowest(view: View, flight: float | None) -> Iterator[Finding]:
    """The planner's lowest rung, where more is offered than it holds."""
    plan = view.planned.plan if view.planned else None
    if plan is None or plan.lowest is None:
        return
    rung = plan.lowest
    if rung.constraint is Constraint.KV_POOL and view.baseline.value("context_tokens") is None:
        return  # at the longest request that may come, which says little of those that do
    if rung.constraint is Constraint.KV_POOL and view.fullest_pool is not None and not _pool_pressed(view):
        return  # the pool was read, and has room
    derived_running = view.running
    if flight is not None and flight <= rung.running.value:
        return
    if derived_running is not None and derived_running > 1.3 * rung.running.value:
        return
    if flight is None and rung.constraint is Constraint.MAX_RUNNING_REQUESTS:
        return
    confidence = CONFIGURED if flight is not None and Sign.SPECULATION not in view.signs else SUGGESTED
    evidence = [f"the flags give {rung.running.value:,.0f} running: {rung.term} (derived, not seen)"]
    if flight is not None:
        evidence.append(f"{flight:,.0f} in flight per server")
    if derived_running is not None:
        evidence.append(f"about {derived_running:,.1f} run, by rate × seconds per token")
        confidence = COUNTED
    yield Finding(
        rung.constraint,
        confidence,
        tuple(evidence),
        ("the server's own cap and sizes, from its start lines",),
        {"running": rung.running},
    )
