"""A whole fleet through a job: the client that feeds it, and the loop that goes from event to event.

One rule covers closed and open loop: a prompt is sent when it has arrived and a server has room; room is the
server's limit in flight (without end in open loop). At one moment the order is: passes end, the client acts,
schedulers compose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.simulate.kernel.compiled import compiled
from headrace.simulate.kernel.passes import begin, drop_all, end, submit
from headrace.simulate.kernel.records import BOUNDARY, C_CLIENT, C_IDLE, C_TAIL, DONE, IDLE, PENDING, World
from headrace.simulate.kernel.series import Series, sample

DOWN, UP, DRAINING = 0, 1, 2
# what can befall a server: it dies, comes up, is drained and restarted, or the whole fleet is, one by one
DIES, COMES_UP, DRAINS, ROLLS = 0, 1, 2, 3
# how `run` ends
ALL_DONE, PAUSED, STUCK, REACHED = 0, 1, 2, 3

SERVER: Mapping[str, Any] = {
    "queue": np.int64,  # where its prompts come from
    "room": np.int64,  # limit in flight now; it grows while a ramp lasts
    "in_flight": np.int64,
    "up": np.int64,
    "first_rank": np.int64,  # its schedulers, used in turn
    "ranks": np.int64,
    "next_rank": np.int64,
    "wake": np.float64,  # when it is up again after a restart; inf
}
CLIENT: Mapping[str, Any] = {
    "now": np.float64,  # below 0 before the first call
    "done": np.int64,
    "failed": np.int64,
    "delay_seconds": np.float64,  # from an answer to the next prompt's being sent
    "restart_seconds": np.float64,  # a server is away after it was drained
    "in_turn": np.int64,  # 1: servers take turns; 0: the one with the fewest in flight is next
    "last_server": np.int64,
    "ramp": np.int64,  # place in `ramp`
    "incident": np.int64,  # place in `incidents`
    "back": np.int64,  # head and count of the ring `back`
    "backs": np.int64,
    "retry": np.int64,  # requests lost with their server: head, tail and count of a list through `after`
    "retry_last": np.int64,
    "retries": np.int64,
    "rolling": np.int64,  # server that a rolling restart is at, or -1
}
QUEUE: Mapping[str, Any] = {"head": np.int64, "end": np.int64}  # of `order`
TIMED: Mapping[str, Any] = {"time": np.float64, "server": np.int64, "what": np.int64}


class Client(NamedTuple):
    """The client's side.

    Attributes:
        state: one record of CLIENT.
        servers, queues: records.
        order: requests in the order of sending.
        arrival: of the request at each place of `order`; empty when all are there from the start.
        server_of: of a scheduler.
        ramp: when a server's room grows by one; in order.
        incidents: in order.
        back: ring of slots that the client is about to fill again.
    """

    state: Any
    servers: Any
    queues: Any
    order: NDArray[np.int32]
    arrival: NDArray[np.float64]
    server_of: NDArray[np.int64]
    ramp: Any
    incidents: Any
    back: Any


@compiled
def has_prompt(c: Client, server: int, now: float) -> bool:
    """Whether a prompt for this server has arrived and waits to be sent."""
    if c.state[0].retries > 0:
        return True
    queue = c.queues[c.servers[server].queue]
    return bool(queue.head < queue.end and (len(c.arrival) == 0 or c.arrival[queue.head] <= now))


@compiled
def choose(c: Client, now: float) -> int:
    """The server that gets the next prompt, or -1: fewest in flight (lowest index), or in turn."""
    best = -1
    count = len(c.servers)
    in_turn = c.state[0].in_turn == 1
    for step in range(count):
        i = (c.state[0].last_server + 1 + step) % count if in_turn else step
        server = c.servers[i]
        if server.up == UP and server.in_flight < server.room and has_prompt(c, i, now):
            if in_turn:
                return int(i)
            if best < 0 or server.in_flight < c.servers[best].in_flight:
                best = i
    return int(best)


@compiled
def dispatch(w: World, c: Client, now: float) -> None:
    """Sends every prompt that has arrived while servers have room."""
    state = c.state[0]
    while True:
        i = choose(c, now)
        if i < 0:
            return
        server = c.servers[i]
        if state.retries > 0:
            r = int(state.retry)
            state.retry = w.requests[r].after
            state.retries -= 1
        else:
            queue = c.queues[server.queue]
            r = int(c.order[queue.head])
            queue.head += 1
        state.last_server = i
        server.in_flight += 1
        request = w.requests[r]
        request.server = i
        if np.isnan(request.submitted):
            request.submitted = now
        s = int(server.first_rank + server.next_rank)
        server.next_rank = (server.next_rank + 1) % server.ranks
        submit(w, s, r, now)


@compiled
def collect(w: World, c: Client, s: int, now: float, lost: bool) -> None:
    """Takes what has ended at a scheduler: places of the client come free, lost requests go back to it."""
    state, sch = c.state[0], w.schedulers[s]
    i = c.server_of[s]
    for at in range(sch.ended):
        r = int(w.ended[s, at])
        request = w.requests[r]
        if lost:
            request.outcome = PENDING
            request.made = 0.0
            request.finished = np.nan
            request.after = -1
            if state.retries == 0:
                state.retry = r
            else:
                w.requests[state.retry_last].after = r
            state.retry_last = r
            state.retries += 1
            c.servers[i].in_flight -= 1
            continue
        state.done += 1
        if request.outcome != DONE:
            state.failed += 1
        if state.delay_seconds > 0.0:
            place = c.back[(state.back + state.backs) % len(c.back)]
            place.time = now + state.delay_seconds
            place.server = i
            state.backs += 1
        else:
            c.servers[i].in_flight -= 1
    sch.ended = 0


@compiled
def empty_server(w: World, c: Client, i: int, now: float, out: Series) -> None:
    """A server goes down: its requests go back to the client, tokens of unfinished ones are lost."""
    server = c.servers[i]
    server.up = DOWN
    for s in range(server.first_rank, server.first_rank + server.ranks):
        sample(w, s, now, out)
        drop_all(w, s, now)
        collect(w, c, s, now, True)
        while w.schedulers[s].waiting > 0:
            drop_all(w, s, now)
            collect(w, c, s, now, True)


@compiled
def befall(w: World, c: Client, i: int, what: int, now: float, out: Series) -> None:
    """Applies one incident."""
    server = c.servers[i]
    if what == DIES:
        empty_server(w, c, i, now, out)
        server.wake = np.inf
    elif what == COMES_UP:
        server.up = UP
        server.wake = np.inf
    elif what == ROLLS:
        c.state[0].rolling = i
        server.up = DRAINING
    elif server.up == UP:
        server.up = DRAINING


@compiled
def client_acts(w: World, c: Client, now: float, out: Series) -> None:
    """Everything of the client's side that is due by `now`, except sending."""
    state = c.state[0]
    while state.ramp < len(c.ramp) and c.ramp[state.ramp].time <= now:
        c.servers[c.ramp[state.ramp].server].room += 1
        state.ramp += 1
    while state.backs > 0 and c.back[state.back].time <= now:
        c.servers[c.back[state.back].server].in_flight -= 1
        state.back = (state.back + 1) % len(c.back)
        state.backs -= 1
    while state.incident < len(c.incidents) and c.incidents[state.incident].time <= now:
        one = c.incidents[state.incident]
        state.incident += 1
        befall(w, c, one.server, one.what, now, out)
    for i in range(len(c.servers)):
        server = c.servers[i]
        if server.wake <= now:
            server.wake = np.inf
            server.up = UP
            if state.rolling == i:
                state.rolling = i + 1 if i + 1 < len(c.servers) else -1
                if state.rolling >= 0 and c.servers[i + 1].up == UP:
                    c.servers[i + 1].up = DRAINING
        if server.up == DRAINING and server.in_flight == 0:
            empty_server(w, c, i, now, out)
            server.wake = now + state.restart_seconds


