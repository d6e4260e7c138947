"""What becomes of a request that came back: the health of its endpoint, the fate of its row. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from headrace.clock import Clock
from headrace.drive.companion import AnsweredRow, Companion
from headrace.drive.dispatch.dispatcher import Dispatcher
from headrace.drive.dispatch.endpoint import ASTRAY
from headrace.drive.dispatch.limits import InFlightLimit
from headrace.drive.dispatch.ticket import Again, Flagged, Flight, GiveUp, Ticket, after_failure
from headrace.drive.job import Job
from headrace.drive.outcome import Answered, Later, Outcome, Refused, ServerFault, Unauthorised
from headrace.drive.progress import Progress
from headrace.drive.row_checks import flags_of
from headrace.drive.store.rows import FailedRow, Row, as_json_text
from headrace.words import Flag, FlagPolicy

# Faults that are the server's alone: the row has not been tried by them.
NOT_TRIED = frozenset({"refused", "stalled", "open_files"})
OPEN_FILES_SECONDS = 1.0  # until this process may have a file to open again
KEPT_ANSWER_CHARACTERS = 200_000  # of a rejected answer in failed/


class Landing:
    """Sorts outcomes.

    Args:
        save_row, save_failure: hand a finished row to the writer.
        companion: is told of each answered row.
        cut_short: cancels a request that is no longer needed.
    """

    def __init__(
        self,
        job: Job,
        dispatcher: Dispatcher,
        limits: Mapping[str, InFlightLimit],
        progress: Progress,
        clock: Clock,
        *,
        save_row: Callable[[int, Row], None],
        save_failure: Callable[[int, FailedRow], None],
        cut_short: Callable[[Flight], None],
        companion: Companion | None = None,
    ) -> None:
        self._job = job
        self._companion = companion
        self._dispatcher = dispatcher
        self._limits = limits
        self._progress = progress
        self._clock = clock
        self._save_row = save_row
        self._save_failure = save_failure
        self._cut_short = cut_short
        self._jitter = random.Random(job.seed)
        policies = job.flag_policies
        self._reject = frozenset(f.value for f, p in policies.items() if p is FlagPolicy.REJECT)
        self._ask_again = frozenset(f.value for f, p in policies.items() if p is FlagPolicy.RETRY_ONCE)
        self.model: str | None = job.model
        self.refused = 0

    def land(self, flight: Flight, outcome: Outcome, now: float) -> None:
        """Takes one outcome, which came back at `now`; its flight has already left the dispatcher."""
        flight.ticket.flights.remove(flight)
        if isinstance(outcome, Answered):
            self._answered(flight, outcome, now)
        elif isinstance(outcome, Refused):
            self._refused(flight, outcome, now)
        else:
            self._not_answered(flight, outcome, now)

    def _answered(self, flight: Flight, outcome: Answered, now: float) -> None:
        latency, tokens = now - flight.started, outcome.answer.completion_tokens or 0
        endpoint = self._dispatcher.endpoints.get(flight.url)
        if endpoint is not None:
            endpoint.on_answer(now, latency, max(tokens, 1))
        ticket = flight.ticket
        if ticket.closed:
            return
        flags = flags_of(outcome.answer) if self._job.row_checks else []
        found = Flagged(outcome.answer, flags, flight.url, latency, self._clock.wall())
        if flags and ticket.flagged is None and not ticket.flights and not self._ask_again.isdisjoint(flags):
            ticket.flagged = found
            self._dispatcher.again(ticket, now)
            return
        self._keep(ticket, found)

    def _keep(self, ticket: Ticket, found: Flagged) -> None:
        self._close(ticket)
        answer, prompt = found.answer, ticket.prompt
        tokens = answer.completion_tokens or 0
        self._progress.answered(prompt.source, tokens, found.latency_seconds, found.flags)
        if self._companion is not None:
            began = self._clock.monotonic() - (self._clock.wall() - found.wall_time) - found.latency_seconds
            self._companion.answered(
                AnsweredRow(
                    source=self._job.sources[prompt.source].name,
                    server=found.url,
                    started=began,
                    seconds=found.latency_seconds,
                    output_tokens=tokens,
                    truncated=Flag.TRUNCATED.value in found.flags or answer.finish_reason == "length",
                )
            )
        if found.flags and not self._reject.isdisjoint(found.flags):
            self._fail(
                ticket,
                "rejected",
                f"flagged {', '.join(found.flags)}, and the job's policy is to reject that",
                200,
                found.url,
                answer=answer.text[:KEPT_ANSWER_CHARACTERS],
                flags=found.flags,
            )
            return
        messages = prompt.request.messages
        row = Row(
            id=prompt.id,
            source=self._job.sources[prompt.source].name,
            row=prompt.row,
            sample=prompt.sample,
            messages=None if messages is None else [_turn(message) for message in messages],
            prompt=prompt.request.text,
            answer=answer.text,
            reasoning=answer.reasoning,
            finish_reason=answer.finish_reason,
            flags=found.flags,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            server=found.url,
            model=answer.model or self.model,
            latency_seconds=round(found.latency_seconds, 6),
            tries=ticket.sent,
            finished_at=round(found.wall_time, 3),
            tool_calls=answer.tool_calls,
            token_ids=answer.token_ids,
            extra=as_json_text(prompt.extra) if prompt.extra else None,
        )
        self._save_row(prompt.seq, row)

    def _refused(self, flight: Flight, outcome: Refused, now: float) -> None:
        """A 4xx is final when two servers say it, or the only one; 404 and 405 are often the server's."""
        ticket, url = flight.ticket, flight.url
        endpoint = self._dispatcher.endpoints.get(url)
        if endpoint is not None:
            endpoint.on_refusal(now, outcome.status, outcome.words)
        if ticket.closed:
            return
        first = ticket.refused_by is None
        ticket.refused_by = ticket.avoid = url
        if ticket.flights:
            return  # its other request is still on its way, and is the second opinion
        if outcome.status in ASTRAY:
            self._progress.errors[str(outcome.status)] += 1
            said = f"{outcome.status}: {outcome.words}"
            decision = after_failure(ticket, now, "refused", said, self._job.max_tries, self._jitter)
            if isinstance(decision, Again):
                self._dispatcher.again(ticket, decision.not_before)
                return
        elif first and self._dispatcher.takes_elsewhere(url):
            ticket.tries -= 1
            self._dispatcher.again(ticket, now)
            return
        self.refused += 1
        self._give_up(ticket, Flag.REFUSED.value, outcome.words, outcome.status, url)

    def _not_answered(self, flight: Flight, outcome: Later | Unauthorised | ServerFault, now: float) -> None:
        ticket, url = flight.ticket, flight.url
        if isinstance(outcome, ServerFault) and outcome.kind == "stale":
            self._not_read(ticket, now)
            return
        endpoint = self._dispatcher.endpoints.get(url)
        if isinstance(outcome, ServerFault):
            kind = outcome.kind
            if endpoint is not None and kind not in ("stalled", "open_files"):
                endpoint.on_failure(now, kind, outcome.why)
        else:
            kind = str(outcome.status)
            if endpoint is not None:
                if isinstance(outcome, Later):
                    endpoint.on_later(now, outcome.status, outcome.retry_after_seconds)
                    endpoint.limit = self._limits[url].on_later(endpoint.in_flight, now)
                else:
                    endpoint.on_unauthorised(now, outcome.status)
        self._progress.errors[kind] += 1
        ticket.avoid = url
        costs_a_try = isinstance(outcome, ServerFault) and kind not in NOT_TRIED
        if not costs_a_try:
            ticket.tries -= 1
        if ticket.closed or ticket.flights:
            return  # answered already, or its other request is still on its way
        ticket.hedged = False
        if not costs_a_try:
            # elsewhere at once: this endpoint is closed for a while
            self._dispatcher.again(ticket, now + OPEN_FILES_SECONDS if kind == "open_files" else now)
            return
        assert isinstance(outcome, ServerFault)
        decision = after_failure(ticket, now, kind, outcome.why, self._job.max_tries, self._jitter)
        if isinstance(decision, GiveUp):
            self._give_up(ticket, decision.kind, decision.reason, outcome.status, url)
        else:
            self._dispatcher.again(ticket, decision.not_before)

    def _not_read(self, ticket: Ticket, now: float) -> None:
        """The request met a closed connection: no try, no error, and at once again on a new connection."""
        ticket.sent -= 1
        ticket.tries -= 1
        ticket.fresh = True
        if not ticket.closed and not ticket.flights:
            ticket.hedged = False
            self._dispatcher.again(ticket, now)

    def _give_up(self, ticket: Ticket, kind: str, reason: str, status: int | None, url: str) -> None:
        if ticket.flagged is not None:  # asked again because of a flag: the first answer is better than none
            self._keep(ticket, ticket.flagged)
            return
        self._close(ticket)
        flags = [kind] if kind == Flag.REFUSED.value else []
        self._fail(ticket, kind, reason, status, url, answer=None, flags=flags)

    def _close(self, ticket: Ticket) -> None:
        ticket.closed = True
        for other in ticket.flights:
            self._cut_short(other)

    def _fail(
        self,
        ticket: Ticket,
        kind: str,
        reason: str,
        status: int | None,
        url: str,
        *,
        answer: str | None,
        flags: list[str],
    ) -> None:
        prompt = ticket.prompt
        failed = FailedRow(
            id=prompt.id,
            source=self._job.sources[prompt.source].name,
            row=prompt.row,
            sample=prompt.sample,
            kind=kind,
            reason=reason,
            status=status,
            server=url,
            tries=ticket.sent,
            failed_at=round(self._clock.wall(), 3),
            answer=answer,
            flags=flags,
        )
        self._save_failure(prompt.seq, failed)


def _turn(message: Any) -> dict[str, str]:
    """A chat message as it is kept: role and content; content that is not text becomes JSON text."""
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else as_json_text(content)
    return {"role": str(message.get("role", "")), "content": text}
