"""The client's side: too little in flight, less than it wants, a tail, servers out of balance."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, COUNTED, SAID, SUGGESTED, Finding
from headrace.diagnose.rules.pools import lost_work
from headrace.diagnose.view import NEAR, PRESSED, ROOM, View
from headrace.engines.conduct import conduct
from headrace.words import Constraint

# An HTTP client library that is not told otherwise opens this many connections (aiohttp's TCPConnector).
LIBRARY_CONNECTIONS = 100


def findings(view: View) -> Iterator[Finding]:
    """Yields what the client's side shows."""
    yield from _too_little(view)
    yield from _less_than_wanted(view)
    yield from _far_below_the_caps(view)
    yield from _tail(view)
    yield from _imbalance(view)


def _cap(view: View) -> float | None:
    """The effective cap as reported, else as planned."""
    cap = view.cap or view.planned_cap
    return cap.value if cap is not None else None


def _as_many(running: float) -> float:
    """In flight up to which it counts as much as what runs: a fifth, or half a request, is on its way."""
    return 1.2 * running + 0.5


def _pools_have_room(view: View) -> bool:
    """At least one request more would fit beside those that run, and a tenth of them."""
    running, fits = view.running, view.fits_by_usage
    return running is None or fits is None or fits >= running + max(1.0, 0.1 * running)


def _too_little(view: View) -> Iterator[Finding]:
    """Running < cap, nothing queued, load free."""
    running, cap = view.running, _cap(view)
    if not view.load_is_free or running is None or not view.running_is_told:
        return
    if running <= 0 and not view.server.value("output_tokens_per_s"):
        return
    flight = view.flight
    if view.waits or not _pools_have_room(view) or flight == 0:
        return
    if lost_work(view):
        return  # work is taken back only for want of KV room: whatever waits at the median, it has enough
    if flight is not None and flight > _as_many(running):
        return  # more is meant to be in flight: `client_side`
    if cap is not None and running >= cap * NEAR:
        return
    queued_told = view.queued is not None
    runs = f"{running:,.0f} running" if running > 0 else "less than one running: none at most looks"
    evidence = [f"{runs}, " + ("nothing queued" if queued_told else "as many as are in flight")]
    confidence = SAID if queued_told or flight is not None else SUGGESTED
    if cap is not None:
        evidence[0] += f", under a cap of {cap:,.0f}" + ("" if view.cap else " (derived from the flags)")
        confidence = confidence if view.cap else min(confidence, COUNTED)
    else:
        confidence = min(confidence, CONFIGURED)
        evidence.append("the cap is not known; no pool is full")
    if flight is not None:
        evidence.append(f"{flight:,.0f} in flight per server, and the load is ours to choose")
    yield Finding(
        Constraint.CLIENT_CONCURRENCY,
        confidence,
        tuple(evidence),
        ("a queue in the server: then it is offered enough, and a cap or pool holds it",),
        {name: found for name in ("running", "queued", "cap") if (found := view.baseline.get(name))},
    )


def _far_below_the_caps(view: View) -> Iterator[Finding]:
    """Nobody told how many run; what is in flight is far below every cap that the flags give."""
    flight, plan = view.flight, view.planned.plan if view.planned else None
    if not view.load_is_free or view.running_is_told or flight is None or plan is None or plan.lowest is None:
        return
    lowest = plan.lowest.running.value
    if view.waits or view.server.value("ttft_s") is not None or flight > lowest / 2 or not view.server.flags:
        return
    yield Finding(
        Constraint.CLIENT_CONCURRENCY,
        SUGGESTED,
        (
            f"{flight:,.0f} in flight per server, and the flags give room for {lowest:,.0f} "
            f"({plan.lowest.term})",
        ),
        ("a queue in the server: then it is offered enough",),
    )


def _less_than_wanted(view: View) -> Iterator[Finding]:
    """More is meant to be in flight than the server has, and the server does not make them wait."""
    flight, running = view.flight, view.running
    if flight is None or running is None or not view.running_is_told or flight <= _as_many(running):
        return
    if (view.queued is not None and view.queued >= 1) or _left(view) is not None:
        return
    cap = _cap(view)
    if cap is not None and running >= cap * NEAR:
        return
    slots = conduct(view.server.engine).slots_are_cap and view.cap is not None
    if slots and view.queued is None and view.cap is not None and running <= view.cap.value - 1:
        # free slots take a request at once: those that do not run are not there
        evidence = [
            f"{flight:,.0f} are meant to be in flight, {running:,.0f} run, and there are "
            f"{view.cap.value:,.0f} slots"
        ]
        confidence = CONFIGURED
    elif view.queued == 0 and _pools_have_room(view):
        evidence = [
            f"{flight:,.0f} are meant to be in flight per server, {running:,.0f} run and none wait there: "
            f"{flight - running:,.0f} never arrive"
        ]
        confidence = SAID
    elif running * view.observation.replicas == LIBRARY_CONNECTIONS:
        evidence = [
            f"{running:,.0f} of {flight:,.0f} run, exactly as many as an HTTP client library connects by "
            f"default"
        ]
        confidence = CONFIGURED
    else:
        return
    yield Finding(
        Constraint.CLIENT_SIDE,
        confidence,
        tuple(evidence),
        ("the connections the client holds open: as many as it wants in flight", "a queue in the server"),
    )


