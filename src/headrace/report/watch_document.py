"""What `watch` shows at one moment: servers, their sums, verdict, job; one model for table and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.drive.status import JobStatus

SCHEMA = "headrace.watch"
SCHEMA_VERSION = 1
_JOB = (
    "out",
    "phase",
    "message",
    "rows",
    "done",
    "failed",
    "pending",
    "in_flight",
    "in_flight_limit",
    "output_tokens_per_second",
    "eta_seconds",
)


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server now. None is what it does not tell; fractions are 0…1.

    Attributes:
        problem: why it does not answer; "" where it does. Its figures are then those of its last answer.
        state_held: slots in use ÷ slots of the recurrent-state pool.
        state_reserved: slots set aside for what runs ÷ slots of that pool: what limits how many run.
    """

    name: str
    problem: str
    engine: str | None = None
    running: float | None = None
    queued: float | None = None
    cap: float | None = None
    kv_usage: float | None = None
    state_held: float | None = None
    state_reserved: float | None = None
    output_tokens_per_s: float | None = None
    step_seconds: float | None = None
    cache_hit_rate: float | None = None
    gpu_power_w: float | None = None
    sm_clock_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over the servers that told a figure, and how many those are."""

    value: float
    servers: int


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """What binds the fleet, in a line."""

    constraint: str
    confidence: float
    evidence: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class WatchDocument:
    """One moment of a fleet. `seconds` since the watch began."""

    seconds: float
    servers: tuple[ServerRow, ...]
    verdict: VerdictLine | None = None
    job: JobStatus | None = None

    @property
    def answering(self) -> int:
        """Servers whose last look got an answer."""
        return sum(1 for row in self.servers if not row.problem)

    def total(self, name: str) -> Total | None:
        """The sum of a figure over the servers that answer and tell it, None where none does."""
        answering = (row for row in self.servers if not row.problem)
        told = [value for row in answering if (value := getattr(row, name)) is not None]
        return Total(sum(told), len(told)) if told else None

    def to_json(self) -> dict[str, Any]:
        """Returns schema, seconds, servers, fleet (sums with how many told), verdict and job."""
        fleet: dict[str, Any] = {"servers": len(self.servers), "answering": self.answering}
        for name in ("running", "queued", "cap", "output_tokens_per_s"):
            total = self.total(name)
            fleet[name] = asdict(total) if total is not None else None
        document = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "seconds": self.seconds,
            "servers": [asdict(row) for row in self.servers],
            "fleet": fleet,
            "verdict": asdict(self.verdict) if self.verdict is not None else None,
            "job": {name: getattr(self.job, name) for name in _JOB} if self.job is not None else None,
        }
        plain: dict[str, Any] = _finite(document)
        return plain


def worst_first(rows: Sequence[ServerRow]) -> list[ServerRow]:
    """Returns those that do not answer, then those with most queued, else in the order named."""
    return sorted(rows, key=lambda row: (not row.problem, -(row.queued or 0.0)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value
