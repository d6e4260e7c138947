"""Runs a job: the one shell around the pure machines of this room.

One event loop. A finished request frees its permit, lands in the writer's batch, and the next one
leaves in the same callback; nothing here is done per token. A row counts when it is durable. The file is
long because it is the one place with sockets, threads, signals and time; what can be decided without them
stands in the modules beside it.

    refill ─▶ dispatcher.ready ─▶ flight ─▶ outcome ─▶ landing ─▶ writer ─▶ (durable) ─▶ counted
                    ▲                                    │
                    └── dispatcher.again (later, fault) ◀┘
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import uvloop

from headrace.clock import Clock, SystemClock
from headrace.drive import commands
from headrace.drive.control import ControlServer
from headrace.drive.dispatch.dispatcher import Dispatcher
from headrace.drive.dispatch.endpoint import EndpointState
from headrace.drive.dispatch.ticket import Flight, Ticket
from headrace.drive.fleet_view import look_at_all, served_model
from headrace.drive.interpreter import give_memory_back, signals_restored, tuned_interpreter
from headrace.drive.job import Job
from headrace.drive.job.api_key import read_api_key
from headrace.drive.landing import Landing
from headrace.drive.limits_of_process import FEW, allow_open_files, require_arrow
from headrace.drive.outcome import Outcome, Refused, ServerFault, outcome_of
from headrace.drive.progress import Progress, SourceCount
from headrace.drive.prompts import Prompt
from headrace.drive.servers import Servers
from headrace.drive.signals import LoadReader, NoLoad
from headrace.drive.snapshot import snapshot
from headrace.drive.status import JobStatus
from headrace.drive.store.index import PromptIndex, SourceUnavailable
from headrace.drive.store.indexing import build_index
from headrace.drive.store.job_store import Store
from headrace.drive.store.rows import FailedRow, Row
from headrace.drive.store.states import State
from headrace.drive.store.writer import RowWriter
from headrace.drive.tally import Tally, tally_rows
from headrace.durable.disk import is_full
from headrace.errors import HeadraceError, Interrupted, JobStopped, StorageError
from headrace.net.http import HttpClient, HttpFailure

TICK_SECONDS = 1.0
RAMP_SECONDS = 0.5
STATUS_FILE_SECONDS = 2.0
# Answers waiting for the disk: beyond, nothing new is sent, so that a slow disk cannot fill the memory.
MAX_BACKLOG_CHARACTERS = 8 * 1024 * 1024
MAX_BACKLOG_ROWS = 768  # three batches: what a kill may cost beside what is in flight
MAX_READY_CHARACTERS = 16 * 1024 * 1024  # of prompts read ahead
SOURCE_RETRY_SECONDS = 5.0
FALLBACK_TOKENS = 512.0  # expected output tokens of a row while nothing at all is known
REFILL_MIN, REFILL_MAX = 64, 1024
# A job whose first answers are nearly all refusals is misconfigured: stop before 654,676 rows fail.
REFUSED_TO_STOP, REFUSED_SHARE_TO_STOP = 50, 0.9


class Driver:
    """One run of one job; `run` does it all."""

    def __init__(
        self,
        job: Job,
        *,
        on_status: Callable[[JobStatus], None],
        status_every_seconds: float,
        load_reader: Callable[[], LoadReader],
        clock: Clock,
    ) -> None:
        self.job = job
        self.clock = clock
        self.started = clock.monotonic()
        self.phase = "starting"
        self.message = ""
        self.trouble: str | None = None  # what the disk said, while it refuses
        self.dispatcher = Dispatcher()
        self.progress = Progress(self.started, [SourceCount() for _ in job.sources])
        self.servers = Servers(
            self.dispatcher,
            clock,
            in_flight=job.in_flight,
            load_reader=load_reader,
            cut_short=self._cut_short,
        )
        self.landing = Landing(
            job,
            self.dispatcher,
            self.servers.limits,
            self.progress,
            clock,
            save_row=self._save_row,
            save_failure=self._save_failure,
            cut_short=lambda flight: self._cut_short(flight, None),
        )
        self._on_status = on_status
        self._status_every = status_every_seconds
        self._tasks: dict[Flight, asyncio.Task[None]] = {}
        self._cut: dict[Flight, ServerFault | None] = {}
        self._wake: asyncio.TimerHandle | None = None
        # what every body gets beside its own: the served model, and vLLM's switch for output token ids
        # (SGLang's /generate returns them unasked, its other paths have none)
        self._added: dict[str, Any] = {"return_token_ids": True} if job.token_ids else {}
        self._fed_since = self.started
        self._exhausted = False  # every pending prompt has been taken up
        self._unsaved = 0  # prompts handed to the writer and not yet durable
        self._prompt_characters = 256.0 * 1024  # of a prompt, a moving average that begins careful
        self._refill_at = 1
        self._row_characters = 8192.0  # of an answer, a moving average
        self._max_backlog = MAX_BACKLOG_ROWS
        self.failures: Counter[str] = Counter()  # rows in failed/ by kind
        self.notes: list[str] = []
        self._stop_reason: str | None = None
        self._fatal: StorageError | None = None
        self._interrupted = False  # by a second Ctrl-C

    # the run

    def run(self) -> JobStatus:
        """Runs the job to its end, or until it is stopped; the last status.

        Raises:
            HeadraceError: the job cannot begin (see each module), or JobStopped when it ended early.
        """
        require_arrow()
        self._max_flights = allow_open_files()
        self.store = Store.open(self.job, clock=self.clock)
        try:
            self.index: PromptIndex = build_index(self.store, self.job, self._report_scan)
            self.notes = self.store.notes
            self.failures.update(self.store.failure_counts())
            if self._max_flights < max(FEW, (self.job.in_flight or 0) * len(self.job.servers)):
                self.notes.append(
                    f"this process may open few files (`ulimit -n`): at most {self._max_flights:,} requests "
                    "are kept in flight"
                )
            self._untaken = self.index.pending_count()
            self._taken = np.zeros(len(self.index.states), dtype=np.uint8)
            self._random = np.random.default_rng([self.job.seed, self._untaken])
            give_memory_back()
            runner_of_uvloop = asyncio.Runner(loop_factory=uvloop.new_event_loop)
            with signals_restored(), tuned_interpreter(), runner_of_uvloop as runner:
                return runner.run(self._main())
        finally:
            self.store.close()

    def _report_scan(self, rows: int, fraction: float) -> None:
        self.message = f"reading prompts: {rows:,} rows, {fraction:.0%}"
        status = snapshot(self, None)
        if not (self.job.out / commands.STATUS_NAME).exists():
            self._write_status(status)  # whoever waits for this process sees that it lives
        self._on_status(status)

    async def _main(self) -> JobStatus:
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(2, "headrace-files"))  # prompts, status file
        self._refill_wanted = asyncio.Event()
        self._over = asyncio.Event()
        self.writer = RowWriter(
            self.store,
            self.job,
            self._durable_in_thread,
            self._trouble_in_thread,
            on_failed=self._failed_in_thread,
        )
        control = ControlServer(self.job.out, self._command)
        try:
            began = self.clock.wall()
            if not self._untaken:
                self._add_earlier(tally_rows(self.job.out, began))
            else:  # a job that is done already needs no server
                async with HttpClient(read_api_key(self.job)) as self.http:
                    await self._meet_servers()
                    await control.start()
                    self._hear_signals()
                    self.phase, self.message = "running", ""
                    await self._feed()
        finally:
            await control.stop()
            await asyncio.to_thread(self.writer.close, True)
        return self._conclude()

    async def _meet_servers(self) -> None:
        looks = await look_at_all(self.http, self.job.servers)
        self.landing.model = model = served_model(self.job.model, looks)
        if model is not None:
            self.store.pin_model(model)
            self._added["model"] = model
        for seen in looks:
            endpoint = self.servers.add(seen.url)
            if seen.why is not None:
                endpoint.on_silent(self.clock.monotonic(), seen.why)

    async def _feed(self) -> None:
        """The run itself, between the first look at the servers and the last row on disk."""
        self._fed_since = self.clock.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                background = [
                    group.create_task(self._refill()),
                    group.create_task(self._tick()),
                    group.create_task(self._tally()),
                ]
                await self._over.wait()
                for task in [*background, *self._tasks.values()]:
                    task.cancel()
        except* HeadraceError as errors:
            raise errors.exceptions[0] from None
        if self._fatal is not None:
            raise self._fatal

    async def _tally(self) -> None:
        """What the rows of earlier runs were like, read beside the run."""
        if self.index.count(State.DONE):
            self._add_earlier(await asyncio.to_thread(tally_rows, self.job.out, self.clock.wall()))

    def _add_earlier(self, earlier: Tally) -> None:
        self.progress.flags.update(earlier.flags)
        for number, source in enumerate(self.job.sources):
            if source.name in earlier.sources:
                self.progress.add_earlier(number, earlier.sources[source.name])

    def _conclude(self) -> JobStatus:
        left = self.index.pending_count()
        self.phase = "finished" if left == 0 else "stopped"
        self.message = "" if left == 0 else self._stop_reason or ""
        last = snapshot(self, self.index)
        self._write_status(last)
        self._on_status(last)
        if left:
            kind = Interrupted if self._interrupted else JobStopped
            raise kind(f"{self._stop_reason} {left:,} prompts are left; the same command goes on with them.")
        return last

    # sending

    def pump(self) -> None:
        """Sends as much as there is room for. Called whenever a permit, a prompt or a moment comes."""
        if self.phase != "running" or self.trouble is not None or self.writer.backlog() > self._max_backlog:
            return
        now = self.clock.monotonic()
        dispatcher = self.dispatcher
        allowed = self._allowed(now)
        while len(dispatcher.flights) < allowed:
            flight = dispatcher.next_flight(now)
            if flight is None:
                break
            self._launch(flight)
        if self._exhausted and self.job.hedge_tail:
            while (flight := dispatcher.hedge(now)) is not None:
                self.progress.hedged += 1
                self._launch(flight)
        if not self._exhausted and len(dispatcher.ready) < max(1, min(self._refill_at, dispatcher.limit())):
            self._refill_wanted.set()
        self._set_wake(now)

    def _allowed(self, now: float) -> int:
        """Requests in flight at most: all that the process may, after a ramp in the run's first half second.

        Sent all at once, requests of like length come back all at once for ever, and queue here: spread over
        the ramp, 256 of them at a 200 ms server keep their distance.
        """
        share = (now - self._fed_since) / RAMP_SECONDS
        return (
            self._max_flights
            if share >= 1
            else min(self._max_flights, 1 + int(share * self.dispatcher.limit()))
        )

    def _launch(self, flight: Flight) -> None:
        self.progress.tries += 1
        self._tasks[flight] = self._group.create_task(self._fly(flight))

    async def _fly(self, flight: Flight) -> None:
        """One request from leaving to landing."""
        request = flight.ticket.prompt.request
        body = {**request.body, **self._added}
        outcome: Outcome | None = None
        try:
            response = await self.http.post(flight.url + request.path, msgspec.json.encode(body))
            outcome = outcome_of(response, request.path, keep_token_ids=self.job.token_ids)
        except HttpFailure as failure:
            outcome = ServerFault(failure.kind, str(failure))
        except asyncio.CancelledError:
            if flight not in self._cut:
                raise
            outcome = self._cut[flight]
        finally:
            self._cut.pop(flight, None)
            del self._tasks[flight]
            self.dispatcher.landed(flight)
        if outcome is not None:
            self.landing.land(flight, outcome)
            if isinstance(outcome, Refused):
                self._stop_if_refused()
        self.pump()

    def _cut_short(self, flight: Flight, outcome: ServerFault | None) -> None:
        """Cancels a request; `outcome` is what it then counts as (None: nothing, its row is answered)."""
        task = self._tasks.get(flight)
        if task is not None and flight not in self._cut:
            self._cut[flight] = outcome
            self._loop.call_soon(task.cancel)  # soon: a task that has not begun could not clean up

    def _set_wake(self, now: float) -> None:
        """Wakes the pump when the first waiting ticket's, or limited endpoint's, time comes."""
        due = self.dispatcher.next_wake()
        if now - self._fed_since < RAMP_SECONDS:
            due = now + RAMP_SECONDS / max(self.dispatcher.limit(), 100)
        if self.dispatcher.ready or due is not None:
            for endpoint in self.dispatcher.endpoints.values():
                if endpoint.state is EndpointState.LIMITED and endpoint.not_before > now:
                    due = endpoint.not_before if due is None or due <= now else min(due, endpoint.not_before)
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if due is not None and due > now:
            self._wake = self._loop.call_later(due - now, self.pump)

    # the queue

    async def _refill(self) -> None:
        """Keeps the queue filled with prompts, read and built in a thread."""
        while True:
            await self._refill_wanted.wait()
            self._refill_wanted.clear()
            if self._exhausted or self.phase != "running":
                continue
            limit = self.dispatcher.limit()
            fits = max(1, MAX_READY_CHARACTERS // max(1, int(self._prompt_characters)))
            count = min(max(2 * limit, REFILL_MIN), REFILL_MAX, fits)
            if self._untaken <= count + 2 * limit:
                count = self._untaken
            seqs = self.index.random_pending(count, self._random, self._taken)
            self._taken[seqs] = 1
            self._untaken -= len(seqs)
            loaded = await self._load(seqs.tolist())
            tickets = []
            for seq, prompt in zip(seqs.tolist(), loaded, strict=True):
                if isinstance(prompt, FailedRow):
                    self._save_failure(seq, prompt)
                else:
                    ticket = Ticket(prompt, self._expected_tokens(prompt.source))
                    tickets.append(ticket)
                    self._prompt_characters += 0.05 * (_asked_characters(ticket) - self._prompt_characters)
            if not self._untaken or not len(seqs):
                # the last two latencies: longest first, so that no long answer begins at the very end
                tail = tickets[-2 * limit :] if limit else tickets
                tail.sort(key=lambda ticket: (-ticket.expected_tokens, -_asked_characters(ticket)))
                tickets[len(tickets) - len(tail) :] = tail
                self._exhausted = True
            self._refill_at = max(1, len(tickets) // 2)
            self.dispatcher.offer(tickets)
            self.pump()
            self._maybe_over()

    async def _load(self, seqs: list[int]) -> list[Prompt | FailedRow]:
        """The prompts, read in a thread; while their source cannot be read the job waits for it."""
        while True:
            try:
                loaded = await asyncio.to_thread(self.index.load, seqs)
            except SourceUnavailable as error:
                self._set_trouble(f"{error}; the job goes on when it can be read again")
                await asyncio.sleep(SOURCE_RETRY_SECONDS)
            else:
                if self.trouble is not None and "can be read again" in self.trouble:
                    self._set_trouble(None)
                return loaded

    def _pending(self) -> npt.NDArray[np.bool_]:
        pending: npt.NDArray[np.bool_] = self.index.states == State.PENDING
        return pending

    def _expected_tokens(self, source: int) -> float:
        asked = self.job.sources[source].sampling.get("max_tokens") or FALLBACK_TOKENS
        return self.progress.expected_tokens(source, float(asked))

    def _maybe_over(self) -> None:
        """Ends the run when nothing is left to send, to come back, or to reach the disk."""
        dispatcher = self.dispatcher
        nothing_left = self._exhausted and not dispatcher.ready and not dispatcher.waiting
        if (nothing_left or self.phase == "draining") and not dispatcher.flights and not self._unsaved:
            # a duplicate whose primary's row is gone from the disk becomes a prompt to be asked after all
            self._untaken = self.index.pending_count() - int(np.count_nonzero(self._taken[self._pending()]))
            if self._untaken and self.phase == "running":
                self._exhausted = False
                self._refill_wanted.set()
            elif not self.index.count(State.DUPLICATE) or self.phase == "draining":
                self._over.set()

    # the writer, whose thread calls the two `_in_thread`

    def _save_row(self, seq: int, row: Row) -> None:
        self._unsaved += 1
        self._row_characters += 0.01 * (len(row.answer) + len(row.reasoning or "") - self._row_characters)
        self._max_backlog = min(MAX_BACKLOG_ROWS, MAX_BACKLOG_CHARACTERS // (1 + int(self._row_characters)))
        self.writer.submit_row(seq, row)

    def _save_failure(self, seq: int, failed: FailedRow) -> None:
        self._unsaved += 1
        self.failures[failed.kind] += 1
        self.writer.submit_failure(seq, failed)

    def _durable_in_thread(self, done: Sequence[int], failed: Sequence[int]) -> None:
        self._loop.call_soon_threadsafe(self._durable, [*done, *failed])

    def _trouble_in_thread(self, message: str | None) -> None:
        self._loop.call_soon_threadsafe(self._set_trouble, message)

    def _failed_in_thread(self, error: StorageError) -> None:
        self._loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: StorageError) -> None:
        """Ends the run: answers cannot be kept any more, so none may be asked for."""
        self._fatal = error
        self._over.set()

    def _durable(self, seqs: list[int]) -> None:
        # duplicates that share an answer come with it, but were never taken up themselves
        self._unsaved -= int(self._taken[seqs].sum())
        self.pump()
        self._maybe_over()

    def _set_trouble(self, message: str | None) -> None:
        self.trouble = message
        self.pump()

    # time

    async def _tick(self) -> None:
        """Once a second: looks at servers, bounds, status."""
        next_status = next_file = 0.0
        while True:
            now = self.clock.monotonic()
            self.servers.watch(self._group, self.http, self.pump)
            self.servers.give_up_stalled()
            self._enforce_timeout(now)
            self._stop_if_refused()
            endpoints = self.dispatcher.endpoints.values()
            self.progress.sample(
                now,
                {e.url: e.in_flight * now - e.started_sum for e in endpoints},
                {e.url: (e.answered, e.output_tokens) for e in endpoints},
            )
            self.pump()
            self._maybe_over()
            if now >= min(next_status, next_file):
                status = snapshot(self, self.index)
                if now >= next_status:
                    next_status = now + self._status_every
                    self._on_status(status)
                if now >= next_file:
                    next_file = now + STATUS_FILE_SECONDS
                    await asyncio.to_thread(self._write_status, status)
            await asyncio.sleep(min(TICK_SECONDS, self._status_every))

    def _write_status(self, status: JobStatus) -> None:
        """Leaves a snapshot for those who cannot reach the socket; no record, so a full disk may skip it."""
        try:
            self.store.disk.write_atomic(self.job.out / commands.STATUS_NAME, msgspec.json.encode(status))
        except OSError as error:
            if not is_full(error):
                raise

    def _enforce_timeout(self, now: float) -> None:
        limit_seconds = self.job.request_timeout_seconds
        for flight in self.dispatcher.flights:
            if flight.started < now - limit_seconds:
                why = f"no answer within {limit_seconds:g} s (--request-timeout)"
                self._cut_short(flight, ServerFault("timeout", why))

    # stopping, and commands

    def _hear_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may; a job run elsewhere is stopped over the control socket
        self._loop.add_signal_handler(signal.SIGINT, self._interrupt)
        self._loop.add_signal_handler(signal.SIGTERM, self._interrupt)
        detached = bool(os.environ.get("HEADRACE_DETACHED"))
        self._loop.add_signal_handler(signal.SIGHUP, (lambda: None) if detached else self._interrupt)

    def _interrupt(self) -> None:
        """First: send nothing new, let what runs finish. Second: stop now."""
        if self.phase == "draining":
            self._interrupted = True
            self._stop_reason = "Stopped at once; what was in flight will be asked again."
            self._over.set()
        else:
            self.drain(
                f"Drained on request; {self.dispatcher.in_flight()} requests in flight were let finish."
            )

    def drain(self, reason: str) -> None:
        """Sends nothing new; the run ends when what is in flight has landed."""
        self.phase, self._stop_reason = "draining", reason
        self.message = f"{reason} Nothing new is sent; interrupt again to stop at once."
        self._maybe_over()

    def _stop_if_refused(self) -> None:
        """Stops a job that every server, or every answer, refuses: nothing good can come of going on."""
        if self.phase != "running":
            return
        said = self.servers.all_refuse()
        if said is not None:
            self.drain(f"Every server refuses this job: {said}.")
        refused = self.landing.refused
        landed = self.progress.answers + refused
        if refused >= REFUSED_TO_STOP and refused >= REFUSED_SHARE_TO_STOP * landed:
            self.drain(
                f"{refused} of {landed} requests were refused by the servers, so the job was stopped before "
                "all are: read their words in failed/failed.jsonl, mend the cause, then --retry-failed."
            )

    async def _command(self, command: dict[str, Any]) -> dict[str, Any]:
        reply = await commands.carry_out(self, command)
        self.pump()
        return reply


def run_job(
    job: Job,
    *,
    on_status: Callable[[JobStatus], None] = lambda status: None,
    status_every_seconds: float = 1.0,
    load_reader: Callable[[], LoadReader] = NoLoad,
    clock: Clock | None = None,
) -> JobStatus:
    """The job's last status, after running it to its end.

    Args:
        job: validated.
        on_status: called with a fresh status about every `status_every_seconds`, in the event loop.
        load_reader: makes a reader of one server's load.

    Raises:
        HeadraceError: the job cannot begin; JobStopped when it ended before its end.
    """
    driver = Driver(
        job,
        on_status=on_status,
        status_every_seconds=status_every_seconds,
        load_reader=load_reader,
        clock=clock or SystemClock(),
    )
    return driver.run()


def _asked_characters(ticket: Ticket) -> int:
    request = ticket.prompt.request
    if request.text is not None:
        return len(request.text)
    return sum(len(str(message.get("content"))) for message in request.messages or ())
