"""What slots hold of the KV pool, how long a batch fits into it, and the cache of shared prefixes."""

from __future__ import annotations

import math
from typing import Any

from headrace.simulate.kernel.compiled import compiled
from headrace.simulate.kernel.records import FRESH, KNOWN, World


@compiled
def pages_of(rule: Any, tokens: float) -> int:
    """Pages of a request's own tokens (those of a shared prefix excluded; below 0 counts as 0)."""
    pages = max(0, math.ceil(tokens))
    if rule.page_tokens > 1:
        pages = (pages + rule.page_tokens - 1) // rule.page_tokens
    held = rule.full_groups * pages + rule.fixed_pages
    if rule.window_groups > 0:
        held += rule.window_groups * min(pages, rule.window_pages)
    return int(held)


@compiled
def prefix_pages(rule: Any, tokens: float) -> int:
    """Pages of a shared prefix."""
    return int(pages_of(rule, tokens) - rule.fixed_pages)


@compiled
def shared_tokens(w: World, s: int, r: int) -> int:
    """Prefix tokens of a request that its group keeps once, in whole cache units; 0 without reuse."""
    request = w.requests[r]
    unit = w.rules[w.schedulers[s].kind].prefix_tokens
    if unit <= 0 or request.group < 0:
        return 0
    # the last prompt token is always computed
    longest = min(w.groups[s][request.group].tokens, request.input - 1)
    return int(max(0, longest // unit * unit))


@compiled
def stored_tokens(rule: Any, slot: Any) -> float:
    """Own tokens of a slot that are stored: the last token made is not yet, planned prefill is not yet."""
    stored = slot.input + slot.made - slot.todo - slot.shared
    if slot.todo == 0.0:
        stored += rule.lookahead_tokens - 1.0
    return float(stored)


@compiled
def pages_after(w: World, s: int, passes: int) -> int:
    """Pages in use (of all slots not yet freed, and of shared prefixes that somebody holds) once every slot
    has decoded that many passes more.
    """
    sch, slots = w.schedulers[s], w.slots[s]
    rule = w.rules[sch.kind]
    used = int(sch.shared_pages)
    for i in range(sch.slots):
        slot = slots[i]
        if slot.flag != KNOWN:
            used += pages_of(rule, stored_tokens(rule, slot) + slot.rate * passes)
    return used


@compiled
def passes_that_fit(w: World, s: int, limit: int) -> int:
    """Most decode passes in a row, up to `limit`, that the pool has room for."""
    pool = w.rules[w.schedulers[s].kind].pool_pages
    if pages_after(w, s, limit) <= pool:
        return limit
    low, high = 0, limit  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        if pages_after(w, s, middle) <= pool:
            low = middle
        else:
            high = middle
    return low


@compiled
def states_used(w: World, s: int) -> int:
    """State slots that are held: by phase, and a checkpoint where the prompt was long enough for one.

    Requests that share one checkpoint are not told apart: each counts its own.
    """
    sch, slots = w.schedulers[s], w.slots[s]
    rule = w.rules[sch.kind]
    held = 0
    for i in range(sch.slots):
        slot = slots[i]
        if slot.flag == KNOWN:
            continue
        if slot.todo > 0.0:
            held += rule.states_prefilling
        else:
            held += rule.states_decoding
            if rule.checkpoint_tokens > 0 and slot.input - slot.shared >= rule.checkpoint_tokens:
                held += 1
    return int(held)


@compiled
def prefix_hit(w: World, s: int, r: int) -> int:
    """Tokens of a request's prefix that are in the cache.

    The cache evicts what was used least recently. What nobody holds is gone once more went into the cache
    since its last use than the pool had free: once `touched` has come below the highest of (churn - free).
    """
    tokens = shared_tokens(w, s, r)
    if tokens == 0:
        return 0
    group = w.groups[s][w.requests[r].group]
    if group.held == 0 and group.touched < w.schedulers[s].evicted_below:
        group.ready = 0
    return tokens if group.ready == 1 else 0


@compiled
def note_evictions(w: World, s: int, passes: int) -> None:
    """Keeps up with what the cache has evicted when these decode passes are through."""
    sch = w.schedulers[s]
    rule = w.rules[sch.kind]
    if rule.prefix_tokens > 0:
        free = (rule.pool_pages - pages_after(w, s, passes)) * rule.page_tokens
        sch.evicted_below = max(sch.evicted_below, sch.churn - free)


@compiled
def hold_prefix(w: World, s: int, r: int) -> int:
    """A request comes into a slot: its group's prefix is in use. Returns the prefix's tokens."""
    tokens = shared_tokens(w, s, r)
    if tokens > 0:
        sch, group = w.schedulers[s], w.groups[s][w.requests[r].group]
        if group.held == 0:
            sch.shared_pages += prefix_pages(w.rules[sch.kind], float(tokens))
        group.held += 1
    return tokens


@compiled
def drop_prefix(w: World, s: int, r: int) -> None:
    """A request leaves its slot: its prefix may be evicted once nobody holds it."""
    tokens = shared_tokens(w, s, r)
    if tokens > 0:
        sch, group = w.schedulers[s], w.groups[s][w.requests[r].group]
        group.held -= 1
        group.touched = sch.churn
        if group.held == 0:
            sch.shared_pages -= prefix_pages(w.rules[sch.kind], float(tokens))


@compiled
def has_leavers(w: World, s: int) -> bool:
    """Whether a slot holds a finished request."""
    slots, leaving = w.slots[s], 0
    for i in range(w.schedulers[s].slots):
        leaving += slots[i].flag == FRESH or slots[i].flag == KNOWN
    return leaving > 0


@compiled
def move_slot(slots: Any, source: int, target: int) -> None:
    """Copies one slot over another."""
    old, new = slots[source], slots[target]
    new.request = old.request
    new.input = old.input
    new.asked = old.asked
    new.rate = old.rate
    new.shared = old.shared
    new.made = old.made
    new.todo = old.todo
    new.now = old.now
    new.left = old.left
    new.flag = old.flag


@compiled
def remove_known(w: World, s: int, start: int) -> int:
    """Takes freed slots from `start` on out of the list; returns how many."""
    sch, slots = w.schedulers[s], w.slots[s]
    kept = start
    for i in range(start, sch.slots):
        if slots[i].flag != KNOWN:
            if kept != i:
                move_slot(slots, i, kept)
            kept += 1
    removed = sch.slots - kept
    sch.slots = kept
    return int(removed)


@compiled
def take_slot(w: World, s: int, r: int, todo: float, now: float) -> None:
    """Puts a waiting request into the next slot, with `todo` tokens to prefill and `now` of them in this
    pass.
    """
    sch, request = w.schedulers[s], w.requests[r]
    slot = w.slots[s][sch.slots]
    slot.request = r
    slot.input = float(request.input)
    slot.asked = float(request.asked)
    slot.rate = float(request.rate)
    slot.made = request.made
    slot.todo = todo
    slot.now = now
    slot.left = 0
    slot.flag = 0
    slot.shared = float(hold_prefix(w, s, r))
    sch.slots += 1
