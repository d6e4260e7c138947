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
        asked_again: a flag policy has used its one retry.
        flights: the requests now in flight for it (two while hedged).
        closed: answered or given up: whatever else comes back is ignored.
    """

    prompt: Prompt
    expected_tokens: float
    tries: int = 0
    sent: int = 0
    avoid: str | None = None
    asked_again: bool = False
    hedged: bool = False
    closed: bool = False
    later: int = 0  # 429/503 answers so far
    failure: str = ""
    flights: list[Flight] = field(default_factory=list)


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
    """Seconds to wait before the next try after `failures` failed ones (≥ 1): doubled each time, half of it jitter."""
    full: float = min(FIRST_BACKOFF_SECONDS * 2 ** (failures - 1), LAST_BACKOFF_SECONDS)
    return full * (0.5 + 0.5 * jitter.random())


def after_failure(
    ticket: Ticket, now: float, kind: str, why: str, max_tries: int, jitter: random.Random
) -> Again | GiveUp:
    """What follows a try that failed by the server's fault (`server_error`, `dropped`, `timeout`, `bad_answer`)."""
    if ticket.tries >= max_tries:
        return GiveUp(kind, f"given up after {ticket.tries} tries (--max-tries {max_tries}); the last: {why}")
    return Again(now + backoff_seconds(ticket.tries, jitter))


def after_later(ticket: Ticket, now: float, wait_seconds: float, jitter: random.Random) -> Again:
    """What follows a 429 or 503: later, at another server at once if one has room."""
    ticket.later += 1
    return Again(now + min(wait_seconds, backoff_seconds(ticket.later, jitter)))