def _tail(view: View) -> Iterator[Finding]:
    """Few prompts are left, or ranks end when their longest answer ends."""
    times = view.server.by_rank.get("time_s_by_rank", {})
    longest = view.server.by_rank.get("longest_output_by_rank", {})
    made = view.server.by_rank.get("output_tokens_by_rank", {})
    common = sorted(set(times) & set(longest), key=lambda rank: times[rank])
    if len(common) >= 2 and times[common[-1]] > 1.15 * times[common[0]]:
        order = [longest[rank] for rank in common]
        if order == sorted(order):
            last = common[-1]
            evidence = [
                f"ranks take {times[common[0]]:,.0f} to {times[last]:,.0f} s in the order of their "
                f"longest answer "
                f"({order[0]:,.0f} to {order[-1]:,.0f} tokens)"
            ]
            busiest = max(made, key=lambda rank: made[rank]) if made else last
            if busiest != last and last in made:
                evidence.append(
                    f"not of their work: the slowest made {made[last]:,.0f} tokens, another "
                    f"{made[busiest]:,.0f}"
                )
            yield Finding(
                Constraint.LONG_TAIL,
                COUNTED,
                tuple(evidence),
                ("running per rank over time: flat to the end means it is no tail",),
            )
        else:
            yield Finding(
                Constraint.LOAD_IMBALANCE,
                CONFIGURED,
                (f"ranks take {times[common[0]]:,.0f} to {times[common[-1]]:,.0f} s",),
                ("tokens per rank: equal work at unequal speed is another cause",),
            )
    left, flight = _left(view), view.client.value("in_flight")
    if left is not None and flight is not None:
        yield Finding(
            Constraint.LONG_TAIL,
            COUNTED,
            (f"{left:,.0f} prompts are left for {flight:,.0f} places in flight",),
            ("prompts that are still to come",),
        )


def _left(view: View) -> float | None:
    """Prompts that are left, where they are fewer than half the places in flight; else None."""
    total, done, flight = (view.client.value(word) for word in ("prompts_total", "completed", "in_flight"))
    if not total or done is None or not flight or not 0 < total - done < 0.5 * flight:
        return None
    return total - done


def _imbalance(view: View) -> Iterator[Finding]:
    """One server or rank full while another idles."""
    for word, unit in (
        ("kv_usage_by_rank", "of the KV pool"),
        ("running_by_rank", "running"),
        ("queued_by_rank", "queued"),
        ("prealloc_by_rank", "with reserved memory"),
    ):
        ranks = view.server.by_rank.get(word, {})
        if len(ranks) < 2:
            continue
        low, high = min(ranks.values()), max(ranks.values())
        if word == "kv_usage_by_rank" and high >= PRESSED and low < ROOM:
            text = f"one rank holds {high:.0%} {unit}, another {low:.0%}"
        elif word != "kv_usage_by_rank" and high >= 8 and low < 0.5 * high:
            text = f"one rank has {high:,.0f} {unit}, another {low:,.0f}"
        else:
            continue
        yield Finding(
            Constraint.LOAD_IMBALANCE,
            COUNTED,
            (text,),
            ("the same spread later: imbalance that moves between ranks is chance",),
        )
    servers = [server for server in view.observation.servers if server.value("running") is not None]
    if len(servers) < 2:
        return
    running = [server.value("running") or 0.0 for server in servers]
    queued = [server.value("queued") or 0.0 for server in servers]
    if max(queued) >= 1 and min(running) < 0.5 * max(running):
        full, idle = running.index(max(running)), running.index(min(running))
        yield Finding(
            Constraint.LOAD_IMBALANCE,
            COUNTED,
            (
                f"{servers[full].name} runs {running[full]:,.0f} with {queued[full]:,.0f} queued while "
                f"{servers[idle].name} runs {running[idle]:,.0f}",
            ),
            ("a few minutes more: requests of very different length even out",),
        )
