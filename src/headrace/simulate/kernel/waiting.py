"""Queues of waiting requests: linked lists through a request's `after`."""

from __future__ import annotations

from headrace.simulate.kernel.compiled import compiled
from headrace.simulate.kernel.records import World


@compiled
def push_back(w: World, s: int, r: int) -> None:
    """Puts a request at the end of a scheduler's queue."""
    sch, request = w.schedulers[s], w.requests[r]
    request.after = -1
    if sch.waiting == 0:
        sch.first_waiting = r
    else:
        w.requests[sch.last_waiting].after = r
    sch.last_waiting = r
    sch.waiting += 1
    sch.waiting_tokens += request.input + request.made


@compiled
def push_front(w: World, s: int, r: int) -> None:
    """Puts a request at the head of a scheduler's queue."""
    sch, request = w.schedulers[s], w.requests[r]
    request.after = sch.first_waiting
    sch.first_waiting = r
    if sch.waiting == 0:
        sch.last_waiting = r
    sch.waiting += 1
    sch.waiting_tokens += request.input + request.made


@compiled
def pop_front(w: World, s: int) -> int:
    """Takes the head of a queue that is not empty."""
    sch = w.schedulers[s]
    r = sch.first_waiting
    request = w.requests[r]
    sch.first_waiting = request.after
    sch.waiting -= 1
    sch.waiting_tokens -= request.input + request.made
    if sch.waiting == 0:
        sch.first_waiting = -1
        sch.last_waiting = -1
    request.after = -1
    return int(r)


@compiled
def take_out(w: World, s: int, r: int) -> bool:
    """Takes a request out of the queue wherever it stands; False where it is not there."""
    sch, request = w.schedulers[s], w.requests[r]
    before = -1
    at = int(sch.first_waiting)
    while at >= 0 and at != r:
        before = at
        at = int(w.requests[at].after)
    if at < 0:
        return False
    if before < 0:
        sch.first_waiting = request.after
    else:
        w.requests[before].after = request.after
    if sch.last_waiting == r:
        sch.last_waiting = before
    sch.waiting -= 1
    sch.waiting_tokens -= request.input + request.made
    request.after = -1
    return True
