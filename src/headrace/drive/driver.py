"""Runs a job: the one shell around the pure machines of this room.

One event loop, and a thread that writes. A finished request frees its permit and the next one leaves in the
same callback; then it lands in the writer's batch. Nothing here is done per token. A row counts when it is
durable. What can be decided without sockets, threads, signals and time stands in the modules beside it.

    refill ─▶ dispatcher.ready ─▶ sender ─▶ outcome ─▶ landing ─▶ writer ─▶ (durable) ─▶ counted
                    ▲                                    │
                    └── dispatcher.again (later, fault) ◀┘
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import uvloop

from headrace.clock import Clock, SystemClock
from headrace.drive import commands
from headrace.drive.companion import Companion, accompany
from headrace.drive.control import ControlServer
from headrace.drive.dispatch.dispatcher import Dispatcher
from headrace.drive.dispatch.ticket import Flight
from headrace.drive.fleet_view import look_at_all, served_model
from headrace.drive.interpreter import (
    give_memory_back,
    hear_signals,
    signals_restored,
    tuned_interpreter,
)
from headrace.drive.job import Job
from headrace.drive.job.api_key import read_api_key
from headrace.drive.keeper import Keeper
from headrace.drive.landing import Landing
from headrace.drive.limits_of_process import allow_open_files, note_of_few_files, require_arrow
from headrace.drive.outcome import Outcome, Refused
from headrace.drive.progress import Progress, SourceCount
from headrace.drive.refill import Refill
from headrace.drive.sender import Sender
from headrace.drive.servers import Servers
from headrace.drive.signals import LoadReader, NoLoad
from headrace.drive.snapshot import snapshot
from headrace.drive.status import JobStatus
from headrace.drive.store.index import PromptIndex
from headrace.drive.store.indexing import build_index
from headrace.drive.store.job_store import Store
from headrace.drive.store.rows import FailedRow
from headrace.drive.store.states import State
from headrace.drive.tally import tally_rows
from headrace.durable.disk import is_full
from headrace.errors import HeadraceError, Interrupted, JobStopped
from headrace.net.http import HttpClient

TICK_SECONDS = 1.0
STATUS_FILE_SECONDS = 2.0
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
        companion: Companion | None = None,
    ) -> None:
        self.job = job
        self._companion = companion
        self.clock = clock
        self.started = clock.monotonic()
        self.phase = "starting"
        self.message = ""
        self._troubles: dict[str, str] = {}  # what the disk or a source said, while it refuses
        self.dispatcher = Dispatcher()
        self.progress = Progress(self.started, [SourceCount() for _ in job.sources])
        self.sender = Sender(
            self.dispatcher, clock, keep_token_ids=job.token_ids, land=self._land, pump=self.pump
        )
        self.servers = Servers(
            self.dispatcher,
            clock,
            in_flight=job.in_flight,
            load_reader=load_reader,
            cut_short=self.sender.cut_short,
        )
        self.keeper = Keeper(
            on_durable=self._durable,
            on_trouble=lambda said: self._set_trouble("disk", said),
            on_failed=self._end,
        )
        self.landing = Landing(
            job,
            self.dispatcher,
            self.servers.limits,
            self.progress,
            clock,
            save_row=self.keeper.save_row,
            save_failure=self._save_failure,
            cut_short=lambda flight: self.sender.cut_short(flight, None),
            companion=companion,
        )
        self._on_status = on_status
        self._status_every = status_every_seconds
        self.failures: Counter[str] = Counter()  # rows in failed/ by kind
        self.notes: list[str] = []
        self._stop_reason: str | None = None
        self._fatal: BaseException | None = None
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
            self.notes += note_of_few_files(
                self._max_flights, (self.job.in_flight or 0) * len(self.job.servers)
            )
            self.refill = Refill(
                self.job,
                self.index,
                self.dispatcher,
                self.progress,
                unreadable=self._save_failure,
                on_trouble=lambda said: self._set_trouble("source", said),
            )
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
        self._loop.set_exception_handler(self._fault_in_callback)
        self._loop.set_default_executor(ThreadPoolExecutor(2, "headrace-files"))  # prompts, status file
        self._over = asyncio.Event()
        self.keeper.begin(self.store, self.job)
        control = ControlServer(self.job.out, self._command)
        try:
            if not self.refill.untaken:
                tally_rows(self.job.out, self.clock.wall()).add_to(self.progress, self.job.sources)
            else:  # a job that is done already needs no server
                async with HttpClient(read_api_key(self.job)) as self.http:
                    await self._meet_servers()
                    await control.start()
                    hear_signals(self._loop, self._interrupt)
                    self.phase, self.message = "running", ""
                    await self._feed()
        finally:
            await control.stop()
            await asyncio.to_thread(self.keeper.end)
        return self._conclude()

    async def _meet_servers(self) -> None:
        looks = await look_at_all(self.http, self.job.servers)
        self.landing.model = model = served_model(self.job.model, looks)
        if model is not None:
            self.store.pin_model(model)
            self.sender.added["model"] = model
        for seen in looks:
            endpoint = self.servers.add(seen.url)
            if seen.why is not None:
                endpoint.on_silent(self.clock.monotonic(), seen.why)

    async def _feed(self) -> None:
        """The run itself, between the first look at the servers and the last row on disk."""
        self.sender.begin(self.http, self._max_flights)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                background = [
                    group.create_task(self.refill.run(lambda: self.phase == "running", self._filled)),
                    group.create_task(self.sender.land()),
                    group.create_task(self._tick()),
                    group.create_task(self._tally()),
                    group.create_task(accompany(self, companion=self._companion)),
                ]
                await self._over.wait()
                for task in (*background, *self.servers.looks):
                    task.cancel()
        except* HeadraceError as errors:
            raise errors.exceptions[0] from None
        if self._fatal is not None:
            raise self._fatal
        self.sender.land_rest()

    async def _tally(self) -> None:
        """What the rows of earlier runs were like, read beside the run."""
        if self.index.count(State.DONE):
            earlier = await asyncio.to_thread(tally_rows, self.job.out, self.clock.wall())
            earlier.add_to(self.progress, self.job.sources)

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
        if self.phase != "running" or self._troubles or self.keeper.is_behind():
            return
        hedge = self.refill.exhausted and self.job.hedge_tail
        self.progress.hedged += self.sender.send(self.clock.monotonic(), hedge=hedge)
        self.refill.look()

    def _land(self, flight: Flight, outcome: Outcome, now: float) -> None:
        self.landing.land(flight, outcome, now)
        if isinstance(outcome, Refused):
            self._stop_if_refused()

    def _filled(self) -> None:
        self.pump()
        self._maybe_over()

    def _maybe_over(self) -> None:
        """Ends the run when nothing is left to send, to come back, or to reach the disk."""
        dispatcher = self.dispatcher
        nothing_left = self.refill.exhausted and not dispatcher.ready and not dispatcher.waiting
        draining = self.phase == "draining"
        if (nothing_left or draining) and self.sender.is_empty() and not self.keeper.unsaved:
            if self.refill.take_up_rest() and self.phase == "running":
                return
            if not self.index.count(State.DUPLICATE) or draining:
                self._over.set()

    # what was saved, and what went wrong

    def _save_failure(self, seq: int, failed: FailedRow) -> None:
        self.failures[failed.kind] += 1
        self.keeper.save_failure(seq, failed)

    def _end(self, error: BaseException) -> None:
        """Ends the run: answers cannot be kept any more, say, so none may be asked for."""
        self._fatal = error
        self._over.set()

    def _fault_in_callback(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Ends the run on a fault that nobody else would hear; a transport's own error ends its request."""
        fault = context.get("exception")
        if fault is None or isinstance(fault, OSError):
            loop.default_exception_handler(context)
        else:
            self._end(fault)

    def _durable(self, seqs: list[int]) -> None:
        # duplicates that share an answer come with it, but were never taken up themselves
        self.keeper.unsaved -= self.refill.taken_among(seqs)
        self.pump()
        self._maybe_over()

    def _set_trouble(self, where: str, said: str | None) -> None:
        if said is None:
            self._troubles.pop(where, None)
        else:
            self._troubles[where] = said
        self.pump()

    @property
    def trouble(self) -> str | None:
        """What holds the job up now: what the disk or a source said; None when nothing does."""
        return next(iter(self._troubles.values()), None)

    # time

    async def _tick(self) -> None:
        """Once a second: looks at servers, bounds, status."""
        next_status = next_file = 0.0
        while True:
            now = self.clock.monotonic()
            self.servers.watch(self._group, self.http, self.pump)
            self.servers.give_up_stalled()
            self.sender.enforce_timeout(now, self.job.request_timeout_seconds)
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
            due = self.clock.monotonic() + min(TICK_SECONDS, self._status_every)
            await asyncio.sleep(min(TICK_SECONDS, self._status_every))
            self.dispatcher.woke(due, self.clock.monotonic())

    def _write_status(self, status: JobStatus) -> None:
        """Leaves a snapshot for those who cannot reach the socket; no record, so a full disk may skip it."""
        try:
            self.store.disk.write_atomic(self.job.out / commands.STATUS_NAME, msgspec.json.encode(status))
        except OSError as error:
            if not is_full(error):
                raise

    # stopping, and commands

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
    companion: Companion | None = None,
) -> JobStatus:
    """The job's last status, after running it to its end.

    Args:
        job: validated.
        on_status: called with a fresh status about every `status_every_seconds`, in the event loop.
        load_reader: makes a reader of one server's load.
        companion: runs beside it; None: nobody.

    Raises:
        HeadraceError: the job cannot begin; JobStopped when it ended before its end.
    """
    return Driver(
        job,
        on_status=on_status,
        status_every_seconds=status_every_seconds,
        load_reader=load_reader,
        clock=clock or SystemClock(),
        companion=companion,
    ).run()
