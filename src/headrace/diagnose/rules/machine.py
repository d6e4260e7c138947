"""The machine and the server's own words: clocks, tokenizers, grammars, crashes, answers without end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.diagnose.finding import CONFIGURED, COUNTED, SAID, SUGGESTED, Finding, Side, side_of
from headrace.diagnose.view import View
from headrace.engines.conduct import meaning_of
from headrace.engines.signs import Sign
from headrace.observe.observation import Event
from headrace.words import Constraint

# Base clocks of data-centre and workstation GPUs are 735 MHz (RTX A4000) and up, by the makers' pages: a
# lasting clock below all of them is no boost that varies, it is a throttle.
LOWEST_BASE_CLOCK_MHZ = 735.0
HOT_CELSIUS = (
    87.0  # slow-down temperatures of NVIDIA cards begin at 87 °C (nvidia-smi -q, "GPU Slowdown Temp")
)
TARGET_CELSIUS = 83.0  # GeForce and workstation cards lower their clock from here ("GPU Target Temperature")
# An engine's stats line covers 10 s, and a step of seconds is the slowest that anyone serves with.
STALLED_SECONDS = 25.0
# words for a slowness that passes by itself
_PASSES = (
    r"\bfirst (?:few |\d+ )?(?:requests?|batch(?:es)?|runs?|prompts?|calls?"
    r"|minutes?)\b[^.;]{0,60}\b(?:slow\w*|takes?|took|\d)"
    r"|\b(?:second|identical|later|next) (?:repeat|run|request|try|ones?)\b|\bwarm-?ed?[- ]?up\b"
    r"|after a (?:while|warm)"
)
_A_SIGN = 0.22
_SAYS_IT = frozenset({Constraint.FRONTEND, Constraint.RETRACTION, Constraint.KV_POOL, Constraint.STATE_POOL})
ENDLESS_TOKENS = 6000.0  # a single answer longer than most limits that people set


def findings(view: View) -> Iterator[Finding]:
    """Yields what the machine and the server's words show."""
    yield from _events(view)
    yield from _stalled(view)
    if view.is_idle:
        return
    yield from _compiling(view)
    yield from _clocks(view)
    yield from _frontend(view)
    yield from _grammar(view)
    yield from _endless(view)


def _events(view: View) -> Iterator[Finding]:
    """What the failure catalogue says that an event speaks for."""
    serves = bool(view.server.value("running")) or bool(view.server.value("output_tokens_per_s"))
    for event in view.server.events:
        if event.id == "unreachable":
            yield Finding(
                Constraint.SERVER_DOWN,
                SAID,
                (event.text,),
                ("the same address, asked from the server's machine",),
            )
            continue
        entry = meaning_of(view.server.engine, event.id)
        if entry is None or entry.constraint is None:
            if event.id == "exception" and event.severity == "failure" and _is_last(view, event):
                yield _ended(event, CONFIGURED + 0.1)
            continue
        constraint = entry.constraint
        if Sign.NO_GPU in view.signs and constraint in (Constraint.CUDA_GRAPH, Constraint.STEP_OVERHEAD):
            continue
        state = side_of(constraint) is Side.STATE
        if state and event.severity != "failure":
            continue
        if event.severity == "failure":
            # a server may serve all the same; a process's end is what the cause leads to: the cause is first
            ended = COUNTED if constraint is Constraint.SERVER_DOWN else SAID
            went_on = serves and not _is_last(view, event)
            confidence = SUGGESTED if state and went_on else ended
            if not state and serves and not went_on:
                yield _ended(event, CONFIGURED)
        elif constraint in _SAYS_IT:
            confidence = CONFIGURED
        else:
            confidence = _A_SIGN  # a warning shows that something is so, not that it limits anything
        yield Finding(
            constraint,
            confidence,
            (
                f"“{event.text[:160]}”" + (f" ({event.count:,} times)" if event.count > 1 else ""),
                entry.meaning,
            ),
            ("the same message from a server that runs well",),
        )


def _ended(event: Event, sure: float) -> Finding:
    """An error that nothing caught, and nothing was measured after it."""
    return Finding(
        Constraint.SERVER_DOWN,
        sure,
        (f"“{event.text[:160]}” is the last that was seen of the server",),
        ("a later line of the same server with tokens in it",),
    )


def _is_last(view: View, event: Event) -> bool:
    """Whether nothing was measured after a failure that came once requests ran: the server ended with it.

    Where no measured line stands beside it at all, the failure is what the evidence is about.
    """
    if not len(view.server.seconds):
        return True
    if event.last_seconds is None:
        return False
    return event.last_seconds >= float(view.server.seconds[-1])


def _stalled(view: View) -> Iterator[Finding]:
    """Requests run, and for half a minute and more no token is read or made."""
    window = view.server.window
    if window is None or window.samples < 3 or window.whole_seconds < STALLED_SECONDS or not view.running:
        return
    columns = [view.seen(word) for word in ("output_tokens_per_s", "prefill_tokens_per_s")]
    told = [column for column in columns if len(column)]
    if len(told) < 2 or any(column[-3:].any() for column in told) or not view.seen("running")[-3:].all():
        return
    yield Finding(
        Constraint.SERVER_DOWN,
        COUNTED,
        (
            f"{view.running:,.0f} running, and over {window.whole_seconds:,.0f} s no token is "
            f"read or made: the server "
            "hangs",
        ),
        ("a later line with tokens in it",),
    )


def compiles(view: View) -> bool:
    """Whether kernels are compiled in the window, and it shows: rates climb, or people say that it passes."""
    if not any(_says_cold(view, event.id) for event in view.server.events):
        return False
    rates = view.seen("output_tokens_per_s")
    rates = rates[rates > 0]
    climbs = len(rates) >= 2 and float(rates[-1]) > 2 * float(rates[0])
    return climbs or any(claim.says(_PASSES) for claim in view.claims)


