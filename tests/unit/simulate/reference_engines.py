"""A plain reference of two schedulers and a client: every decode pass is walked, every list is searched.

Written from the engines' own code (SGLang 0.5.12 `scheduler.py`, `schedule_policy.py`,
`schedule_batch.py`; vLLM
`v1/core/sched/scheduler.py`) and the facts about them, with its own numbers. It shares nothing with the
kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

INFINITY = float("inf")


@dataclass(eq=False)
class Prompt:
    """A request and what became of it."""

    number: int
    input: int
    output: int
    asked: int
    rate: float = 1.0
    group: int = -1
    arrival: float = 0.0
    made: float = 0.0
    server: int = -1
    retractions: int = 0
    outcome: str = "pending"
    submitted: float | None = None
    admitted: float | None = None
    first_token: float | None = None
    finished: float | None = None


@dataclass(eq=False)
class Seat:
    """A request inside a scheduler."""

    prompt: Prompt
    made: float
    todo: float
    shared: int
    planned: float = 0.0
    finished: bool = False
    read: bool = False  # the scheduler has seen that it finished


@dataclass
class Costs:
    decode_fixed: list[float]
    decode_context: list[float]
    prefill_fixed: float
    per_token: float
    per_token_context: float
    per_sequence: float
    mixed_fixed: float
    floor: float

    def decode(self, seats: list[Seat]) -> float:
        context = sum(seat.prompt.input + seat.made for seat in seats)
        return self.decode_fixed[len(seats)] + self.decode_context[len(seats)] * context

    def prompts(self, seats: list[Seat]) -> float:
        seconds = 0.0
        for seat in seats:
            before = seat.prompt.input + seat.made - seat.todo
            seconds += self.per_token * seat.planned + self.per_sequence
            seconds += self.per_token_context * seat.planned * (before + seat.planned / 2)
        return seconds


@dataclass
class Cache:
    """Shared prefixes of one scheduler."""

    unit: int
    lengths: list[int]
    ready: dict[int, bool] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    touched: dict[int, float] = field(default_factory=dict)
    inserted: float = 0.0

    def length(self, prompt: Prompt) -> int:
        if self.unit == 0 or prompt.group < 0:
            return 0
        return min(self.lengths[prompt.group], prompt.input - 1) // self.unit * self.unit

    def squeeze(self, free: float) -> None:
        """So much is free: the newest tokens of the cache fit into it, older ones are evicted for good."""
        for group, touched in self.touched.items():
            if self.held.get(group, 0) == 0 and self.inserted - touched > free:
                self.ready[group] = False

    def found(self, prompt: Prompt) -> int:
        return self.length(prompt) if self.ready.get(prompt.group) else 0

    def take(self, prompt: Prompt) -> None:
        if self.length(prompt):
            self.held[prompt.group] = self.held.get(prompt.group, 0) + 1

    def leave(self, prompt: Prompt) -> None:
        if self.length(prompt):
            self.held[prompt.group] -= 1
            self.touched[prompt.group] = self.inserted

    def kept(self) -> list[int]:
        """Lengths of the prefixes that somebody holds (one kind of length per group)."""
        return [self.lengths[g] // self.unit * self.unit for g, count in self.held.items() if count > 0]


class Scheduler:
    """What both engines have: a queue, seats, the pass under way."""

    def __init__(self, costs: Costs, cap: int, overlap: bool, cache: Cache) -> None:
        self.costs, self.cap, self.overlap, self.cache = costs, cap, overlap, cache
        self.waiting: list[Prompt] = []
        self.seats: list[Seat] = []
        self.decoders: list[Seat] = []
        self.prompts: list[Seat] = []
        self.ends: float | None = None
        self.ended: list[Prompt] = []
        self.tokens = 0.0

    def sit(self, prompt: Prompt, found: int, now: float) -> Seat:
        seat = Seat(prompt, prompt.made, prompt.input + prompt.made - found, self.cache.length(prompt))
        self.cache.take(prompt)
        if prompt.admitted is None:
            prompt.admitted = now
        return seat

    def finish(self, seat: Seat, now: float) -> None:
        seat.finished = True
        seat.made = float(seat.prompt.output)
        seat.prompt.outcome, seat.prompt.finished, seat.prompt.made = "done", now, seat.made
        self.ended.append(seat.prompt)
        if not self.overlap:
            self.read(seat)

    def read(self, seat: Seat) -> None:
        seat.read = True
        if self.cache.unit:
            self.cache.inserted += seat.prompt.input + seat.made - 1 - seat.shared
        self.cache.leave(seat.prompt)

    def pass_ends(self, now: float) -> None:
        """One pass is over: tokens are made, requests finish, results of the pass before are read."""
        if not self.prompts and self.cache.unit:
            self.cache.squeeze(self.free_after_pass())
        for seat in self.all_seats():
            if seat.finished and not seat.read:
                self.read(seat)
            elif seat in self.prompts:
                seat.todo -= seat.planned
                seat.planned = 0.0
                if seat.todo <= 0:
                    self.tokens += min(seat.made + 1, seat.prompt.output) - seat.made
                    seat.made = min(seat.made + 1, float(seat.prompt.output))
                    if seat.prompt.first_token is None:
                        seat.prompt.first_token = now
                    if seat.prompt.group >= 0:
                        self.cache.ready[seat.prompt.group] = True
                        self.cache.touched[seat.prompt.group] = self.cache.inserted
                    if seat.made >= seat.prompt.output:
                        self.finish(seat, now)
            elif seat in self.decoders:
                before = seat.made
                seat.made += seat.prompt.rate
                if seat.made >= seat.prompt.output:
                    self.finish(seat, now)
                self.tokens += seat.made - before
        self.ends = None
        self.pass_over()

    def all_seats(self) -> list[Seat]:
        raise NotImplementedError

    def pass_over(self) -> None:
        raise NotImplementedError

    def free_after_pass(self) -> float:
        raise NotImplementedError

    def compose(self, now: float) -> None:
        raise NotImplementedError

    def dies(self) -> list[Prompt]:
        lost = [seat.prompt for seat in self.all_seats() if not seat.finished] + self.waiting
        self.__init__(self.costs, self.cap, self.overlap, Cache(self.cache.unit, self.cache.lengths))  # type: ignore[misc]
        return lost


class Sglang(Scheduler):
    """SGLang: prefill first, admission by new_token_ratio, retraction."""

    pool, page, chunk, conservativeness, ignore_eos, drafts = 0, 1, 10**9, 1.0, False, 0

    def __init__(self, costs: Costs, cap: int, overlap: bool, cache: Cache) -> None:
        super().__init__(costs, cap, overlap, cache)
        self.running: list[Seat] = []
        self.chunked: Seat | None = None
        self.full = False
        self.ratio = min(0.7 * self.conservativeness, 1.0)
        self.steps = 0

    def all_seats(self) -> list[Seat]:
        return (
            self.running
            + [seat for seat in self.prompts if seat not in self.running]
            + ([self.chunked] if self.chunked and self.chunked not in self.prompts else [])
        )

    def whole(self, tokens: float) -> int:
        return math.ceil(math.ceil(tokens) / self.page) * self.page

    def stored(self, seat: Seat, ahead: float = 0.0) -> int:
        tokens = seat.prompt.input + seat.made - seat.todo - seat.shared + ahead
        if seat.todo == 0:
            tokens += self.drafts - 1
        return self.whole(max(0.0, tokens))

    def used(self, seats: list[Seat], passes: int = 0) -> int:
        kept = sum(self.whole(length) for length in self.cache.kept())
        return kept + sum(self.stored(s, s.prompt.rate * passes) for s in seats if not s.read)

    def free_after_pass(self) -> float:
        return self.pool // self.page * self.page - self.used(self.running, 1)

    def compose(self, now: float) -> None:
        for _ in range(2):
            self.prompts, self.decoders = [], []
            if self.fill(now):
                seconds = self.costs.prefill_fixed + self.costs.prompts(self.prompts)
                self.ends = now + max(seconds, self.costs.floor)
                return
            if self.decode(now):
                self.ends = now + self.costs.decode(self.running)
                self.decoders = list(self.running)
                return
            if not self.waiting:
                self.ratio, self.steps = min(0.7 * self.conservativeness, 1.0), 0
                return

    def reserve(self, seat: Seat) -> float:
        return min(seat.prompt.asked - seat.made, 4096) * self.current_ratio()

    def current_ratio(self) -> float:
        top = min(0.7 * self.conservativeness, 1.0)
        return (
            max(self.ratio - self.steps * ((top - top * 0.14) / 600), top * 0.14)
            if self.steps > 0
            else self.ratio
        )

    def fill(self, now: float) -> bool:
        if (self.full or not self.waiting) and self.chunked is None:
            return False
        if len(self.running) >= self.cap and self.chunked is None:
            self.full = True
            return False
        offset = sum((self.reserve(seat) for seat in self.running), 0.0)
        current = 0.0
        inputs, chunk = 16384, self.chunk
        free = self.pool // self.page * self.page - self.used(self.all_seats())
        batch: list[Seat] = []
        states: list[tuple[float, float]] | None = None
        if self.chunked is not None:
            room = min(chunk, int(free - offset))
            if room <= 0:
                room = chunk
            todo = math.ceil(self.chunked.todo)
            take = min(todo, room)
            self.chunked.planned = take if take < todo else self.chunked.todo
            offset += self.whole(take) + self.page
            if take == todo:
                offset += min(self.chunked.prompt.asked, 4096)
            current += self.whole(take) + self.page
            inputs -= self.whole(take)
            chunk -= self.whole(take)
            batch.append(self.chunked)
            if take == todo:
                self.chunked = None
        while self.waiting:
            if len(batch) >= self.cap - len(self.running):
                self.full = True
            if self.full:
                break
            prompt = self.waiting[0]
            found = self.cache.found(prompt)
            room_total = free - (found if found and self.cache.held.get(prompt.group, 0) == 0 else 0)
            exact = prompt.input + prompt.made - found
            extend = math.ceil(exact)
            take = extend
            if self.ignore_eos:
                paged = self.whole(extend)
                if paged > min(room_total - current, room_total - offset):
                    self.full = True
                    break
                if states is None:
                    states = []
                    for left, size in [(prompt.asked - prompt.made, prompt.input + prompt.made)] + [
                        (s.prompt.asked - s.made, s.prompt.input + s.made) for s in self.running + batch
                    ]:
                        if left > 0:
                            states.append((left, size))
                    states.sort(key=lambda state: state[0])
                elif prompt.asked - prompt.made > 0:
                    left, at = prompt.asked - prompt.made, 0
                    for at in range(len(states)):
                        if left <= states[at][0]:
                            break
                    states.insert(at, (left, prompt.input + prompt.made))
                freed, lasts = 0.0, True
                for i, (left, size) in enumerate(states):
                    still = len(states) - i
                    if room_total - current - paged + freed - left * still <= still:
                        lasts = False
                        break
                    freed += size
                if not lasts:
                    self.full = True
                    break
                if extend > chunk:
                    if chunk <= 0:
                        break
                    take = chunk
            else:
                wanted = extend + min(max(prompt.asked - prompt.made, 0), 4096) + self.page
                if wanted >= room_total - offset:
                    self.full = True
                    break
                if self.whole(extend) >= inputs and batch:
                    break
                if self.whole(extend) > chunk:
                    take = (chunk // self.page * self.page + found) // self.page * self.page - found
                    if chunk // self.page * self.page <= 0 or take <= 0:
                        break
            self.waiting.pop(0)
            seat = self.sit(prompt, found, now)
            seat.planned = take if take < extend else exact
            batch.append(seat)
            free = room_total
            offset += self.whole(take) + self.page + (min(prompt.asked, 4096) if take == extend else 0)
            current += self.whole(take) + self.page
            inputs -= self.whole(take)
            chunk -= self.whole(take)
            if take < extend:
                self.chunked = seat
            if free - offset <= 0 or free - current <= 0:
                self.full = True
                break
            if inputs <= 0 or chunk <= 0:
                break
        self.prompts = batch
        return bool(batch)

    def decode(self, now: float) -> bool:
        before = len(self.running)
        self.running = [seat for seat in self.running if not seat.read]
        self.retracted_now = False
        if not self.running:
            self.full = False
            return False
        if self.used(self.running, 1) > self.pool // self.page * self.page:
            self.retract(now)
            self.retracted_now = True
        if len(self.running) < before:
            self.full = False
        return bool(self.running)

    def retract(self, now: float) -> None:
        pool = self.pool // self.page * self.page
        kept = list(self.running)
        if not self.drafts:
            kept.sort(key=lambda seat: (seat.made, -seat.prompt.input), reverse=True)
        first = True
        while first or self.used(kept, 1) > pool:
            if len(kept) == 1:
                break
            first = False
            seat = kept.pop()
            self.cache.leave(seat.prompt)
            if seat.finished:
                continue
            seat.prompt.made = seat.made
            seat.prompt.retractions += 1
            self.waiting.append(seat.prompt)
        if len(kept) == 1 and self.used(kept, 1) > pool:
            seat = kept.pop()
            self.cache.leave(seat.prompt)
            if not seat.finished:
                seat.prompt.outcome, seat.prompt.finished = "no memory", now
                self.ended.append(seat.prompt)
        self.running = kept
        made = sum(seat.made for seat in kept)
        self.ratio = min(1.0, (made + 20 * len(kept)) / (sum(seat.prompt.asked for seat in kept) + 1))
        self.steps = 0

    def pass_over(self) -> None:
        if self.decoders:
            if not self.retracted_now:
                self.steps += 1
        else:
            new = [seat for seat in self.prompts if seat is not self.chunked]
            stay = [seat for seat in new if not seat.read]
            if len(stay) < len(new):
                self.full = False
            self.running += stay
        self.decoders, self.prompts = [], []


class Vllm(Scheduler):
    """vLLM V1: one token budget, running first, preemption of the last."""

    blocks, block, budget, drafts, full, window, window_blocks, states, align = 0, 16, 2048, 0, 1, 0, 0, 0, 0

    def all_seats(self) -> list[Seat]:
        return self.seats

    def held(self, tokens: float) -> int:
        count = math.ceil(max(0, math.ceil(tokens)) / self.block)
        return self.full * count + self.window * min(count, self.window_blocks) + self.states

    def stored(self, seat: Seat) -> float:
        tokens = seat.prompt.input + seat.made - seat.todo - seat.shared
        return tokens + self.drafts - 1 if seat.todo == 0 else tokens

    def free_after_pass(self) -> float:
        grown = sum(self.held(self.stored(s) + s.prompt.rate) - self.held(self.stored(s)) for s in self.seats)
        return (self.free() - grown) * self.block

    def free(self) -> int:
        kept = sum(self.held(length) - self.states for length in self.cache.kept())
        return self.blocks - kept - sum(self.held(self.stored(seat)) for seat in self.seats)

    def chunk(self, computed: int, tokens: int, total: int) -> int:
        if not self.align:
            return tokens
        last = total - total % self.align
        if computed + tokens < last:
            return tokens // self.align * self.align
        if computed < last < computed + tokens:
            return last - computed
        return tokens

    def compose(self, now: float) -> None:
        self.decoders, self.prompts = [], []
        budget, free, preempted = self.budget, self.free(), False
        at = 0
        while at < len(self.seats) and budget > 0:
            seat = self.seats[at]
            if seat.todo == 0:
                grown, spent = seat.prompt.rate, 1 + self.drafts
            else:
                total, todo = math.ceil(seat.prompt.input + seat.made), math.ceil(seat.todo)
                spent = self.chunk(total - todo, min(todo, budget), total)
                if spent == 0:
                    at += 1
                    continue
                grown = spent if spent < todo else seat.todo
            more = self.held(self.stored(seat) + grown) - self.held(self.stored(seat))
            while more > free and self.seats:
                last = self.seats.pop()
                kept = sum(self.held(length) - self.states for length in self.cache.kept())
                self.cache.leave(last.prompt)
                free += self.held(self.stored(last))
                free += kept - sum(self.held(length) - self.states for length in self.cache.kept())
                preempted = True
                if not last.finished:
                    last.prompt.made = last.made
                    last.prompt.retractions += 1
                    self.waiting.insert(0, last.prompt)
                if last is seat:
                    break
            if seat not in self.seats:
                break
            if seat.todo > 0:
                seat.planned = grown
                self.prompts.append(seat)
            else:
                self.decoders.append(seat)
            free -= more
            budget -= spent
            at += 1
        while self.waiting and not preempted and len(self.seats) < self.cap and budget > 0:
            prompt = self.waiting[0]
            found = self.cache.found(prompt)
            exact = prompt.input + prompt.made - found
            todo = math.ceil(exact)
            take = self.chunk(found, min(todo, budget), todo + found)
            shared = self.cache.length(prompt)
            lead = 0
            if shared and self.cache.held.get(prompt.group, 0) == 0:
                lead = self.held(shared) - self.states
            if take == 0 or self.held(found - shared + exact) + lead > free:
                break
            self.waiting.pop(0)
            seat = self.sit(prompt, found, now)
            seat.planned = take if take < todo else exact
            free -= self.held(found - shared + seat.planned) + lead
            budget -= take
            self.seats.append(seat)
            self.prompts.append(seat)
        if not self.seats:
            return
        seconds = self.costs.prompts(self.prompts)
        if not self.prompts:
            seconds = self.costs.decode(self.decoders)
        elif self.decoders:
            seconds = self.costs.decode(self.decoders) + max(0.0, seconds + self.costs.mixed_fixed)
        else:
            seconds = max(self.costs.floor, seconds + self.costs.prefill_fixed)
        self.ends = now + seconds

    def pass_over(self) -> None:
        self.seats = [seat for seat in self.seats if not seat.read]


@dataclass(eq=False)
class Server:
    ranks: list[Scheduler]
    room: int
    queue: list[Prompt]
    in_flight: int = 0
    up: str = "up"
    turn: int = 0
    wakes: float = INFINITY


def run(
    servers: list[Server], prompts: list[Prompt], *, ramp: list[tuple[float, int]] = (),  # type: ignore[assignment]
    incidents: list[tuple[float, int, str]] = (), delay: float = 0.0, restart: float = 0.0,  # type: ignore[assignment]
    in_turn: bool = False,
) -> float:  # fmt: skip
    """Walks the fleet through its prompts; returns when the last one ended (or nothing happens any more)."""
    ramp, incidents = list(ramp), list(incidents)
    now, last, retry = 0.0, -1, []
    backs: list[tuple[float, int]] = []
    rolling: int | None = None
    pending = len(prompts)

    def kill(index: int) -> None:
        for rank in servers[index].ranks:
            for prompt in rank.dies():
                prompt.made, prompt.outcome = 0.0, "pending"
                retry.append(prompt)
                servers[index].in_flight -= 1

    while pending:
        while ramp and ramp[0][0] <= now:
            servers[ramp.pop(0)[1]].room += 1
        while backs and backs[0][0] <= now:
            servers[backs.pop(0)[1]].in_flight -= 1
        while incidents and incidents[0][0] <= now:
            _, index, what = incidents.pop(0)
            if what == "dies":
                servers[index].up, servers[index].wakes = "down", INFINITY
                kill(index)
            elif what == "up":
                servers[index].up, servers[index].wakes = "up", INFINITY
            elif what == "rolls":
                rolling, servers[index].up = index, "draining"
            elif servers[index].up == "up":
                servers[index].up = "draining"
        for index, server in enumerate(servers):
            if server.wakes <= now:
                server.wakes, server.up = INFINITY, "up"
                if rolling == index:
                    rolling = index + 1 if index + 1 < len(servers) else None
                    if rolling is not None and servers[rolling].up == "up":
                        servers[rolling].up = "draining"
            if server.up == "draining" and server.in_flight == 0:
                kill(index)
                server.up, server.wakes = "down", now + restart
        again = True
        while again:
            while True:  # the client sends
                able = [
                    index for index, server in enumerate(servers)
                    if server.up == "up" and server.in_flight < server.room
                    and (retry or (server.queue and server.queue[0].arrival <= now))
                ]  # fmt: skip
                if not able:
                    break
                if in_turn:
                    chosen = min(able, key=lambda index: (index - last - 1) % len(servers))
                else:
                    chosen = min(able, key=lambda index: servers[index].in_flight)
                server = servers[chosen]
                prompt = retry.pop(0) if retry else server.queue.pop(0)
                last = prompt.server = chosen
                server.in_flight += 1
                if prompt.submitted is None:
                    prompt.submitted = now
                server.ranks[server.turn].waiting.append(prompt)
                server.turn = (server.turn + 1) % len(server.ranks)
            again = False
            for index, server in enumerate(servers):
                for rank in server.ranks:
                    if rank.ends is None and server.up != "down":
                        rank.compose(now)
                        for _ in rank.ended:
                            pending -= 1
                            again = True
                            if delay:
                                backs.append((now + delay, index))
                            else:
                                server.in_flight -= 1
                        rank.ended = []
        moments = [rank.ends for server in servers for rank in server.ranks if rank.ends is not None]
        moments += [ramp[0][0]] if ramp else []
        moments += [backs[0][0]] if backs else []
        moments += [incidents[0][0]] if incidents else []
        moments += [server.wakes for server in servers]
        moments += [s.queue[0].arrival for s in servers if s.queue and s.queue[0].arrival > now]
        if not pending or min(moments) == INFINITY:
            break
        now = min(moments)
        for index, server in enumerate(servers):
            for rank in server.ranks:
                if rank.ends == now:
                    rank.pass_ends(now)
                    for _ in rank.ended:
                        pending -= 1
                        if delay:
                            backs.append((now + delay, index))
                        else:
                            server.in_flight -= 1
                    rank.ended = []
    return now
