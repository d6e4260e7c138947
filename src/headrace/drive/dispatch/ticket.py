"""The request state machine: what becomes of one prompt's tries. Pure: an outcome in, a decision out.

    queued ──▶ in flight ──▶ answered (kept, rejected, or asked once more by a flag policy)
       ▲           │
       └─ waiting ◀┘  (later / failed: again at `not_before`, elsewhere if there is an elsewhere)
                   └──▶ given up (4xx, or out of tries)

A permit is never held while waiting. 429 and 503 mean "later" and cost no try; an endpoint that died
under the request costs one, so that a prompt which kills servers cannot go round for ever.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from headrace.drive.answer import Answer
from headrace.drive.prompts import Prompt

FIRST_BACKOFF_SECONDS = 0.5
LAST_BACKOFF_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class Ticket:
    """One prompt on its way.

    Attributes:
        tries: requests sent that count against `max_tries` (all but those answered 429 or 503).
        sent: requests sent in all.
        avoid: URL of the server that failed it last; another is preferred.
        flagged: the answer that a flag policy wants asked once more; kept if the second try fails.
        refused_by: URL of the server that refused it; another is asked for a second opinion.
        fresh: its last request met a connection that the server had closed; the next gets a new one.
        flights: the requests now in flight for it (two while hedged).
        closed: answered or given up: whatever else comes back is ignored.
    """

    prompt: Prompt
    expected_tokens: float
    tries: int = 0
    sent: int = 0
    avoid: str | None = None
    flagged: Flagged | None = None
    refused_by: str | None = None
    hedged: bool = False
    fresh: bool = False
    closed: bool = False
    flights: list[Flight] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Flagged:
    """An answer as it came: its flags, who gave it, when and how fast."""

    answer: Answer
    flags: list[str]
    url: str
    latency_seconds: float
    wall_time: float


@dataclass(slots=True, eq=False)
class Flight:
    """One request in flight."""

    ticket: Ticket
    url: str
    started: float
    expected_tokens: float


@dataclass(frozen=True, slots=True)
class Again:
    """Queue it again, not before `not_before` (monotonic seconds)."""

    not_before: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It goes to failed/."""

    kind: str
    reason: str


def backoff_seconds(failures: int, jitter: random.Random) -> float:
    """Seconds to wait after `failures` (≥ 1) failed tries: doubled each time, half of it jitter."""
    full: float = min(FIRST_BACKOFF_SECONDS * 2 ** (failures - 1), LAST_BACKOFF_SECONDS)
    return full * (0.5 + 0.5 * jitter.random())


def after_failure(
    ticket: Ticket, now: float, kind: str, why: str, max_tries: int, jitter: random.Random
) -> Again | GiveUp:
    """What follows a try that failed by the server's fault (5xx, dropped, timeout, bad answer)."""
    if ticket.tries >= max_tries:
        return GiveUp(kind, f"given up after {ticket.tries} tries (--max-tries {max_tries}); the last: {why}")
    return Again(now + backoff_seconds(ticket.tries, jitter))
