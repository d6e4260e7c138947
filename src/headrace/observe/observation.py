"""The Observation: what is known of a fleet, from whichever evidence, in one form.

Every collector yields it, and `diagnose` reads nothing else. Missing readings are normal; nothing here is
filled in by guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.quantities import Origin, Quantity

if TYPE_CHECKING:
    from headrace.observe.drift import Drift
    from headrace.observe.lengths import Lengths
    from headrace.observe.phases import Phases

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch that the steady readings are taken over.

    Attributes:
        start_seconds, end_seconds: on the clock of `ServerObservation.seconds` (0 is the first sample).
        samples: readings within it; 1 is a snapshot.
        whole_seconds: length of all the evidence, the window's included.
    """

    start_seconds: float
    end_seconds: float
    samples: int
    whole_seconds: float

    @property
    def seconds(self) -> float:
        """Length of the window in seconds; 0 for a snapshot."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True)
class Event:
    """Something a server said that is no measurement: a warning, a retraction, a crash.

    Attributes:
        id: of the engine's failure catalogue, or the kind of the event where it has none.
        severity: `warning`, `failure` or `note`.
        count: how often it came.
        first_seconds, last_seconds: when, on the clock of the observation; None where the line had no time.
        text: the first such line, secrets removed, at most 400 characters.
    """

    id: str
    severity: str
    count: int
    text: str
    first_seconds: float | None = None
    last_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ServerObservation:
    """One server, or `replicas` servers alike of which this is one.

    Attributes:
        name: URL, file, or `server` for typed facts.
        engine: `sglang`, `vllm`, `llamacpp`, another name as told, or None.
        engine_version: as told, e.g. `0.5.12`, or None.
        model: id or path of a config.json, as told.
        gpu: name as told; `headrace.hardware` resolves it.
        gpus: GPUs of this one server (tensor × pipeline × data parallel), or None where nobody says.
        replicas: how many servers alike this one stands for.
        tensor_parallel, data_parallel: as told; None where nobody says.
        weights_dtype, kv_dtype: as told.
        flags: the launch line's flags as text, "" where unknown.
        flags_origin: CONFIGURED where a person gave the line, REPORTED where the server told its settings.
        seconds: times of the samples, from 0, monotonic; empty for a snapshot or typed facts.
        columns: reading word → one value per entry of `seconds`, NaN where that sample lacks it. Words are
            those of `readings.READINGS`; summed over ranks where their scope says so.
        readings: word → one steady value, *per server*, over `window`; never NaN or infinite. Medians for
            gauges, differences over time for counters; `source` says which line, metric or key.
        capacities: word → a size or limit *per server* (`cap`, `kv_capacity_tokens`, `state_slots`, …).
        by_rank: word of `readings.BY_RANK` → rank → value.
        window: of the readings; None for typed facts.
        events: warnings and failures.
        settings: the engine's settings as the server told them, by the engine's own names, allow-listed.
        scope: what the evidence called its numbers: `replica`, `fleet` or `per DP rank`. Readings are per
            server whatever it says.
        notes: what could not be read, what is stale, what was assumed in reading; for people.
        missing: what this evidence could not tell, each with the way to get it.
        phases: ramp-up, steady window, drain and change points, where samples over time tell them.
        drift: word → how far it moved against the steady window's first hour.
    """

    name: str
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    replicas: int = 1
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    weights_dtype: str | None = None
    kv_dtype: str | None = None
    flags: str = ""
    flags_origin: Origin = Origin.CONFIGURED
    seconds: Column = field(default_factory=lambda: np.empty(0))
    columns: Mapping[str, Column] = field(default_factory=dict)
    readings: Mapping[str, Quantity] = field(default_factory=dict)
    capacities: Mapping[str, Quantity] = field(default_factory=dict)
    by_rank: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    window: Window | None = None
    events: tuple[Event, ...] = ()
    settings: Mapping[str, str | float | bool] = field(default_factory=dict)
    scope: str = "replica"
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    phases: Phases | None = None
    drift: Mapping[str, Drift] = field(default_factory=dict)

    def get(self, word: str) -> Quantity | None:
        """The reading or capacity of that word, or None."""
        return self.readings.get(word) or self.capacities.get(word)

    def value(self, word: str) -> float | None:
        """The plain number of that word, or None."""
        found = self.get(word)
        return None if found is None else found.value

    def event(self, id: str) -> Event | None:
        """The event of that id, or None."""
        return next((event for event in self.events if event.id == id), None)

    def to_json(self) -> dict[str, Any]:
        """The JSON form, without the columns: they belong to recordings."""
        window = self.window
        return {
            "name": self.name,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "model": self.model,
            "gpu": self.gpu,
            "gpus": self.gpus,
            "replicas": self.replicas,
            "tensor_parallel": self.tensor_parallel,
            "data_parallel": self.data_parallel,
            "weights_dtype": self.weights_dtype,
            "kv_dtype": self.kv_dtype,
            "flags": self.flags,
            "flags_origin": str(self.flags_origin),
            "readings": {word: quantity.to_json() for word, quantity in self.readings.items()},
            "capacities": {word: quantity.to_json() for word, quantity in self.capacities.items()},
            "by_rank": {word: dict(ranks) for word, ranks in self.by_rank.items()},
            "window": None
            if window is None
            else {
                "start_seconds": window.start_seconds,
                "end_seconds": window.end_seconds,
                "samples": window.samples,
                "whole_seconds": window.whole_seconds,
            },
            "events": [
                {
                    "id": event.id,
                    "severity": event.severity,
                    "count": event.count,
                    "text": event.text,
                    "first_seconds": event.first_seconds,
                    "last_seconds": event.last_seconds,
                }
                for event in self.events
            ],
            "settings": dict(self.settings),
            "scope": self.scope,
            "notes": list(self.notes),
            "missing": list(self.missing),
            "phases": None if self.phases is None else asdict(self.phases),
            "drift": {word: asdict(moved) for word, moved in self.drift.items()},
        }


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """The client's side of the same interval, over the whole fleet.

    Attributes:
        load: `free`, `given`, or None where nobody stated it.
        readings: word of `readings.CLIENT` → value.
        lengths: source (and `all sources`) → the survival estimate of its output tokens, where it was told.
    """

    load: str | None = None
    readings: Mapping[str, Quantity] = field(default_factory=dict)
    lengths: Mapping[str, Lengths] = field(default_factory=dict)

    def value(self, word: str) -> float | None:
        """The plain number of that word, or None."""
        found = self.readings.get(word)
        return None if found is None else found.value

    @property
    def is_free(self) -> bool:
        """True where in flight is ours to choose: as stated; unstated, unless exactly 1 is in flight."""
        if self.load is not None:
            return self.load == "free"
        return self.value("in_flight") != 1

    def to_json(self) -> dict[str, Any]:
        """load (as stated or by default) and the readings."""
        return {
            "load": "free" if self.is_free else "given",
            "load_stated": self.load is not None,
            **{word: quantity.to_json() for word, quantity in self.readings.items()},
            **(
                {"lengths": {source: one.to_json() for source, one in self.lengths.items()}}
                if self.lengths
                else {}
            ),
        }


@dataclass(frozen=True, slots=True)
class Observation:
    """All that is known of a fleet over one interval.

    Attributes:
        servers: at least one where anything is known of a server.
        client: None where nothing is known of it.
        claims: what people said of it, as text.
        notes: the evidence's own remarks, and warnings met while reading.
        source: what was read: a path, URL or `-`.
    """

    servers: tuple[ServerObservation, ...]
    client: ClientFacts | None = None
    claims: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""

    @property
    def replicas(self) -> int:
        """Servers in all."""
        return sum(server.replicas for server in self.servers)

    @property
    def gpus(self) -> int | None:
        """GPUs of the whole fleet, or None where one server's are unknown."""
        total = 0
        for server in self.servers:
            if server.gpus is None:
                return None
            total += server.gpus * server.replicas
        return total or None

    def to_json(self) -> dict[str, Any]:
        """The JSON form of all but the columns."""
        return {
            "source": self.source,
            "servers": [server.to_json() for server in self.servers],
            "client": None if self.client is None else self.client.to_json(),
            "claims": list(self.claims),
            "notes": list(self.notes),
        }
