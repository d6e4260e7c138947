"""One scheduler through time: begin a phase, end it, cut it short, submit, abort, drop everything.

A phase is a pass with prefill, or a stretch of decode passes over which nothing changes but lengths. These
are what a fleet's loop (`fleet`) and a single emulated server (`simulate.live_scheduler`) are both made of.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.simulate.kernel import sglang, vllm
from headrace.simulate.kernel.compiled import compiled
from headrace.simulate.kernel.pools import (
    drop_prefix,
    has_leavers,
    note_evictions,
    passes_that_fit,
    remove_known,
)
from headrace.simulate.kernel.records import (
    ABORTED,
    ABORTING,
    BOUNDARY,
    C_CLIENT,
    C_IDLE,
    C_PREFILL,
    C_SLOTS,
    C_TOKENS,
    DECODE,
    DONE,
    FRESH,
    FULL_SLOTS,
    IDLE,
    KNOWN,
    OPEN,
    PREFILL,
    RUNNING,
    SGLANG,
    World,
)
from headrace.simulate.kernel.seconds import prefill_seconds, seconds_of, whole_steps
from headrace.simulate.kernel.waiting import pop_front, push_back, take_out

sglang_pass = sglang.next_pass
vllm_pass = vllm.next_pass
end_request = sglang.end_request


@compiled
def decode_cause(rule: Any, sch: Any) -> int:
    """What keeps more requests from running in this phase."""
    if sch.waiting == 0:
        return C_CLIENT
    if sch.full == FULL_SLOTS or sch.slots >= rule.cap:
        return C_SLOTS
    return C_TOKENS


@compiled
def go_idle(w: World, s: int, now: float) -> None:
    """Nothing runs."""
    sch = w.schedulers[s]
    sch.phase = IDLE
    sch.phase_start = now
    sch.phase_end = np.inf
    sch.cause = C_IDLE
    sch.steps = 0
    if sch.waiting == 0:
        sch.ratio_start = w.rules[sch.kind].init_ratio
        sch.ratio_steps = 0


@compiled
def begin(w: World, s: int, now: float) -> None:
    """Composes the next pass and starts it, or a stretch of decode passes, or goes idle."""
    sch, slots = w.schedulers[s], w.slots[s]
    rule = w.rules[sch.kind]
    is_sglang = rule.engine == SGLANG
    prefill = sglang_pass(w, s, now) if is_sglang else vllm_pass(w, s, now)
    if sch.slots == 0:
        go_idle(w, s, now)
        return
    sch.phase_start = now
    lanes = 0
    context = 0.0
    growth = 0.0
    least = 1 << 40
    for i in range(sch.decoding):
        slot = slots[i]
        if slot.todo == 0.0 and slot.now == 0.0:
            lanes += 1
            context += slot.input + slot.made
            growth += slot.rate
            least = min(least, slot.left)
    decode = w.decode_fixed[sch.kind, lanes] + w.decode_context[sch.kind, lanes] * context
    sch.cause = decode_cause(rule, sch)
    if prefill:
        sch.phase = PREFILL
        sch.steps = 1
        sch.quadratic = 0.0
        sch.prefill_part = prefill_seconds(w, s)
        if is_sglang or lanes == 0:
            sch.prefill_part = max(rule.prefill_floor, sch.prefill_part + rule.prefill_fixed)
            sch.cause = C_PREFILL
            sch.linear = sch.prefill_part
        else:
            sch.prefill_part = max(0.0, sch.prefill_part + rule.mixed_fixed)
            sch.linear = decode + sch.prefill_part
        sch.phase_end = now + sch.linear
        return
    sch.phase = DECODE
    sch.prefill_part = 0.0
    sch.quadratic = w.decode_context[sch.kind, lanes] * growth / 2.0
    sch.linear = decode - sch.quadratic
    single = has_leavers(w, s) or (sch.waiting > 0 and sch.full == OPEN) or lanes < sch.slots
    sch.steps = 1 if single else max(1, passes_that_fit(w, s, least))
    sch.phase_end = now + seconds_of(sch, sch.steps)


@compiled
def free_slot(w: World, s: int, i: int) -> None:
    """The scheduler learns that a request has ended: its pages are free, its tokens are in the cache."""
    sch, slot = w.schedulers[s], w.slots[s][i]
    slot.flag = KNOWN
    if w.rules[sch.kind].prefix_tokens > 0:
        sch.churn += slot.input + slot.made - 1.0 - slot.shared
    drop_prefix(w, s, int(slot.request))


@compiled
def finish_slot(w: World, s: int, i: int, at: float) -> None:
    """A slot's request has made its last token with the pass that ends `at`."""
    sch, slot = w.schedulers[s], w.slots[s][i]
    request = w.requests[slot.request]
    request.outcome = DONE
    request.made = slot.made
    request.finished = at
    sch.completed += slot.made
    w.ended[s, sch.ended] = slot.request
    sch.ended += 1
    if w.rules[sch.kind].lag == 1:
        slot.flag = FRESH
    else:
        free_slot(w, s, i)