@compiled
def next_time(w: World, c: Client) -> float:
    """The next moment at which something happens; inf when nothing will."""
    soonest = np.inf
    for s in range(len(w.schedulers)):
        soonest = min(soonest, w.schedulers[s].phase_end)
    state = c.state[0]
    if state.ramp < len(c.ramp):
        soonest = min(soonest, c.ramp[state.ramp].time)
    if state.backs > 0:
        soonest = min(soonest, c.back[state.back].time)
    if state.incident < len(c.incidents):
        soonest = min(soonest, c.incidents[state.incident].time)
    for i in range(len(c.servers)):
        soonest = min(soonest, c.servers[i].wake)
    if len(c.arrival) > 0:
        for q in range(len(c.queues)):
            queue = c.queues[q]
            if queue.head < queue.end and c.arrival[queue.head] > state.now:
                soonest = min(soonest, c.arrival[queue.head])
    return soonest


@compiled
def compose(w: World, c: Client, now: float, out: Series) -> bool:
    """Begins the next phase of every scheduler that stands between two, or idle with work.

    Returns True where a request was ended because it does not fit even alone: the client has a place free.
    """
    ended = False
    for s in range(len(w.schedulers)):
        sch = w.schedulers[s]
        if sch.phase == BOUNDARY or (sch.phase == IDLE and sch.waiting > 0):
            server = c.servers[c.server_of[s]]
            if server.up == DOWN:
                continue
            if sch.phase == IDLE:
                sample(w, s, now, out)
                w.cause_seconds[s, C_IDLE] += now - sch.phase_start
            begin(w, s, now)
            if sch.ended > 0:
                collect(w, c, s, now, False)
                ended = True
            queue = c.queues[server.queue]
            if sch.cause == C_CLIENT and queue.head >= queue.end:
                sch.cause = C_TAIL
    return ended


@compiled
def at_one_moment(w: World, c: Client, now: float, out: Series) -> None:
    """Client and schedulers at `now`, after passes have ended."""
    client_acts(w, c, now, out)
    dispatch(w, c, now)
    while compose(w, c, now, out):
        dispatch(w, c, now)


@compiled
def run(w: World, c: Client, out: Series, until: float, moments: int) -> int:
    """Runs the fleet until all is done, `until` is reached or so many moments have passed.

    Returns ALL_DONE, REACHED, PAUSED (call again), or STUCK: nothing will happen any more, yet requests are
    unfinished (one that never fits, or no server is up).
    """
    state = c.state[0]
    total = len(c.order)
    if state.now < 0.0:
        state.now = 0.0
        at_one_moment(w, c, 0.0, out)
    for _ in range(moments):
        if state.done >= total:
            return ALL_DONE
        now = next_time(w, c)
        if now > until or now == np.inf:
            if until == np.inf:
                return STUCK
            for s in range(len(w.schedulers)):
                sample(w, s, until, out)
            state.now = until
            return REACHED
        state.now = now
        for s in range(len(w.schedulers)):
            if w.schedulers[s].phase_end == now:
                sample(w, s, now, out)
                end(w, s)
                if w.schedulers[s].ended > 0:
                    collect(w, c, s, now, False)
        at_one_moment(w, c, now, out)
    return PAUSED
