"""A fleet for the kernel: kinds of servers, how the client feeds them, what befalls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.simulate.kernel.fleet import CLIENT, QUEUE, SERVER, TIMED, UP, Client
from headrace.simulate.kernel.records import World, fill, new_requests, new_world, records
from headrace.simulate.scheduling import ServerRules
from headrace.simulate.workload import Workload

Floats = NDArray[np.float64]

UNLIMITED = 1 << 40
_BEFALL = {"dies": 0, "up": 1, "drains": 2, "rolls": 3}


@dataclass(frozen=True)
class ServerKind:
    """Servers that are alike: rules, and seconds of a decode pass by batch size 0 … cap.

    `decode_fixed[b]` and `decode_context[b]` × context tokens; a batch that is padded to a captured size has
    the seconds of that size.
    """

    rules: ServerRules
    decode_fixed: Floats
    decode_context: Floats

    def __post_init__(self) -> None:
        for values in (self.decode_fixed, self.decode_context):
            if len(values) <= self.rules.cap or not np.all(np.isfinite(values)) or np.any(values < 0):
                raise ValueError(
                    f"step seconds must be finite, not negative, for batches 0 to {self.rules.cap}"
                )


@dataclass(frozen=True)
class Incident:
    """What befalls a server: it `dies`, is `up`, `drains` (and restarts), or `rolls`, as all after it."""

    at_seconds: float
    server: int
    what: str


@dataclass(frozen=True)
class Feeding:
    """How the client feeds the fleet.

    Attributes:
        in_flight: per server; None = no limit (open loop).
        ramp_seconds: over which in flight grows from 1 to its limit, evenly.
        per_server: prompts are dealt out beforehand, server by server; else one shared queue.
        in_turn: servers take turns; else the one with the fewest in flight is next.
        delay_seconds: from an answer to the next prompt's being sent.
        restart_seconds: how long a drained server is away.
    """

    in_flight: int | None = 32
    ramp_seconds: float = 0.0
    per_server: bool = False
    in_turn: bool = False
    delay_seconds: float = 0.0
    restart_seconds: float = 120.0


@dataclass(frozen=True)
class FleetSpec:
    """The servers: the kind of each, and its data-parallel ranks (schedulers)."""

    kinds: Sequence[ServerKind]
    kind_of: Sequence[int]
    ranks: int = 1
    feeding: Feeding = field(default_factory=Feeding)
    incidents: Sequence[Incident] = ()

    @property
    def servers(self) -> int:
        return len(self.kind_of)


def build(spec: FleetSpec, workload: Workload) -> tuple[World, Client]:
    """Returns the kernel's state before the first moment.

    Raises:
        UsageError: an incident at a server that does not exist, or a limit in flight below 1.
    """
    feeding, servers, ranks = spec.feeding, spec.servers, spec.ranks
    if feeding.in_flight is not None and feeding.in_flight < 1:
        raise UsageError(f"{feeding.in_flight} in flight per server feeds nothing; give 1 or more.")
    width = max(kind.rules.cap for kind in spec.kinds) + 1
    fixed, context = np.zeros((len(spec.kinds), width)), np.zeros((len(spec.kinds), width))
    for row, kind in enumerate(spec.kinds):
        cap = kind.rules.cap + 1
        fixed[row, :cap], context[row, :cap] = kind.decode_fixed[:cap], kind.decode_context[:cap]
    requests = new_requests(
        workload.input_tokens,
        workload.output_tokens,
        workload.asked_tokens,
        workload.tokens_per_pass,
        workload.group,
    )
    world = new_world(
        [kind.rules.rules for kind in spec.kinds],
        fixed,
        context,
        [kind for kind in spec.kind_of for _ in range(ranks)],
        requests,
        workload.group_tokens,
    )
    return world, _client(spec, workload, servers, ranks)


def _client(spec: FleetSpec, workload: Workload, servers: int, ranks: int) -> Client:
    feeding = spec.feeding
    ramp_times, ramp_servers = _ramp(feeding, servers)
    made = records(SERVER, (servers,))
    at_once = UNLIMITED if feeding.in_flight is None else (1 if len(ramp_times) else feeding.in_flight)
    fill(made, "room", at_once)
    fill(made, "up", UP)
    fill(made, "first_rank", np.arange(servers) * ranks)
    fill(made, "ranks", ranks)
    fill(made, "wake", np.inf)
    fill(made, "queue", np.arange(servers) if feeding.per_server else 0)
    state = records(CLIENT, (1,))
    for name, value in (
        ("now", -1.0),
        ("last_server", -1),
        ("rolling", -1),
        ("in_turn", int(feeding.in_turn)),
        ("delay_seconds", feeding.delay_seconds),
        ("restart_seconds", feeding.restart_seconds),
    ):
        fill(state, name, value)
    queues = records(QUEUE, (servers if feeding.per_server else 1,))
    edges = np.linspace(0, len(workload), len(queues) + 1).astype(np.int64)
    fill(queues, "head", edges[:-1])
    fill(queues, "end", edges[1:])
    order = workload.order.astype(np.int32)
    if feeding.per_server:  # dealt out in turn, so that every server gets its share of every part
        order = np.concatenate([order[at::servers] for at in range(servers)])
        sizes = [len(range(at, len(workload), servers)) for at in range(servers)]
        fill(queues, "head", np.cumsum([0, *sizes[:-1]]))
        fill(queues, "end", np.cumsum(sizes))
    arrival = (
        np.empty(0) if workload.arrival is None else np.ascontiguousarray(workload.arrival[order], float)
    )
    in_flight = feeding.in_flight if feeding.in_flight is not None else 0
    ring = servers * in_flight if in_flight else len(workload)
    incidents = sorted(spec.incidents, key=lambda one: one.at_seconds)
    wrong = [one.server for one in incidents if not 0 <= one.server < servers or one.what not in _BEFALL]
    if wrong:
        raise UsageError(f"server {wrong[0]} does not exist; servers are 0 to {servers - 1}.")
    return Client(
        state,
        made,
        queues,
        order,
        arrival,
        np.repeat(np.arange(servers), ranks).astype(np.int64),
        _timed(ramp_times, ramp_servers),
        _timed(
            [i.at_seconds for i in incidents],
            [i.server for i in incidents],
            [_BEFALL[i.what] for i in incidents],
        ),
        _timed([0.0] * (max(1, ring) if feeding.delay_seconds > 0 else 1)),
    )


def _ramp(feeding: Feeding, servers: int) -> tuple[list[float], list[int]]:
    """When each server's room grows by one."""
    if feeding.in_flight is None or feeding.ramp_seconds <= 0:
        return [], []
    steps = range(1, feeding.in_flight)
    times = [feeding.ramp_seconds * step / feeding.in_flight for step in steps for _ in range(servers)]
    return times, [server for _ in steps for server in range(servers)]


def _timed(times: Sequence[float], servers: Sequence[int] = (), what: Sequence[int] = ()) -> object:
    made = records(TIMED, (len(times),))
    if len(times):
        fill(made, "time", list(times))
        fill(made, "server", list(servers) or 0)
        fill(made, "what", list(what) or 0)
    return made
