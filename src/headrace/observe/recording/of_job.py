"""What `headrace run` records by itself, at a low rate, beside the job: its servers, answers and flights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from headrace.clock import Clock
from headrace.drive.companion import AnsweredRow, Moment
from headrace.durable.disk import Disk
from headrace.errors import InputError
from headrace.net.http import HttpClient
from headrace.net.redact import redact, without_user
from headrace.observe.recording.form import Answers, InFlight
from headrace.observe.recording.recorder import ServerLooks, server_looks
from headrace.observe.recording.writer import RecordingWriter

FOLDER = "recording"  # in the job's output folder
FLIGHTS_SECONDS = 30.0  # between two looks at what is in flight; more often while the job is young
YOUNG_SECONDS = 600.0


class JobRecorder:
    """The companion of a job that keeps a recording in OUT/recording.

    A disk that refuses costs the recording some minutes, never the job anything.

    Args:
        out: the job's output folder.
        every_seconds: between two looks at a server.
        sources: source → its max_tokens, None where nothing cuts an answer.
    """

    def __init__(
        self,
        out: Path,
        disk: Disk,
        clock: Clock,
        *,
        every_seconds: float,
        sources: Mapping[str, int | None],
    ) -> None:
        self._folder, self._disk, self._clock = out / FOLDER, disk, clock
        self._every = every_seconds
        self._sources = dict(sources)
        self._answers: dict[tuple[str, str], Answers] = {}
        self._looks: dict[str, ServerLooks] = {}

    def answered(self, row: AnsweredRow) -> None:
        """Notes a row: source, server, when, how long, how many tokens. Never what was asked or said."""
        key = row.source, row.server
        line = self._answers.get(key)
        if line is None:
            line = self._answers[key] = Answers(row.source, _shown(row.server), [], [], [])
        if row.truncated:
            line.cut.append(len(line.tokens))
        line.sent.append(row.started)
        line.seconds.append(round(row.seconds, 3))
        line.tokens.append(row.output_tokens)

    async def run(self, http: HttpClient, moment: Callable[[], Moment]) -> None:
        """Looks at the servers until it is cancelled, and puts everything on the disk as it goes."""
        writer = await asyncio.to_thread(self._open)
        next_flights = 0.0
        try:
            while True:
                now = moment()
                await self._look(now, http, writer)
                if writer.at() >= next_flights:
                    next_flights = writer.at() + (FLIGHTS_SECONDS if writer.at() > YOUNG_SECONDS else 0.0)
                    self._note_flights(moment(), writer)
                self._hand_over(writer)
                await _kept(asyncio.to_thread(writer.flush, writer.take()))
                await asyncio.sleep(self._every)
        finally:
            self._note_flights(moment(), writer)
            self._hand_over(writer)
            try:
                writer.close()
            except OSError:
                pass  # a full disk: what was flushed before is whole

    def _open(self) -> RecordingWriter:
        try:
            return RecordingWriter(
                self._folder, self._disk, self._clock, every_seconds=self._every, sources=self._sources
            )
        except InputError as problem:
            raise InputError(
                f"{problem} Move {self._folder} away: the job goes on without a recording."
            ) from None

    async def _look(self, now: Moment, http: HttpClient, writer: RecordingWriter) -> None:
        for url in now.servers:
            if url not in self._looks:
                self._looks[url] = server_looks(url, http)
        await asyncio.gather(*(self._one(self._looks[url], writer) for url in now.servers))

    @staticmethod
    async def _one(looks: ServerLooks, writer: RecordingWriter) -> None:
        if looks.reader is None:
            await looks.find()
        await looks.look(writer)

    def _note_flights(self, now: Moment, writer: RecordingWriter) -> None:
        sent: dict[str, dict[str, list[float]]] = {}
        for source, server, started in now.flights:
            by_server = sent.setdefault(source, {})
            by_server.setdefault(_shown(server), []).append(round(started - writer.began, 3))
        writer.add_line(InFlight(round(now.now - writer.began, 3), now.in_flight_limit, now.pending, sent))

    def _hand_over(self, writer: RecordingWriter) -> None:
        answers, self._answers = self._answers, {}
        for line in answers.values():
            line.sent = [round(sent - writer.began, 3) for sent in line.sent]
            writer.add_line(line)


async def _kept(flushing: Awaitable[None]) -> None:
    """Waits for a flush; a disk that refuses costs these lines, and the next flush tries again."""
    try:
        await flushing
    except OSError:
        return


def _shown(server: str) -> str:
    return redact(without_user(server))
