"""Waiting below every known limit: state slots, an engine's slots or reserve, or a limit that is not told."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, COUNTED, SUGGESTED, Finding
from headrace.diagnose.view import FULL, PRESSED, ROOM, View
from headrace.engines.conduct import conduct
from headrace.words import Constraint


def findings(view: View) -> Iterator[Finding]:
    """Yields what it shows that requests wait though running is under the cap and no token pool is full."""
    running, cap = view.running, view.cap.value if view.cap else None
    usage = view.fullest_pool
    if view.waits is not True or running is None or view.at_cap:
        return
    if usage is not None and usage[1] >= PRESSED:
        return
    flag = view.running_flag
    if cap is None and flag is not None and view.stands_at(flag):
        return
    state = view.server.value("state_usage")
    waiting = view.queued or max(0.0, (view.flight or running) - running)
    seen = f"{running:,.0f} running, {waiting:,.0f} waiting"
    share = view.server.value("queue_share_of_steps")
    if share is not None and not view.queued:
        seen = f"{running:,.0f} running, others wait in {share:.0%} of the steps"
    if view.is_hybrid and cap is None:
        yield from _state_cap_unseen(view, seen, state, usage)
        return
    if state is not None and state >= FULL:
        yield Finding(
            Constraint.STATE_POOL, COUNTED, (f"{seen}; state pool {state:.0%} used",), ("free state slots",)
        )
        return
    if conduct(view.server.engine).slots_are_cap and running >= 1 and cap is None:
        yield Finding(
            Constraint.MAX_RUNNING_REQUESTS,
            CONFIGURED,
            (f"{seen}: this engine runs as many as it has slots",),
            ("free slots while requests wait",),
        )
        return
    if usage is None and cap is None and flag is None and running >= 1 and view.running_is_told:
        yield _cap_unseen(view, seen, running)
        return
    if view.queued is None or view.queued < 1 or usage is None:
        return
    if running < 1:
        return  # nothing runs though requests wait: that is no reserve, and the evidence does not tell
    # vLLM keeps no reserve: it admits while blocks and the step's budget last
    reserve = conduct(view.server.engine).keeps_reserve
    known = cap is not None or flag is not None
    if not reserve and not known:
        if not view.running_stands:
            return
        # neither blocks nor a reserve: what is left is the limit on running requests, or the step's budget,
        # which long prompts use up
        limit = running in _ROUND
        yield Finding(
            Constraint.MAX_RUNNING_REQUESTS if limit else Constraint.PREFILL,
            SUGGESTED + 0.05 if limit else SUGGESTED,
            (f"{seen}, with the {usage[0]} at {usage[1]:.0%}: this engine keeps no reserve",),
            ("the limit of the launch line: higher than what runs",)
            if limit
            else ("tokens read per step: far below its budget",),
        )
        return
    if usage[1] < ROOM and known:
        yield Finding(
            Constraint.ADMISSION if reserve else Constraint.TOKEN_BUDGET,
            CONFIGURED if reserve else 0.5,
            (f"{seen} under a cap of {cap or flag:,.0f}, with the {usage[0]} at {usage[1]:.0%}",),
            ("a lower reserve for tokens to come, with running unchanged",)
            if reserve
            else ("tokens per step: well under the budget",),
        )
    elif reserve:
        longest = view.client.value("max_tokens")
        evidence = [f"{seen}, with the {usage[0]} at {usage[1]:.0%}"]
        if longest:
            evidence.append(f"each request reserves for up to {longest:,.0f} tokens to come")
        yield Finding(
            Constraint.ADMISSION, SUGGESTED, tuple(evidence), ("the cap: it may be what running stands at",)
        )


# What engines run at most where nobody says otherwise (facts on engines §1.2, §4.1), and what people set.
_ROUND = frozenset({8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096})


def _cap_unseen(view: View, seen: str, running: float) -> Finding:
    """They wait, and neither cap nor pool was told: at a round number it is a limit, else room for tokens."""
    plan, each = view.planned.plan if view.planned else None, view.needed_context
    tokens = plan.figure("kv_tokens") if plan is not None else None
    has_room = tokens is not None and each is not None and tokens > 2 * each * (running + 1)
    limit = (running in _ROUND and view.running_stands) or has_room
    return Finding(
        Constraint.MAX_RUNNING_REQUESTS if limit else Constraint.KV_POOL,
        SUGGESTED - 0.04,
        (
            f"{seen}: " + (f"{running:,.0f} may be a set limit" if limit else "that is no usual limit"),
            "neither the cap nor a pool's usage was told",
        ),
        ("the pool's usage and the cap, from the server: another of the two stands",),
    )


def _state_cap_unseen(
    view: View, seen: str, state: float | None, usage: tuple[str, float] | None
) -> Iterator[Finding]:
    """A hybrid model with a cap that nobody told: slots ÷ slots per request, below the flag."""
    plan = view.planned.plan if view.planned else None
    evidence = [seen]
    confidence = SUGGESTED
    flag = view.running_flag
    if flag is not None:
        evidence[0] += f", the flag allows {flag:,}"
        confidence = CONFIGURED
    if usage is not None and usage[1] < ROOM:
        evidence.append(f"{usage[0]} {usage[1]:.0%}: not what they wait for")
        confidence = CONFIGURED
    if state is not None:
        shares = _plateau(view)
        if shares and shares[0] - 0.05 <= state <= shares[1] + 0.05:
            evidence.append(
                f"state pool {state:.0%}, and a server at its cap reads {shares[0]:.0%} to "
                f"{shares[1]:.0%}: slots are "
                "reserved that are not held"
            )
            confidence = COUNTED
        else:
            evidence.append(f"state pool {state:.0%}")
    if plan is not None and plan.cap is not None and view.running is not None:
        cap = plan.cap.value
        if abs(cap - view.running) <= 0.15 * cap:
            evidence.append(f"the flags give a cap of {cap:,.0f}: {plan.cap_term}")
            confidence = COUNTED
    yield Finding(
        Constraint.STATE_POOL,
        confidence,
        tuple(evidence),
        ("the server's own cap: running below it would speak of admission",),
    )


def _plateau(view: View) -> tuple[float, float] | None:
    """What the state pool reads when running stands at the cap, by slots reserved per request.

    Of S slots reserved for a request it holds S − 2 to S − 1, of one the one: a server at its cap reads 1.0,
    1/3 to 2/3, 2/4 to 3/4 or 3/5 to 4/5.
    """
    plan = view.planned.plan if view.planned else None
    each = plan.figure("slots_per_request") if plan is not None else None
    if each is None:
        return (1 / 3, 0.8)
    if each <= 1:
        return (1.0, 1.0)
    return (max(1.0, each - 2) / each, (each - 1) / each)