@compiled
def abort_slot(w: World, s: int, i: int, at: float) -> None:
    """A slot's request ends unfinished."""
    slot = w.slots[s][i]
    end_request(w, s, int(slot.request), slot.made, ABORTED, at)
    free_slot(w, s, i)


@compiled
def token_made(w: World, s: int, i: int, at: float) -> None:
    """A slot's prefill is complete: its next token is there, and its decode passes are counted out."""
    sch, slot = w.schedulers[s], w.slots[s][i]
    request = w.requests[slot.request]
    made = min(slot.made + 1.0, float(request.output))
    sch.generated += made - slot.made
    sch.firsts += 1
    slot.made = made
    slot.todo = 0.0
    slot.left = math.ceil((request.output - made) / slot.rate)
    if np.isnan(request.first_token):
        request.first_token = at
    if request.group >= 0:
        group = w.groups[s][request.group]
        group.ready = 1
        group.touched = sch.churn


@compiled
def decode_slot(w: World, s: int, i: int, steps: int) -> None:
    """A slot makes the tokens of so many passes."""
    sch, slot = w.schedulers[s], w.slots[s][i]
    slot.left -= steps
    made = float(w.requests[slot.request].output) if slot.left <= 0 else slot.made + slot.rate * steps
    sch.generated += made - slot.made
    slot.made = made


@compiled
def end(w: World, s: int) -> None:
    """Applies the present phase as a whole: lengths grow, prompts become batch members, requests end."""
    sch, slots = w.schedulers[s], w.slots[s]
    at = float(sch.phase_end)
    steps = int(sch.steps)
    prefill = sch.phase == PREFILL
    is_sglang = w.rules[sch.kind].engine == SGLANG
    w.cause_seconds[s, C_PREFILL] += sch.prefill_part
    w.cause_seconds[s, sch.cause] += at - sch.phase_start - sch.prefill_part
    sch.prefill_part = 0.0
    sch.passes += steps
    if prefill:
        sch.prefills += 1
    else:
        sch.ratio_steps += steps
        note_evictions(w, s, steps)
    merged = int(sch.decoding)
    for i in range(sch.slots):
        slot = slots[i]
        if slot.flag == FRESH:
            free_slot(w, s, i)
            continue
        if slot.flag == KNOWN:
            continue
        if slot.now > 0.0:
            sch.prefilled += slot.now
            slot.todo -= slot.now
            slot.now = 0.0
            if slot.todo <= 0.0:
                token_made(w, s, i, at)
                if slot.left <= 0:
                    finish_slot(w, s, i, at)
        elif slot.now < 0.0:
            slot.now = 0.0
        elif slot.todo == 0.0 and not (prefill and is_sglang):
            decode_slot(w, s, i, steps)
            if slot.left <= 0:
                finish_slot(w, s, i, at)
        if sch.stopping > 0 and w.requests[slot.request].outcome == ABORTING:
            abort_slot(w, s, i, at)
    sch.stopping = 0
    if not is_sglang:
        remove_known(w, s, 0)
        sch.decoding = sch.slots
    elif prefill:
        if remove_known(w, s, merged) > 0:
            sch.full = OPEN
        in_chunks = sch.slots > merged and slots[sch.slots - 1].todo > 0.0
        sch.decoding = sch.slots - 1 if in_chunks else sch.slots
    sch.phase = BOUNDARY
    sch.phase_start = at
    sch.phase_end = np.inf


