"""Watches a fleet: looks at all servers at once, and says what they show as one document per moment."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from headrace.clock import Clock
from headrace.diagnose.context import Context
from headrace.diagnose.pipeline import diagnose_as_told, view_of
from headrace.diagnosing import context_of, with_told
from headrace.drive.commands import read_status
from headrace.drive.job.servers import expand_server
from headrace.drive.status import JobStatus
from headrace.errors import InputError, UsageError
from headrace.net.http import HttpClient
from headrace.observe.job_folder import is_job_folder, read_job_folder
from headrace.observe.observation import ClientFacts, Event, Observation, ServerObservation
from headrace.observe.watched import Watched
from headrace.quantities import Quantity
from headrace.report.watch_document import ServerRow, VerdictLine, WatchDocument

VERDICT_SECONDS = 5.0  # between two verdicts at least
VERDICT_SHARE = 0.05  # of a core at most: a verdict on a large fleet comes more rarely
_SERVER = re.compile(r"(https?://|[\w.-]+:\d|\[)", re.IGNORECASE)
_GONE = ("removed", "drained")
FINAL_PHASES = ("finished", "stopped")
_NUMBERS = ("running", "queued", "cap", "kv_usage", "output_tokens_per_s", "step_seconds", "cache_hit_rate")


class Watching:
    """A fleet that is watched: servers by URL, and job folders with the servers that their jobs use now.

    Args:
        targets: URLs (ranges of ports too) and job folders.
        told: what the user told of the servers, as `diagnosing.with_told` takes it.

    Raises:
        UsageError: a target that is neither.
    """

    def __init__(
        self, targets: Sequence[str], http: HttpClient, clock: Clock, told: dict[str, str] | None = None
    ) -> None:
        self._http, self._clock, self._told = http, clock, told or {}
        self._urls, self._jobs = _sorted_out(targets)
        self._watched: dict[str, Watched] = {}
        self._start = clock.monotonic()
        self._phases: list[str] = ["starting"]
        self._verdict: tuple[VerdictLine, float] | None = None
        self._next_verdict = 0.0
        self._contexts: dict[tuple[str | None, ...], Context] = {}
        self._slots: dict[tuple[str | None, ...], float | None] = {}

    async def look(self) -> WatchDocument:
        """Looks at every server once, at the same time, and says what there is to see now."""
        jobs = await asyncio.gather(*(asyncio.to_thread(_read_job, folder) for folder in self._jobs))
        self._phases = [status.phase for status, _ in jobs]
        urls = list(self._urls)
        for status, _ in jobs:
            urls += [endpoint.url for endpoint in status.endpoints if endpoint.state not in _GONE]
        for url in urls:
            if url not in self._watched:
                self._watched[url] = Watched(url, self._http, self._clock)
        watched = [self._watched[url] for url in dict.fromkeys(urls)]
        await asyncio.gather(*(each.look() for each in watched))
        client = next((client for _, client in jobs if client is not None), None)
        read = Observation(tuple(each.seen() for each in watched), client=client)
        observation = with_told(read, **self._told)
        rows = tuple(
            self._row(each, server, observation)
            for each, server in zip(watched, observation.servers, strict=True)
        )
        verdict = await self._judged(watched, observation)
        seconds = self._clock.monotonic() - self._start
        return WatchDocument(seconds, rows, verdict, jobs[0][0] if jobs else None)

    @property
    def ended(self) -> bool:
        """Whether all that is watched are jobs, and all of them had ended at the last look."""
        return not self._urls and all(phase in FINAL_PHASES for phase in self._phases)

    def _row(self, watched: Watched, server: ServerObservation, observation: Observation) -> ServerRow:
        if server.engine is None:
            return ServerRow(server.name, watched.problem)
        context = self._context(server, observation)
        # the same numbers as `diagnose` has of this server; what is planned does not depend on the moment
        numbers = view_of(observation, server, Context()).baseline
        slots, capacity = self._slots_per_request(server, observation, context), server.value("state_slots")
        running, held = server.value("running"), server.value("state_usage")
        used = server.value("state_used_slots")
        if held is None and used is not None and capacity:
            held = used / capacity
        reserved = None
        if slots is not None and capacity and running is not None:
            reserved = min(1.0, running * slots / capacity)
        return ServerRow(
            server.name,
            watched.problem,
            server.engine,
            state_held=held,
            state_reserved=reserved,
            gpu_power_w=server.value("gpu_power_w"),
            sm_clock_mhz=server.value("sm_clock_mhz"),
            **{name: numbers.value(name) for name in _NUMBERS},
        )

    def _slots_per_request(
        self, server: ServerObservation, observation: Observation, context: Context
    ) -> float | None:
        """State slots that one request reserves: as told, else by the plan of these flags."""
        told = server.value("slots_per_request")
        if told is not None or server.value("state_slots") is None:
            return told
        key = (server.flags, *_named(server))
        if key not in self._slots:
            planned = view_of(observation, server, context).planned
            found: Quantity | None = planned.plan.figures.get("slots_per_request") if planned else None
            self._slots[key] = found.value if found is not None else None
        return self._slots[key]

    def _context(self, server: ServerObservation, observation: Observation) -> Context:
        key = _named(server)
        if key not in self._contexts:
            self._contexts[key] = context_of(Observation((server,), client=observation.client))
        return self._contexts[key]

    async def _judged(self, watched: Sequence[Watched], observation: Observation) -> VerdictLine | None:
        """The newest verdict, with its age; a new one where it is time."""
        now = self._clock.monotonic()
        if not watched:
            return None
        if now >= self._next_verdict or self._verdict is None:
            pairs = list(zip(watched, observation.servers, strict=True))
            servers = tuple(_silent(each) if each.problem else server for each, server in pairs)
            first = next((server for each, server in pairs if not each.problem), servers[0])
            asked = Observation(servers, client=observation.client)
            context = self._context(first, observation)
            found = (await asyncio.to_thread(diagnose_as_told, asked, context)).binding
            took = self._clock.monotonic() - now
            self._next_verdict = now + max(VERDICT_SECONDS, took / VERDICT_SHARE)
            evidence = found.evidence[0] if found.evidence else ""
            self._verdict = (VerdictLine(str(found.constraint), found.confidence, evidence, 0.0), now)
        line, since = self._verdict
        age = self._clock.monotonic() - since
        return VerdictLine(line.constraint, line.confidence, line.evidence, age)


def _read_job(folder: Path) -> tuple[JobStatus, ClientFacts | None]:
    """A job's status, and its client's side where the job is live."""
    status, live = read_status(folder)
    try:
        client = read_job_folder(folder)[0].client if live else None
    except InputError:  # half-written by a job that starts
        client = None
    return status, client


def _silent(watched: Watched) -> ServerObservation:
    """A server that does not answer, as evidence: what it showed before is not how it is now."""
    return ServerObservation(
        watched.name, events=(Event("unreachable", "failure", 1, watched.problem[:400]),)
    )


def _named(server: ServerObservation) -> tuple[str | None, ...]:
    return (server.engine, server.engine_version, server.model, server.gpu)


def _sorted_out(targets: Sequence[str]) -> tuple[list[str], list[Path]]:
    urls: list[str] = []
    jobs: list[Path] = []
    problems = []
    for target in targets:
        if is_job_folder(Path(target)):
            jobs.append(Path(target))
        elif _SERVER.match(target) and not Path(target).exists():
            try:
                urls += expand_server(target if "://" in target else f"http://{target}")
            except ValueError as error:
                problems.append(str(error))
        else:
            problems.append(
                f"'{target[:200]}' is no server's URL and no job folder. watch takes those; for a log or a "
                "facts file: headrace diagnose."
            )
    if not targets:
        problems.append("nothing was named: give servers' URLs or a job folder.")
    if problems:
        raise UsageError(problems)
    return urls, jobs
