"""Pools: requests that wait for KV tokens or state slots, for the scheduler's reserve, or lose their work."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, COUNTED, SAID, SUGGESTED, Finding
from headrace.diagnose.view import FULL, PRESSED, ROOM, View
from headrace.engines.plan import MemoryPlan
from headrace.words import Constraint

# SGLang's tuning page: a retraction a minute is fine; vLLM counts the same as preemptions.
FINE_PER_MINUTE = 1.0
SIGMAS = (
    2.0  # beyond the mean: what a normal spread exceeds in 2.3 % of the steps, and then work is thrown away
)
LARGEST_BUDGET = 16384.0  # tokens per step by default, on the largest cards (facts on engines §1.1, §4.1)


def findings(view: View) -> Iterator[Finding]:
    """Yields what the pools show."""
    yield from _kv_full(view)
    yield from _fills_and_empties(view)
    yield from _none_more_fits(view)
    yield from _work_thrown_away(view)
    yield from _room_for_one(view)
    yield from _blocks(view)
    yield from _will_not_fit(view)
    yield from _budget(view)


def lost_work(view: View) -> str:
    """Retractions or preemptions beyond what is fine, in words; "" where there were none."""
    rate = view.server.value("retractions_per_min")
    if rate is not None and rate > FINE_PER_MINUTE:
        return f"{rate:,.1f} retractions a minute"
    lost = view.server.value("preemptions")
    if lost is not None and lost >= 1:
        window = view.server.window
        if window is not None and window.seconds > 0 and lost * 60 / window.seconds <= FINE_PER_MINUTE:
            return ""
        return f"{lost:,.0f} preemptions"
    event = next((event for event in view.server.events if _throws_away(event.id, event.text)), None)
    return f"{event.count:,} × “{event.text[:80]}”" if event is not None else ""


def _throws_away(id: str, text: str) -> bool:
    words = f"{id} {text}".lower()
    return "retract" in words or "preempted" in words


def _kv_full(view: View) -> Iterator[Finding]:
    """The pool is full and requests wait, or lose their work."""
    usage, lost = view.fullest_pool, lost_work(view)
    if usage is None:
        if lost:
            yield Finding(
                Constraint.KV_POOL,
                COUNTED,
                (lost, "an engine throws work away only for want of KV room"),
                ("the KV pool's usage at those times: low would speak of a bug",),
            )
        return
    name, used = usage
    waits = view.waits
    if lost and used < PRESSED:
        yield Finding(
            Constraint.KV_POOL,
            COUNTED,
            (lost, f"an engine throws work away only for want of KV room; {name} {used:.0%} at the median"),
            ("the KV pool's usage at those times: low would speak of a bug",),
        )
        return
    if used < PRESSED or (view.at_cap and not lost and used < FULL):
        return
    if used < FULL and waits is not True and not lost:
        confidence = SUGGESTED if waits is None or view.load_is_free else 0.2
    else:
        confidence = SAID if (waits or lost) else CONFIGURED
    evidence = [f"{name} {used:.0%} used"]
    if view.queued:
        evidence[0] += f", {view.queued:,.0f} queued"
    if lost:
        evidence.append(lost)
    states = _states_fill_it(view, used)
    if states:
        yield Finding(
            Constraint.STATE_POOL,
            COUNTED,
            (states, evidence[0]),
            ("tokens per running request from the server: as long as the whole pool ÷ running",),
        )
        confidence = min(confidence, CONFIGURED)
    yield Finding(
        Constraint.KV_POOL,
        confidence,
        tuple(evidence),
        ("more KV room (or shorter requests) with running unchanged",),
    )


def _fills_and_empties(view: View) -> Iterator[Finding]:
    """The pool is full at times, running does not stand at one height, and requests wait."""
    samples = view.seen("kv_usage")
    if view.waits is not True or view.running_stands or not len(samples) or samples.max() < FULL:
        return
    running = view.seen("running")
    yield Finding(
        Constraint.KV_POOL,
        COUNTED - 0.1,
        (
            f"KV pool up to {samples.max():.0%} used, and running goes up and down ({running.min():,.0f} to "
            f"{running.max():,.0f}) while requests wait: it is no cap that they wait for",
        ),
        ("more KV room with the same ups and downs",),
    )


def _none_more_fits(view: View) -> Iterator[Finding]:
    """One request more would overflow the pool at times, though it is not full on average.

    A request holds its prompt and what it has made so far: anything from nothing to its whole answer, so the
    KV of n of them spreads by answer × √(n / 12) about its mean (a uniform spread, each on its own). Few long
    requests fill a pool this way at 60 % on average; among hundreds it is the scheduler's reserve that holds
    the rest back. Answers of unlike lengths spread more: then the pool is full earlier than told here.
    """
    running, used = view.running, view.server.value("kv_usage")
    size, made = view.baseline.value("kv_capacity_tokens"), view.baseline.value("mean_output_tokens")
    if view.waits is not True or view.at_cap or view.is_hybrid or not running or not used or used >= PRESSED:
        return
    if not view.running_is_told or not size or not made:
        return
    if view.cap is None and view.running_flag is None and view.running_stands:
        return  # at a limit that nobody told
    ranks = max(1, view.server.data_parallel or 1)  # every data-parallel rank has a pool of its own
    pool, more = size / ranks, running / ranks + 1
    mean = used * size / running * more
    spread = made * math.sqrt(more / 12)
    if mean + SIGMAS * spread < pool:
        return
    yield Finding(
        Constraint.KV_POOL,
        COUNTED,
        (
            f"one more than the {running / ranks:,.0f} that run would hold {mean:,.0f} ± {spread:,.0f} KV "
            f"tokens (answers of {made:,.0f}) of {pool:,.0f}: they wait for room, not for the reserve alone",
        ),
        ("a lower reserve: more run, and no work is thrown away",),
    )


def _states_fill_it(view: View, used: float) -> str:
    """One pool holds states and KV: it is full though the KV of what is in flight would leave room."""
    flight, each = view.flight, view.needed_context
    size = view.baseline.value("kv_capacity_tokens")
    if (
        not view.is_hybrid
        or flight is None
        or each is None
        or size is None
        or view.server.value("state_usage")
    ):
        return ""
    if flight * each > 0.9 * size * used:
        return ""
    return (
        f"{flight:,.0f} requests of {each:,.0f} tokens are {flight * each / size:.0%} of {size:,.0f} KV "
        f"tokens, and "
        "the pool is full: recurrent states hold the rest of it"
    )


def _work_thrown_away(view: View) -> Iterator[Finding]:
    lost = lost_work(view)
    if not lost:
        return
    usage = view.fullest_pool
    share = view.server.value("queue_share_of_steps")
    pressed = usage is None or usage[1] >= PRESSED or (share or 0.0) > 0.0
    yield Finding(
        Constraint.RETRACTION,
        CONFIGURED if pressed else SUGGESTED,
        (lost, "what was made is thrown away and made again"),
        ("prompt tokens computed again: under 5 % of the work, it does not matter",),
    )


def _room_for_one(view: View) -> Iterator[Finding]:
    """The pool holds few requests of the length that the server should take."""
    size = view.baseline.value("kv_capacity_tokens")
    longest = view.signs.context_length or (view.context.model.context_tokens if view.context.model else None)
    if size is None or size <= 0:
        return
    for claim in view.claims:
        if claim.says(rf"longer than {size:,.0f}\b|more than {size:,.0f} tokens"):
            yield Finding(
                Constraint.KV_POOL,
                COUNTED,
                (f"requests are refused beyond {size:,.0f} tokens, the size of the KV pool itself",),
                ("a larger pool that refuses at the same length",),
            )
            return
    if longest is None:
        return
    if size < longest and view.running == 0 and view.waits:
        yield Finding(
            Constraint.KV_POOL,
            CONFIGURED,
            (
                f"nothing runs and requests wait: {size:,.0f} KV tokens do not hold one request "
                f"of the context "
                f"length, {longest:,}, so a longer one never starts",
            ),
            ("the longest request that waits: shorter than the pool",),
        )
        return
    if view.running_is_told or view.server.value("kv_usage") is not None:
        return
    if size < longest:
        yield Finding(
            Constraint.KV_POOL,
            SUGGESTED,
            (f"{size:,.0f} KV tokens do not hold one request of the context length, {longest:,}",),
            ("requests as short as half of it",),
        )


def _will_not_fit(view: View) -> Iterator[Finding]:
    """The pool ÷ tokens per request is less than what is in flight; no usage was told."""
    if view.running_is_told or view.server.value("kv_usage") is not None or view.is_hybrid:
        return
    sizes = [
        size.value
        for word in ("kv_capacity_tokens", "swa_capacity_tokens")
        if (size := view.server.get(word) or (view.baseline.get(word)))
    ]
    each = view.baseline.value("context_tokens")
    if not sizes or not each or view.flight is None:
        return
    ranks = max(1, view.server.data_parallel or 1)
    fits = ranks * min(sizes) / each  # every data-parallel rank has a pool of its own
    if fits < 0.9 * view.flight:
        yield Finding(
            Constraint.KV_POOL,
            COUNTED,
            (
                (f"{ranks} × " if ranks > 1 else "")
                + f"{min(sizes):,.0f} KV tokens ÷ {each:,.0f} per request hold {fits:,.0f} of "
                f"{view.flight:,.0f} in flight",
            ),
            ("running at its height: as many as are in flight",),
        )


def _budget(view: View) -> Iterator[Finding]:
    """Prompts are longer than what a step may compute, and requests wait while pools have room."""
    yield from _long_prompts(view)
    budget, prompt = view.signs.token_budget, view.baseline.value("mean_input_tokens")
    usage = view.fullest_pool
    if budget is None or prompt is None or not view.waits or (usage is not None and usage[1] >= PRESSED):
        return
    if prompt > 2 * budget and not view.at_cap:
        yield Finding(
            Constraint.TOKEN_BUDGET,
            CONFIGURED,
            (
                f"prompts of {prompt:,.0f} tokens need {prompt / budget:,.0f} steps of {budget:,} each, "
                f"while others wait",
            ),
            ("tokens per step: well under the budget",),
        )


def _long_prompts(view: View) -> Iterator[Finding]:
    """They wait, pools have room, and a prompt is longer than any engine's default budget per step."""
    prompt, usage = view.baseline.value("mean_input_tokens"), view.fullest_pool
    if not view.waits or prompt is None or prompt < LARGEST_BUDGET or view.at_cap or usage is None:
        return
    if usage[1] < ROOM:
        busy = view.server.value("gpu_utilization")
        yield Finding(
            Constraint.PREFILL,
            CONFIGURED - 0.05 if busy is not None and busy >= PRESSED else SUGGESTED,
            (
                f"prompts of {prompt:,.0f} tokens take several steps each while others wait, and "
                f"the {usage[0]} has room",
            ),
            ("time spent in prefill steps from the log: under a third",),
        )


