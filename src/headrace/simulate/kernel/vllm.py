"""vLLM V1's scheduler: what the next step is (`Scheduler.schedule`).

One token budget per step. Running requests come first, in order: a decode lane takes its tokens, a prompt in
chunks what is left; where blocks run out the last running request is preempted and computed anew later. Then
waiting requests come in while budget, seats and blocks last, unless somebody was preempted in this step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.simulate.kernel.compiled import compiled
from headrace.simulate.kernel.pools import (
    drop_prefix,
    pages_after,
    pages_of,
    prefix_hit,
    prefix_pages,
    shared_tokens,
    stored_tokens,
    take_slot,
)
from headrace.simulate.kernel.records import FRESH, FULL_SLOTS, FULL_TOKENS, OPEN, World
from headrace.simulate.kernel.waiting import pop_front, push_front


@compiled
def aligned_chunk(rule: Any, computed: int, tokens: int, total: int) -> int:
    """Tokens of a prefill chunk where states are cached at block ends (`_mamba_block_aligned_split`)."""
    block = rule.align_tokens
    if block <= 0:
        return tokens
    last = total - total % block
    after = computed + tokens
    if after < last:
        return int(tokens // block * block)
    if computed < last and last < after:
        return int(last - computed)
    return tokens


@compiled
def preempt_last(w: World, s: int) -> int:
    """Drops the last running request's blocks and puts it at the head of the queue; returns the blocks."""
    sch = w.schedulers[s]
    rule = w.rules[sch.kind]
    sch.slots -= 1
    slot = w.slots[s][sch.slots]
    r = int(slot.request)
    shared = int(sch.shared_pages)
    drop_prefix(w, s, r)
    if slot.flag != FRESH:
        request = w.requests[r]
        request.made = slot.made
        request.retractions += 1
        sch.retracted += 1
        push_front(w, s, r)
    return int(pages_of(rule, stored_tokens(rule, slot)) + shared - sch.shared_pages)


@compiled
def next_pass(w: World, s: int, now: float) -> bool:
    """Composes vLLM's next step. Returns True where some prompt tokens are in it, False for decode alone."""
    sch, slots = w.schedulers[s], w.slots[s]
    rule = w.rules[sch.kind]
    free = int(rule.pool_pages - pages_after(w, s, 0))
    budget = int(rule.budget_tokens)
    prefills = 0
    preempted = False
    i = 0
    while i < sch.slots and budget > 0:
        slot = slots[i]
        held = stored_tokens(rule, slot)
        slot.now = 0.0
        if slot.todo == 0.0:
            wanted = held + slot.rate
            spent = int(rule.lane_tokens)
        else:
            todo = math.ceil(slot.todo)
            total = math.ceil(slot.input + slot.made)
            spent = aligned_chunk(rule, total - todo, min(todo, budget), total)
            if spent == 0:
                i += 1
                continue
            slot.now = float(spent) if spent < todo else slot.todo
            wanted = held + slot.now
        more = pages_of(rule, wanted) - pages_of(rule, held)
        gone = False
        while more > free and not gone:
            gone = sch.slots - 1 == i
            free += preempt_last(w, s)
            preempted = True
        if gone:
            break
        if slot.todo > 0.0:
            prefills += 1
        free -= more
        budget -= spent
        i += 1
    for j in range(i, sch.slots):
        slots[j].now = 0.0 if slots[j].todo > 0.0 else -1.0  # no budget is left for this lane
    sch.full = OPEN
    while sch.waiting > 0 and not preempted:  # after a preemption the next step looks again
        if sch.slots >= rule.cap:
            sch.full = FULL_SLOTS
            break
        if budget <= 0:
            sch.full = FULL_TOKENS
            break
        r = int(sch.first_waiting)
        request = w.requests[r]
        hit = prefix_hit(w, s, r)
        exact = request.input + request.made - hit
        todo = math.ceil(exact)
        take = aligned_chunk(rule, hit, min(todo, budget), todo + hit)
        now_tokens = float(take) if take < todo else exact
        prefix = shared_tokens(w, s, r)
        own = float(hit - prefix)
        shared = 0
        if prefix > 0 and w.groups[s][request.group].held == 0:
            shared = prefix_pages(rule, float(prefix))
        needed = exact if rule.reserve_full == 1 else now_tokens
        if take == 0 or pages_of(rule, own + needed) + shared > free:
            sch.full = FULL_TOKENS
            break
        pop_front(w, s)
        take_slot(w, s, r, exact, now_tokens)
        free -= pages_of(rule, own + now_tokens) + shared
        sch.cached += hit
        if np.isnan(request.admitted):
            request.admitted = now
        budget -= take
        prefills += 1
    sch.decoding = sch.slots
    return prefills > 0
