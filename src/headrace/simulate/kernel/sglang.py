"""SGLang's scheduler: what the next pass is (`get_next_batch_to_run`), admission and retraction.

The numbers come with the rules, see `engines/sglang/schedule.py`. The order is the engine's: prefill where it
can (finished requests still count as running there), else the finished ones are filtered out and the rest
decodes, after retraction where the next pass does not fit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.simulate.kernel.compiled import compiled
from headrace.simulate.kernel.pools import (
    drop_prefix,
    move_slot,
    pages_after,
    prefix_hit,
    remove_known,
    take_slot,
)
from headrace.simulate.kernel.records import (
    FRESH,
    FULL_SLOTS,
    FULL_TOKENS,
    OPEN,
    OUT_OF_MEMORY,
    World,
)
from headrace.simulate.kernel.waiting import pop_front, push_back


@compiled
def token_ratio(rule: Any, sch: Any) -> float:
    """new_token_ratio: from where it was last set, down in equal steps to its floor."""
    if sch.ratio_steps <= 0:
        return float(sch.ratio_start)
    step = (rule.init_ratio - rule.min_ratio) / rule.decay_steps
    return float(max(sch.ratio_start - sch.ratio_steps * step, rule.min_ratio))


@compiled
def whole_pages(rule: Any, tokens: int) -> int:
    """Tokens rounded up to whole pages."""
    return int((tokens + rule.page_tokens - 1) // rule.page_tokens * rule.page_tokens)


@compiled
def insert_estimate(left: Any, occupied: Any, count: int, place: int, tokens: float, size: float) -> None:
    """Puts an entry in at a place; those behind it move back."""
    for at in range(count, place, -1):
        left[at] = left[at - 1]
        occupied[at] = occupied[at - 1]
    left[place] = tokens
    occupied[place] = size


@compiled
def lasts_without_eos(
    w: World, s: int, r: int, free: float, paged: int, known: int, left: Any, occupied: Any
) -> int:
    """Whether memory lasts if everybody runs to max_new_tokens (`add_one_req_ignore_eos`).

    `left` and `occupied` hold what each still makes and what its end frees, the first to end first; `known`
    is how many entries they have, -1 before the first call of a pass. Returns the new count, or -1 - count
    where memory does not last.
    """
    sch, slots, request = w.schedulers[s], w.slots[s], w.requests[r]
    tokens = float(request.asked) - request.made
    size = request.input + request.made
    count = known
    if known < 0:
        count = 0
        if tokens > 0.0:
            insert_estimate(left, occupied, 0, 0, tokens, size)
            count = 1
        for i in range(sch.slots):
            tokens = slots[i].asked - slots[i].made
            if tokens > 0.0:
                place = count
                while place > 0 and left[place - 1] > tokens:
                    place -= 1
                insert_estimate(left, occupied, count, place, tokens, slots[i].input + slots[i].made)
                count += 1
    elif tokens > 0.0:
        place = 0  # before the first not below it; if all are, before the last: so does the engine
        while place < count - 1 and tokens > left[place]:
            place += 1
        insert_estimate(left, occupied, count, place, tokens, size)
        count += 1
    remaining = free - paged
    reserve = w.rules[sch.kind].eos_reserve_tokens
    for i in range(count):
        batch = count - i
        if remaining - left[i] * batch <= reserve * batch:
            return -1 - count
        remaining += occupied[i]
    return count


@compiled
def admit(w: World, s: int, now: float) -> int:
    """Fills a prefill pass (`PrefillAdder`): slots behind the decoding ones. Returns its requests."""
    sch, slots = w.schedulers[s], w.slots[s]
    rule = w.rules[sch.kind]
    page, n_run, n_new = rule.page_tokens, sch.decoding, 0
    clip = float(rule.clip_tokens)
    ratio = token_ratio(rule, sch)
    reserved = 0.0  # rem_total_token_offset
    for i in range(n_run):
        reserved += min(slots[i].asked - slots[i].made, clip) * ratio
    free = float((rule.pool_pages - pages_after(w, s, 0)) * page)
    taken = 0.0  # cur_rem_token_offset
    input_left = rule.prefill_tokens
    chunk_left = rule.chunk_tokens
    estimates = len(slots) + 1 if rule.eos_ignored == 1 else 1
    left, occupied = np.empty(estimates), np.empty(estimates)
    known = -1
    if sch.slots > n_run:  # the one request in chunks goes on
        slot = slots[n_run]
        room = min(chunk_left, int(free - reserved))
        if room <= 0:
            room = chunk_left
        todo = math.ceil(slot.todo)
        take = min(todo, room)
        slot.now = float(take) if take < todo else slot.todo
        paged = whole_pages(rule, take)
        reserved += paged + page
        if take == todo:
            reserved += min(slot.asked, clip)
        taken += paged + page
        input_left -= paged
        chunk_left -= paged
        n_new = 1
    while sch.waiting > 0:
        if n_new >= rule.cap - n_run:
            sch.full = FULL_SLOTS
        if sch.full != OPEN:
            break
        r = int(sch.first_waiting)
        request = w.requests[r]
        hit = prefix_hit(w, s, r)
        available = free
        if hit > 0 and w.groups[s][request.group].held == 0:
            available -= hit
        exact = request.input + request.made - hit
        extend = math.ceil(exact)
        take = extend
        paged = whole_pages(rule, extend)
        if rule.eos_ignored == 1:
            if paged > min(available - taken, available - reserved):
                sch.full = FULL_TOKENS
                break
            known = lasts_without_eos(w, s, r, available - taken, paged, known, left, occupied)
            if known < 0:
                sch.full = FULL_TOKENS
                break
            if extend > chunk_left:
                if chunk_left <= 0:
                    break
                take = int(chunk_left)
        else:
            ahead = min(max(request.asked - request.made, 0.0), clip)
            if extend + ahead + page >= available - reserved:
                sch.full = FULL_TOKENS
                break
            if paged >= input_left and n_new > 0:
                break
            if paged > chunk_left:
                take = int((chunk_left // page * page + hit) // page * page - hit)
                if chunk_left < page or take <= 0:
                    break
        pop_front(w, s)
        take_slot(w, s, r, exact, float(take) if take < extend else exact)
        n_new += 1
        sch.cached += hit
        if np.isnan(request.admitted):
            request.admitted = now
        free = available
        paged = whole_pages(rule, take)
        reserved += paged + page
        if take == extend:
            reserved += min(float(request.asked), clip)
        taken += paged + page
        input_left -= paged
        chunk_left -= paged
        if free - reserved <= 0.0 or free - taken <= 0.0:
            sch.full = FULL_TOKENS
            break
        if input_left <= 0 or chunk_left <= 0:
            break
    return n_new


@compiled
def sort_for_retraction(slots: Any, count: int) -> None:
    """Orders the batch as `retract_decode` does: most made first, then the shortest prompt; it stays so."""
    spare = len(slots) - 1
    for i in range(1, count):
        move_slot(slots, i, spare)
        one = slots[spare]
        at = i
        while at > 0 and (
            slots[at - 1].made < one.made
            or (slots[at - 1].made == one.made and slots[at - 1].input > one.input)
        ):
            move_slot(slots, at - 1, at)
            at -= 1
        move_slot(slots, spare, at)


@compiled
def end_request(w: World, s: int, r: int, made: float, outcome: int, now: float) -> None:
    """Notes the end of a request that did not finish, and hands it out."""
    sch, request = w.schedulers[s], w.requests[r]
    request.outcome = outcome
    request.made = made
    request.finished = now
    sch.lost += made
    w.ended[s, sch.ended] = r
    sch.ended += 1


@compiled
def retract(w: World, s: int, now: float) -> None:
    """Takes requests back into the queue until the next pass fits, and estimates the ratio anew.

    The last one that does not fit alone is ended.
    """
    sch, slots = w.schedulers[s], w.slots[s]
    rule = w.rules[sch.kind]
    if rule.lookahead_tokens == 0:  # with drafts the batch can only be cut from its end
        sort_for_retraction(slots, sch.slots)
    first = True
    while first or pages_after(w, s, 1) > rule.pool_pages:
        if sch.slots == 1:
            break
        first = False
        sch.slots -= 1
        slot = slots[sch.slots]
        r = int(slot.request)
        drop_prefix(w, s, r)
        if slot.flag == FRESH:
            continue  # its answer is complete
        request = w.requests[r]
        request.made = slot.made
        request.retractions += 1
        sch.retracted += 1
        push_back(w, s, r)
    if sch.slots == 1 and pages_after(w, s, 1) > rule.pool_pages:
        r = int(slots[0].request)
        drop_prefix(w, s, r)
        if slots[0].flag != FRESH:
            end_request(w, s, r, slots[0].made, OUT_OF_MEMORY, now)
        sch.slots = 0
    made = 0.0
    asked = 0.0
    for i in range(sch.slots):
        made += slots[i].made
        asked += slots[i].asked
    sch.ratio_start = min(1.0, (made + rule.retract_steps * sch.slots) / (asked + 1.0))
    sch.ratio_steps = -1  # the pass that follows does not decay it
    sch.decoding = sch.slots


@compiled
def next_pass(w: World, s: int, now: float) -> bool:
    """Composes SGLang's next pass. Returns True for a prefill, False for decode of what is in the slots."""
    sch = w.schedulers[s]
    rule = w.rules[sch.kind]
    if sch.ratio_steps < 0:
        sch.ratio_steps = 0
    for _ in range(2):
        in_chunks = sch.slots > sch.decoding
        may = rule.prefill_first == 1 or sch.decoding == 0 or in_chunks
        if may and ((sch.full == OPEN and sch.waiting > 0) or in_chunks):
            if rule.cap - sch.decoding <= 0 and not in_chunks:
                sch.full = FULL_SLOTS
            elif admit(w, s, now) > 0:
                return True
        if sch.decoding > 0 or sch.slots == 0:
            before = sch.slots
            remove_known(w, s, 0)
            sch.decoding = sch.slots
            if sch.slots > 0 and pages_after(w, s, 1) > rule.pool_pages:
                retract(w, s, now)
            if sch.slots < before or sch.slots == 0:
                sch.full = OPEN
        if sch.slots > 0 or sch.waiting == 0:
            return False
    return False