def _says_cold(view: View, id: str) -> bool:
    entry = meaning_of(view.server.engine, id)
    return entry is not None and entry.constraint is Constraint.COLD_START


def _compiling(view: View) -> Iterator[Finding]:
    """The window is no steady state: kernels are compiled in it."""
    if not compiles(view):
        return
    events = [event for event in view.server.events if _says_cold(view, event.id)]
    count = sum(event.count for event in events)
    rates = view.seen("output_tokens_per_s")
    rates = rates[rates > 0]
    evidence = [f"kernels are compiled while requests run: {count:,} × “{events[0].text[:100]}”"]
    if len(rates) >= 2:
        evidence.append(f"the rate goes from {rates[0]:,.1f} to {rates[-1]:,.1f} tok/s over the window")
    yield Finding(Constraint.COLD_START, COUNTED, tuple(evidence), ("the same rate half an hour later",))


def _clocks(view: View) -> Iterator[Finding]:
    value = view.server.value
    throttled = value("throttle_power_percent")
    lasting, least, now = value("sm_clock_mhz_sustained"), value("sm_clock_mhz_min"), value("sm_clock_mhz")
    celsius = value("gpu_temp_c")
    evidence = []
    sure = 0.0
    if throttled is not None and throttled > 5:
        evidence.append(f"throttled by power {throttled:,.0f} % of the time")
        sure = max(sure, COUNTED if throttled > 20 else CONFIGURED)
    clock = lasting if lasting is not None else now
    if clock is not None and 0 < clock < LOWEST_BASE_CLOCK_MHZ:
        evidence.append(f"the SMs run at {clock:,.0f} MHz under load, below the base clock of any such card")
        sure = max(sure, COUNTED)
    if clock and least is not None and least < 0.8 * clock and evidence:
        evidence.append(f"down to {least:,.0f} MHz")
    if celsius is not None and celsius >= TARGET_CELSIUS:
        evidence.append(f"{celsius:,.0f} °C")
        sure = max(sure, CONFIGURED if celsius >= HOT_CELSIUS else SUGGESTED)
    power, limit = value("gpu_power_w"), value("gpu_power_limit_w")
    if power is not None and limit is not None and limit > 0 and power >= 0.97 * limit:
        evidence.append(f"{power:,.0f} of {limit:,.0f} W are drawn: the limit holds the clock")
        sure = max(sure, 0.5)
    if not evidence:
        return
    yield Finding(
        Constraint.POWER_THERMAL,
        sure,
        tuple(evidence),
        ("the clock under the same load with better cooling or a higher limit: unchanged",),
    )


def _frontend(view: View) -> Iterator[Finding]:
    """Tokens reach the client much later than steps make them."""
    at_client = view.server.value("itl_p50_s_client")
    step = view.server.value("itl_s") or view.baseline.value("step_seconds")
    if at_client is None:
        return
    if step is not None and at_client > 2 * step:
        yield Finding(
            Constraint.FRONTEND,
            COUNTED,
            (
                f"the client sees a token each {at_client * 1e3:,.0f} ms, a step takes {step * 1e3:,.0f} "
                f"ms: what lies "
                "between is the server's front end or the way to the client",
            ),
            ("the same gap measured at the server's own socket",),
        )
    elif step is None:
        told = next(
            (claim for claim in view.claims if claim.says(r"client sees|scheduler log|far less")), None
        )
        if told is not None:
            yield Finding(
                Constraint.FRONTEND,
                CONFIGURED,
                (f"the client sees a token each {at_client * 1e3:,.0f} ms", f"as told: {told.text[:160]}"),
                ("the scheduler's own step time: as long as the client's gap",),
            )


def _grammar(view: View) -> Iterator[Finding]:
    if Sign.GRAMMAR in view.signs:
        yield Finding(
            Constraint.GRAMMAR,
            SUGGESTED - 0.1,
            (f"output is held to a grammar ({view.signs.words(Sign.GRAMMAR)})",),
            ("the same load without it: no faster",),
        )


def _endless(view: View) -> Iterator[Finding]:
    """One request runs on and on: no prompt comes in, its pool share only grows."""
    running = view.running
    told = next(
        (
            claim
            for claim in view.claims
            if claim.says(
                r"runs? for (?:about )?\w+ minutes|stays running for minutes|never (?:ends|stops)"
                r"|keeps? (?:on )?generating|do(?:es)? not stop|endless|without an? end"
                r"|repeats? (?:itself|the same)"
            )
        ),
        None,
    )
    usage = view.server.columns.get("kv_usage")
    rises = False
    if usage is not None:
        known = usage[np.isfinite(usage)]
        rises = bool(len(known) >= 3 and np.all(np.diff(known) >= 0) and known[-1] > known[0])
    prompts = view.server.value("prefill_tokens_per_s")
    made = (view.server.value("output_tokens_per_s") or 0.0) * (
        view.server.window.whole_seconds if view.server.window else 0.0
    )
    few = running is not None and 0 < running <= 2
    if few and rises and not prompts and made >= ENDLESS_TOKENS * (running or 1):
        yield Finding(
            Constraint.RUNAWAY_LENGTH,
            COUNTED,
            (f"{running:,.0f} running, no prompt comes in, and about {made:,.0f} tokens were made",),
            ("max_tokens of the request: it may be meant to be that long",),
        )
    elif told is not None and (few or running is None):
        yield Finding(
            Constraint.RUNAWAY_LENGTH,
            CONFIGURED if rises else SUGGESTED,
            (f"as told: {told.text[:160]}", *(("its share of the KV pool only grows",) if rises else ())),
            ("max_tokens of the request: it may be meant to be that long",),
        )