@compiled
def cut(w: World, s: int, now: float) -> None:
    """Ends a decode stretch with the pass that is under way at `now`."""
    sch = w.schedulers[s]
    if sch.phase != DECODE:
        return
    steps = whole_steps(sch, now)
    if sch.phase_start + seconds_of(sch, steps) < now:
        steps += 1
    if steps == 0:  # it has only just begun: nothing has happened yet
        sch.phase = BOUNDARY
        sch.phase_end = np.inf
    elif steps < sch.steps:
        sch.steps = steps
        sch.phase_end = sch.phase_start + seconds_of(sch, steps)


@compiled
def may_join(rule: Any, sch: Any) -> bool:
    """Whether the head of the queue could be admitted at the next boundary."""
    if rule.engine == SGLANG:
        if rule.prefill_first == 0 and sch.decoding > 0:
            return False
        return bool(sch.full == OPEN and sch.decoding < rule.cap)
    return bool(sch.slots < rule.cap)


@compiled
def split_cause(w: World, s: int, now: float) -> None:
    """The client has caught up in the middle of a stretch: from here on the server's own limit binds."""
    sch = w.schedulers[s]
    before = now - sch.phase_start
    full = sch.full == FULL_SLOTS or sch.slots >= w.rules[sch.kind].cap
    later = C_SLOTS if full else C_TOKENS
    # `end` gives the whole phase to the later cause: what belongs to the former one is moved now
    w.cause_seconds[s, sch.cause] += before
    w.cause_seconds[s, later] -= before
    sch.cause = later


@compiled
def submit(w: World, s: int, r: int, now: float) -> None:
    """Puts a request in the queue at `now`; a decode stretch that it could join is cut."""
    sch = w.schedulers[s]
    alone = sch.waiting == 0
    w.requests[r].outcome = 0
    push_back(w, s, r)
    if alone and may_join(w.rules[sch.kind], sch):
        cut(w, s, now)
    elif alone and sch.phase == DECODE:
        split_cause(w, s, now)


@compiled
def abort(w: World, s: int, r: int, now: float) -> None:
    """Ends a request early: in the queue at once, in the batch with the pass under way."""
    sch, slots = w.schedulers[s], w.slots[s]
    rule = w.rules[sch.kind]
    if take_out(w, s, r):
        end_request(w, s, r, w.requests[r].made, ABORTED, now)
        if np.isnan(w.requests[r].admitted):
            w.requests[r].admitted = now
        if sch.waiting > 0 and may_join(rule, sch):
            cut(w, s, now)
        return
    for i in range(sch.slots):
        if slots[i].request == r and slots[i].flag == RUNNING:
            cut(w, s, now)
            if sch.phase != BOUNDARY:
                w.requests[r].outcome = ABORTING
                sch.stopping += 1
                return
            abort_slot(w, s, i, now)
            if rule.engine != SGLANG:
                remove_known(w, s, 0)
                sch.decoding = sch.slots
            return


@compiled
def drop_all(w: World, s: int, now: float) -> None:
    """The server is gone: what is in it ends as ABORTED, and what whole passes had made is lost.

    As many waiting requests end as the row of ended ones has room for: collect them and call again.
    """
    sch, slots = w.schedulers[s], w.slots[s]
    if sch.phase == DECODE:
        steps = whole_steps(sch, now)
        if steps > 0:
            sch.steps = min(steps, int(sch.steps))
            sch.phase_end = now
            end(w, s)
    w.cause_seconds[s, sch.cause] += now - sch.phase_start
    for i in range(sch.slots):
        slot = slots[i]
        if slot.flag != KNOWN:
            drop_prefix(w, s, int(slot.request))
        if slot.flag == RUNNING:
            end_request(w, s, int(slot.request), slot.made, ABORTED, now)
    sch.slots = 0
    sch.decoding = 0
    while sch.waiting > 0 and sch.ended < w.ended.shape[1]:
        r = pop_front(w, s)
        end_request(w, s, r, w.requests[r].made, ABORTED, now)
    sch.full = OPEN
    sch.stopping = 0
    sch.prefill_part = 0.0
    for g in range(len(w.groups[s])):
        w.groups[s][g].ready = 0
    go_idle(w, s, now)
