"""The generation requests of one emulated server: understood, admitted, answered or spoilt, counted."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from aiohttp import web

from headrace.simulate.emulate import answers, asked, metrics
from headrace.simulate.emulate.engine import Engine, Flight
from headrace.simulate.emulate.faults import FaultDraw, Faults
from headrace.simulate.emulate.journal import Journal
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.timing import Finished
from headrace.simulate.emulate.vllm_answers import VllmStream, refused_by_vllm, unknown_model, vllm_whole
from headrace.simulate.emulate.vllm_metrics import VllmMetrics

_HTML = "<html><head><title>502</title></head><body><h1>Bad Gateway</h1>proxy</body></html>"


@dataclass(slots=True)
class ReplicaStats:
    """What one server has seen since it was made; restarts do not reset it.

    Attributes:
        received: generation requests whose body arrived.
        answered: good answers (200, whole).
        refused: 4xx, and 503 for a full queue.
        faulted: requests that a fault hit.
        aborted: ended by the client's going away or by /abort_request.
        in_flight, max_in_flight: generation requests inside, now and at most.
        running, queued: inside the engine now.
        starts, stops: how often it was started, and told to stop.
    """

    received: int = 0
    answered: int = 0
    refused: int = 0
    faulted: int = 0
    aborted: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    running: int = 0
    queued: int = 0
    starts: int = 0
    stops: int = 0


class Generation:
    """What a server does with POST /v1/chat/completions, /v1/completions and /generate.

    Args:
        options: of the fleet.
        engine: of this start of the server.
        stats, page: counted up.
        draw: of the server; `faults` says what is wrong right now.
        journal: shared by the fleet, or None.
        on_good: called when a good answer is about to leave.
    """

    def __init__(
        self,
        options: EmulatorOptions,
        engine: Engine,
        stats: ReplicaStats,
        page: metrics.ServerMetrics | VllmMetrics,
        draw: FaultDraw,
        faults: Faults,
        journal: Journal | None,
        on_good: Callable[[], None],
    ) -> None:
        self.faults = faults
        self.closed = False  # the port is gone: what ends now is lost, not aborted
        self.idle = asyncio.Event()  # no generation request is inside
        self.idle.set()
        self._options = options
        self._engine = engine
        self._stats = stats
        self._metrics = page
        self._draw = draw
        self._journal = journal
        self._on_good = on_good
        self._flights: dict[str, list[Flight]] = {}  # by request id

    def abort(self, document: dict[str, Any]) -> None:
        """Ends the requests that the body of /abort_request names."""
        rids = list(self._flights) if document.get("abort_all") else [str(document.get("rid", ""))]
        for rid in rids:
            for flight in self._flights.get(rid, []):
                self._engine.abort(flight)

    async def hang(self, request: web.BaseRequest) -> NoReturn:
        """Takes a request in and never answers it; the end of its connection ends it."""
        await request.read()
        self._stats.received += request.method == "POST"
        self._stats.faulted += 1
        self._enter()
        try:
            await asyncio.Event().wait()  # never set
            raise AssertionError("a hang has no end of its own")
        finally:
            self._leave()

    def _leave(self) -> None:
        self._stats.in_flight -= 1
        if self._stats.in_flight == 0:
            self.idle.set()

    def _enter(self) -> None:
        self.idle.clear()
        self._stats.in_flight += 1
        self._stats.max_in_flight = max(self._stats.max_in_flight, self._stats.in_flight)

    async def answer(self, request: web.BaseRequest, path: asked.Path) -> web.StreamResponse:
        """Returns the response to one request, or spoils it as the faults say."""
        body = await request.read()
        self._stats.received += 1
        outcome = self._draw.outcome(self.faults, body)
        if outcome not in ("ok", "truncate", "drop_middle"):
            return self._faulty(request, outcome, body)
        try:
            understood = asked.understand(path, request.content_type, body, self._options)
            if self._options.is_vllm and (unknown := unknown_model(understood, self._options)):
                raise unknown
            self._admit(path, understood)
        except asked.Refused as refused:
            is_own = not self._options.is_vllm or "error" in refused.body
            return self._refuse(refused if is_own else refused_by_vllm(refused), body)
        self._enter()
        engine = self._engine
        rids = [uuid.uuid4().hex for _ in understood.choices]
        rids[0] = understood.rid or rids[0]
        received_at, started = time.time(), time.monotonic()
        flights = [
            engine.submit(
                one.prompt_tokens,
                one.output_tokens,
                streaming=understood.stream,
                asked_tokens=one.asked_tokens if self._options.server is not None else None,
            )
            for one in understood.choices
        ]
        for rid, flight in zip(rids, flights, strict=True):
            self._flights.setdefault(rid, []).append(flight)
        waiting = _Waiting(understood, rids, flights, received_at, started, body)
        try:
            if understood.stream:
                return await self._stream(request, waiting, outcome)
            made = [self._made(waiting, index, await one.done) for index, one in enumerate(flights)]
            if self._options.is_vllm:
                document = vllm_whole(understood, made, int(received_at), self._options.version)
            else:
                document = answers.whole(understood, made, int(received_at))
            if outcome == "ok":
                self._good(waiting, made)
                return json_response(document)
            return await self._cut_short(request, document, outcome, waiting)
        except (asyncio.CancelledError, ConnectionError):
            for flight in flights:
                engine.abort(flight)
            if not waiting.counted:
                self._stats.aborted += 1
                self._metrics.aborted_requests += len(flights)
                self._note(body, "lost" if self.closed else "aborted")
            raise
        finally:
            self._leave()
            for rid, flight in zip(rids, flights, strict=True):
                self._forget(rid, flight)

    def _forget(self, rid: str, flight: Flight) -> None:
        """Takes a flight off the register; clients may have used one id for several requests."""
        left = [one for one in self._flights.get(rid, []) if one is not flight]
        if left:
            self._flights[rid] = left
        else:
            self._flights.pop(rid, None)

    def _admit(self, path: asked.Path, understood: asked.Asked) -> None:
        longest = max(choice.prompt_tokens for choice in understood.choices)
        limit = self.faults.max_prompt_tokens
        if limit is not None and longest > limit:
            raise asked.too_long(path, longest, limit, understood.stream)
        queue_limit = self._options.max_queued_requests
        if queue_limit is not None:
            load = self._engine.load()
            free_slots = max(0, self._options.cap - load.running)
            if load.queued + len(understood.choices) > queue_limit + free_slots:
                raise asked.queue_full(understood.stream)

    def _made(self, waiting: _Waiting, index: int, finished: Finished) -> answers.Made:
        """What became of a choice, counted in the metrics."""
        engine, choice = self._engine, waiting.understood.choices[index]
        queue_seconds = engine.clock_seconds(finished.admitted_at - finished.submitted_at)
        first_seconds = engine.clock_seconds(max(0.0, finished.first_token_at - finished.submitted_at))
        latency_seconds = engine.clock_seconds(finished.finished_at - finished.submitted_at)
        reason = "abort" if finished.aborted else "stop" if choice.stops else "length"
        self._metrics.finished(
            choice.prompt_tokens, finished.tokens, queue_seconds, first_seconds, latency_seconds, reason
        )
        return answers.Made(
            choice=choice,
            rid=waiting.rids[index],
            tokens=finished.tokens,
            aborted=finished.aborted,
            received_at=waiting.received_at,
            queue_seconds=queue_seconds,
            latency_seconds=time.monotonic() - waiting.started,
            decode_seconds=latency_seconds - first_seconds,
        )

    def _good(self, waiting: _Waiting, made: list[answers.Made]) -> None:
        """Counts an answer that is about to leave, whole."""
        waiting.counted = True
        if any(one.aborted for one in made):
            self._stats.aborted += 1
            self._note(waiting.body, "aborted")
            return
        self._stats.answered += 1
        self._note(waiting.body, "200")
        self._on_good()

    async def _stream(self, request: web.BaseRequest, waiting: _Waiting, outcome: str) -> web.StreamResponse:
        understood, flights = waiting.understood, waiting.flights
        response = _event_stream()
        await response.prepare(request)
        created = int(waiting.received_at)
        stream: answers.Stream | VllmStream = answers.Stream(understood, waiting.rids[0], created)
        if self._options.is_vllm:
            stream = VllmStream(understood, waiting.rids[0], created, self._options.version)
        made: dict[int, answers.Made] = {}
        cut_at = understood.choices[0].output_tokens // 2 if outcome != "ok" else None
        while len(made) < len(flights):
            await self._engine.next_tick()
            events: list[bytes] = []
            for index, flight in enumerate(flights):
                if index in made:
                    continue
                if flight.done.done():
                    made[index] = self._made(waiting, index, flight.done.result())
                    events.append(stream.progress(index, made[index], finished=True))
                elif (tokens := self._engine.generated(flight)) > max(0, flight.tokens_sent):
                    flight.tokens_sent = tokens
                    events.append(stream.progress(index, _so_far(waiting, index, tokens), finished=False))
            if cut_at is not None and (made or flights[0].tokens_sent >= cut_at):
                return await self._cut_stream(request, response, b"".join(events), outcome, waiting)
            if events:
                await response.write(b"".join(events))
        everything = [made[index] for index in sorted(made)]
        self._good(waiting, everything)
        await response.write(stream.end(everything))
        await response.write_eof()
        return response

    async def _cut_stream(
        self,
        request: web.BaseRequest,
        response: web.StreamResponse,
        events: bytes,
        outcome: str,
        waiting: _Waiting,
    ) -> web.StreamResponse:
        """Ends a stream too early: half an event and the orderly end, or half an event and no end."""
        for flight in waiting.flights:
            self._engine.abort(flight)
        self._spoilt(waiting, "truncated" if outcome == "truncate" else "dropped")
        await response.write(events[: len(events) // 2])
        if outcome == "truncate":
            await response.write_eof()
        else:
            _cut(request)
        return response

    async def _cut_short(
        self, request: web.BaseRequest, document: bytes, outcome: str, waiting: _Waiting
    ) -> web.StreamResponse:
        """Half a finished answer: as a whole HTTP answer, or with the connection cut behind it."""
        half = document[: len(document) // 2]
        if outcome == "truncate":
            self._spoilt(waiting, "truncated")
            return json_response(half)
        self._spoilt(waiting, "dropped")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = len(document)
        await response.prepare(request)
        await response.write(half)
        _cut(request)
        return response

    def _spoilt(self, waiting: _Waiting, outcome: str) -> None:
        """Counts an answer that is about to leave, broken."""
        waiting.counted = True
        self._stats.faulted += 1
        self._note(waiting.body, outcome)

    def _faulty(self, request: web.BaseRequest, outcome: str, body: bytes) -> web.Response:
        self._stats.faulted += 1
        if outcome == "drop":
            self._note(body, "dropped")
            _cut(request)
            return web.Response()
        if outcome == "html":
            self._note(body, "html")
            return web.Response(text=_HTML, content_type="text/html")
        self._note(body, outcome)
        if outcome == "500":
            return web.Response(status=500, text="Internal Server Error")
        if outcome == "503":
            return page(asked.queue_full(streaming=False).body, 503)
        document = {
            "object": "error",
            "message": "Too many requests.",
            "type": "429",
            "param": None,
            "code": 429,
        }
        response = page(document, 429)
        response.headers["Retry-After"] = f"{self.faults.retry_after_seconds:g}"
        return response

    def _refuse(self, refused: asked.Refused, body: bytes) -> web.Response:
        self._stats.refused += 1
        self._note(body, str(refused.status))
        if refused.in_stream:
            response = web.Response(body=answers.error_event(refused.status, dict(refused.body)))
            response.headers["Content-Type"] = "text/event-stream; charset=utf-8"
            return response
        return page(refused.body, refused.status)

    def _note(self, body: bytes, outcome: str) -> None:
        if self._journal is not None:
            self._journal.note(body, outcome)


@dataclass(slots=True)
class _Waiting:
    """A generation request between its arrival and its answer; `counted` once its outcome is noted."""

    understood: asked.Asked
    rids: list[str]
    flights: list[Flight]
    received_at: float
    started: float
    body: bytes
    counted: bool = False


def _so_far(waiting: _Waiting, index: int, tokens: int) -> answers.Made:
    return answers.Made(
        choice=waiting.understood.choices[index],
        rid=waiting.rids[index],
        tokens=tokens,
        aborted=False,
        received_at=waiting.received_at,
        queue_seconds=0.0,
        latency_seconds=0.0,
        decode_seconds=0.0,
    )


def _cut(request: web.BaseRequest) -> None:
    """Closes the connection after what is already written."""
    if request.transport is not None:
        request.transport.close()


def _event_stream() -> web.StreamResponse:
    return web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})


def json_response(document: bytes, status: int = 200) -> web.Response:
    """A response of JSON text."""
    return web.Response(body=document, status=status, content_type="application/json")


def page(document: Any, status: int = 200) -> web.Response:
    """A response of a JSON-able document."""
    return json_response(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(), status)
