"""Keeps the dispatcher's queue filled with prompts: drawn at random, read and built in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headrace.drive.dispatch.dispatcher import Dispatcher
from headrace.drive.dispatch.ticket import Ticket
from headrace.drive.job import Job
from headrace.drive.progress import Progress
from headrace.drive.prompts import Prompt
from headrace.drive.store.index import PromptIndex, SourceUnavailable
from headrace.drive.store.rows import FailedRow
from headrace.drive.store.states import State

MAX_READY_CHARACTERS = 16 * 1024 * 1024  # of prompts read ahead
SOURCE_RETRY_SECONDS = 5.0
FALLBACK_TOKENS = 512.0  # expected output tokens of a row while nothing at all is known
REFILL_MIN, REFILL_MAX = 64, 1024


class Refill:
    """Which prompts have been taken up, and the taking up of the next.

    Args:
        unreadable: told the prompts that can no longer be read from their source.
        on_trouble: told why a source cannot be read now; None when it can be again.

    Attributes:
        exhausted: every pending prompt has been taken up.
    """

    def __init__(
        self,
        job: Job,
        index: PromptIndex,
        dispatcher: Dispatcher,
        progress: Progress,
        *,
        unreadable: Callable[[int, FailedRow], None],
        on_trouble: Callable[[str | None], None],
    ) -> None:
        self._job = job
        self._index = index
        self._dispatcher = dispatcher
        self._progress = progress
        self._unreadable = unreadable
        self._on_trouble = on_trouble
        self.exhausted = False
        self.untaken = index.pending_count()
        self._taken = np.zeros(len(index.states), dtype=np.uint8)
        self._random = np.random.default_rng([job.seed, self.untaken])
        self._wanted = asyncio.Event()
        self._prompt_characters = 256.0 * 1024  # of a prompt, a moving average that begins careful
        self._refill_at = 1
        self._in_trouble = False

    def look(self) -> None:
        """Asks for more prompts when the queue runs low."""
        dispatcher = self._dispatcher
        if not self.exhausted and len(dispatcher.ready) < max(1, min(self._refill_at, dispatcher.limit())):
            self._wanted.set()

    def taken_among(self, seqs: list[int]) -> int:
        """How many of these prompts were taken up, rather than answered with an equal one."""
        return int(self._taken[seqs].sum())

    def take_up_rest(self) -> bool:
        """Whether prompts are pending that were never taken up; they are from now on.

        A duplicate whose primary's row is gone from the disk becomes a prompt to be asked after all.
        """
        pending: npt.NDArray[np.bool_] = self._index.states == State.PENDING
        self.untaken = int(np.count_nonzero(pending)) - int(np.count_nonzero(self._taken[pending]))
        if not self.untaken:
            return False
        self.exhausted = False
        self._wanted.set()
        return True

    async def run(self, may_go_on: Callable[[], bool], after: Callable[[], None]) -> None:
        """Fills the queue whenever it runs low; `after` is called each time."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self.exhausted or not may_go_on():
                continue
            await self._fill()
            after()

    async def _fill(self) -> None:
        limit = self._dispatcher.limit()
        fits = max(1, MAX_READY_CHARACTERS // max(1, int(self._prompt_characters)))
        count = min(max(2 * limit, REFILL_MIN), REFILL_MAX, fits)
        if self.untaken <= count + 2 * limit:
            count = self.untaken
        drawn = self._index.random_pending(count, self._random, self._taken)
        self._taken[drawn] = 1
        self.untaken -= len(drawn)
        seqs = drawn.tolist()
        tickets = []
        for seq, prompt in zip(seqs, await self._load(seqs), strict=True):
            if isinstance(prompt, FailedRow):
                self._unreadable(seq, prompt)
            else:
                ticket = Ticket(prompt, self._expected_tokens(prompt.source))
                tickets.append(ticket)
                self._prompt_characters += 0.05 * (_asked_characters(ticket) - self._prompt_characters)
        if not self.untaken or not seqs:
            # the last two latencies: longest first, so that no long answer begins at the very end
            tail = tickets[-2 * limit :] if limit else tickets
            tail.sort(key=lambda ticket: (-ticket.expected_tokens, -_asked_characters(ticket)))
            tickets[len(tickets) - len(tail) :] = tail
            self.exhausted = True
        self._refill_at = max(1, len(tickets) // 2)
        self._dispatcher.offer(tickets)

    async def _load(self, seqs: list[int]) -> list[Prompt | FailedRow]:
        """The prompts, read in a thread; while their source cannot be read the job waits for it."""
        while True:
            try:
                loaded = await asyncio.to_thread(self._index.load, seqs)
            except SourceUnavailable as error:
                self._in_trouble = True
                self._on_trouble(f"{error}; the job goes on when it can be read again")
                await asyncio.sleep(SOURCE_RETRY_SECONDS)
            else:
                if self._in_trouble:
                    self._in_trouble = False
                    self._on_trouble(None)
                return loaded

    def _expected_tokens(self, source: int) -> float:
        asked = self._job.sources[source].sampling.get("max_tokens") or FALLBACK_TOKENS
        return self._progress.expected_tokens(source, float(asked))


def _asked_characters(ticket: Ticket) -> int:
    request = ticket.prompt.request
    if request.text is not None:
        return len(request.text)
    return sum(len(str(message.get("content"))) for message in request.messages or ())