def _blocks(view: View) -> Iterator[Finding]:
    """Blocks of one shared pool ÷ blocks that each request needs for its states: fewer than are in flight."""
    blocks, flight = view.server.value("pool_blocks"), view.flight
    plan = view.planned.plan if view.planned else None
    if blocks is None or flight is None or not view.is_hybrid or view.running_is_told:
        return
    needed = _blocks_of_states(plan) + 1  # and one of attention KV
    fits = blocks / needed
    if fits < flight:
        yield Finding(
            Constraint.STATE_POOL,
            COUNTED,
            (
                f"{blocks:,.0f} blocks ÷ {needed:,.0f} per request (states and one block of KV) let "
                f"{fits:,.0f} of {flight:,.0f} run",
            ),
            ("running at its height: as many as are in flight",),
        )


def _blocks_of_states(plan: MemoryPlan | None) -> float:
    """Blocks that one request's states take: groups of recurrent layers × slots in each.

    Without a plan: 3 groups of one slot, the shape of 48 recurrent beside 16 attention layers.
    """
    each = plan.figure("slots_per_request") if plan is not None else None
    blocks = plan.figure("blocks") if plan is not None else None
    slots = plan.figure("state_slots") if plan is not None else None
    if not each or not blocks or not slots:
        return 3.0
    return each * max(1, round(blocks / slots))
