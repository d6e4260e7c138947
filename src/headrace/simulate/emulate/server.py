"""One emulated server: an HTTP port, an engine behind it, and what is wrong with it."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from aiohttp import web

from headrace.errors import BusyError, UsageError
from headrace.simulate.emulate import answers, asked, metrics, pages
from headrace.simulate.emulate.engine import Engine, Flight
from headrace.simulate.emulate.faults import FaultDraw, Faults, faults_from
from headrace.simulate.emulate.journal import Journal
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.timing import ContinuousBatch, Finished

LARGEST_BODY_BYTES = 64 << 20
KEEP_ALIVE_SECONDS = 5.0  # as uvicorn under SGLang
_GENERATION = ("/v1/chat/completions", "/v1/completions", "/generate")
_HTML = "<html><head><title>502</title></head><body><h1>Bad Gateway</h1>proxy</body></html>"
_HANDLER_END_SECONDS = 1.0
_CRASH_DELAY_SECONDS = 0.005  # lets the last counted answer leave


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
        starts: how often the port was opened.
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


class Replica:
    """One server of the fleet. Every method runs in the event loop.

    Args:
        index: its number, from 0.
        options: of the fleet.
        journal: shared by the fleet, or None.
        siblings: finds a replica by number, for the control endpoints.
    """

    def __init__(
        self,
        index: int,
        options: EmulatorOptions,
        journal: Journal | None,
        siblings: Callable[[int], Replica],
    ) -> None:
        self.index = index
        self.port = options.base_port + index if options.base_port else 0
        self.faults = options.faults.get(index, Faults())
        self._options = options
        self._journal = journal
        self._siblings = siblings
        self._draw = FaultDraw(options.seed * 1009 + index)
        self._stats = ReplicaStats()
        self._answered_at_start = 0
        self._created = int(time.time())
        self._metrics = metrics.ServerMetrics(options.model, options.pool_tokens, options.context_length)
        self._engine = self._new_engine()
        self._flights: dict[str, list[Flight]] = {}  # by request id
        self._listener: asyncio.Server | None = None
        self._web: web.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Base URL, no trailing slash."""
        host = self._options.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def stats(self) -> ReplicaStats:
        """A copy of the counters."""
        load = self._engine.load()
        return replace(self._stats, running=load.running, queued=load.queued)

    async def start(self) -> None:
        """Opens the port with a fresh engine; nothing happens when it is open.

        Raises BusyError when the port is taken."""
        if self._listener is not None:
            return
        self._engine = self._new_engine()
        self._flights = {}
        self._answered_at_start = self._stats.answered
        loop = asyncio.get_running_loop()
        self._web = web.Server(
            self._handle,
            request_factory=_request,
            handler_cancellation=True,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            access_log=None,
        )
        try:
            self._listener = await loop.create_server(
                self._web, self._options.host, self.port, backlog=4096, reuse_address=True
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise BusyError(
                f"port {self.port} of {self._options.host} is taken, replica {self.index} needs it; "
                "choose another --base-port or stop what listens there"
            ) from error
        self.port = self._listener.sockets[0].getsockname()[1]
        self._stats.starts += 1

    async def stop(self) -> None:
        """Closes the port and cuts every connection; what was in flight is lost."""
        listener, server = self._listener, self._web
        self._listener = self._web = None
        if listener is None or server is None:
            return
        listener.close()
        for connection in server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        self._engine.stop()
        await listener.wait_closed()
        await asyncio.sleep(0)  # the loop tells the handlers that their connections are lost
        await server.shutdown(_HANDLER_END_SECONDS)

    async def set_faults(self, faults: Faults) -> None:
        """Replaces the faults; opens or closes the port as they say."""
        self.faults = faults
        self._engine.set_speed(self._options.speed / faults.slow)
        self._answered_at_start = self._stats.answered
        if faults.refuse:
            await self.stop()
        else:
            await self.start()

    def _new_engine(self) -> Engine:
        core = ContinuousBatch(self._options.cap, self._options.pool_tokens, self._options.step_times)
        return Engine(core, self._options.speed / self.faults.slow)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work that outlives the request that caused it (a crash takes that request down too)."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _crash(self) -> None:
        self._spawn(self.stop())
        if self.faults.back_after_seconds is not None:
            self._spawn(self._come_back(self.faults.back_after_seconds))

    async def _come_back(self, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        if not self.faults.refuse:
            await self.start()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, method = request.path, request.method
        if path.startswith("/emulator/"):
            return await self._control(request)
        if self.faults.hang == "all" or (self.faults.hang == "posts" and path in _GENERATION):
            await self._hang(request)
        endpoint = (path, method)
        self._metrics.http_requests[endpoint] += 1
        self._metrics.http_active[endpoint] += 1
        try:
            if method == "POST" and path in _GENERATION:
                response = await self._generate(request, cast(asked.Path, path))
            else:
                response = await self._page(request)
        finally:
            self._metrics.http_active[endpoint] -= 1
        self._metrics.http_responses[(path, method, str(response.status))] += 1
        return response

    async def _hang(self, request: web.BaseRequest) -> NoReturn:
        await request.read()
        self._stats.received += request.method == "POST"
        self._stats.faulted += 1
        self._enter()
        try:
            await asyncio.Event().wait()  # never set: only the connection's end ends it
            raise AssertionError("a hang has no end of its own")
        finally:
            self._stats.in_flight -= 1

    def _enter(self) -> None:
        self._stats.in_flight += 1
        self._stats.max_in_flight = max(self._stats.max_in_flight, self._stats.in_flight)

    async def _generate(self, request: web.BaseRequest, path: asked.Path) -> web.StreamResponse:
        body = await request.read()
        self._stats.received += 1
        outcome = self._draw.outcome(self.faults, body)
        if outcome not in ("ok", "truncate", "drop_middle"):
            return self._faulty(request, outcome, body)
        try:
            understood = asked.understand(path, request.content_type, body, self._options)
            self._admit(path, understood)
        except asked.Refused as refused:
            return self._refuse(refused, body)
        self._enter()
        rids = [uuid.uuid4().hex for _ in understood.choices]
        rids[0] = understood.rid or rids[0]
        received_at, started = time.time(), time.monotonic()
        flights = [
            self._engine.submit(one.prompt_tokens, one.output_tokens, streaming=understood.stream)
            for one in understood.choices
        ]
        for rid, flight in zip(rids, flights, strict=True):
            self._flights.setdefault(rid, []).append(flight)
        waiting = _Waiting(understood, rids, flights, received_at, started, body)
        try:
            if understood.stream:
                return await self._stream(request, waiting, outcome)
            made = [self._made(waiting, index, await one.done) for index, one in enumerate(flights)]
            document = answers.whole(understood, made, int(received_at))
            if outcome == "ok":
                self._good(waiting, made)
                return _json(document)
            return await self._cut_short(request, document, outcome, body)
        except (asyncio.CancelledError, ConnectionError):
            for flight in flights:
                self._engine.abort(flight)
            self._stats.aborted += 1
            self._metrics.aborted_requests += len(flights)
            self._note(body, "aborted" if self._listener is not None else "lost")
            raise
        finally:
            self._stats.in_flight -= 1
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
        if queue_limit is not None and self._engine.queued + len(understood.choices) > queue_limit:
            load = self._engine.load()
            if load.running >= self._options.cap or queue_limit == 0 or load.queued:
                raise asked.queue_full(understood.stream)

    def _made(self, waiting: _Waiting, index: int, finished: Finished) -> answers.Made:
        """What became of a choice, counted in the metrics."""
        engine, choice = self._engine, waiting.understood.choices[index]
        queue_seconds = engine.clock_seconds(finished.admitted_at - finished.submitted_at)
        first_seconds = engine.clock_seconds(max(0.0, finished.first_token_at - finished.submitted_at))
        latency_seconds = engine.clock_seconds(finished.finished_at - finished.submitted_at)
        self._metrics.finished(
            choice.prompt_tokens, finished.tokens, queue_seconds, first_seconds, latency_seconds
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
        if any(one.aborted for one in made):
            self._stats.aborted += 1
            self._note(waiting.body, "aborted")
            return
        self._stats.answered += 1
        self._note(waiting.body, "200")
        limit = self.faults.crash_after
        if limit is not None and self._stats.answered - self._answered_at_start >= limit:
            asyncio.get_running_loop().call_later(_CRASH_DELAY_SECONDS, self._crash)

    async def _stream(self, request: web.BaseRequest, waiting: _Waiting, outcome: str) -> web.StreamResponse:
        understood, flights = waiting.understood, waiting.flights
        response = _event_stream()
        await response.prepare(request)
        stream = answers.Stream(understood, waiting.rids[0], int(waiting.received_at))
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
        await response.write(events[: len(events) // 2])
        self._stats.faulted += 1
        self._note(waiting.body, "truncated" if outcome == "truncate" else "dropped")
        if outcome == "truncate":
            await response.write_eof()
        else:
            _cut(request)
        return response

    async def _cut_short(
        self, request: web.BaseRequest, document: bytes, outcome: str, body: bytes
    ) -> web.StreamResponse:
        """Half a finished answer: as a whole HTTP answer, or with the connection cut behind it."""
        self._stats.faulted += 1
        half = document[: len(document) // 2]
        if outcome == "truncate":
            self._note(body, "truncated")
            return _json(half)
        self._note(body, "dropped")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = len(document)
        await response.prepare(request)
        await response.write(half)
        _cut(request)
        return response

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
            return _page(asked.queue_full(streaming=False).body, 503)
        document = {
            "object": "error",
            "message": "Too many requests.",
            "type": "429",
            "param": None,
            "code": 429,
        }
        response = _page(document, 429)
        response.headers["Retry-After"] = f"{self.faults.retry_after_seconds:g}"
        return response

    def _refuse(self, refused: asked.Refused, body: bytes) -> web.Response:
        self._stats.refused += 1
        self._note(body, str(refused.status))
        if refused.in_stream:
            response = web.Response(body=answers.error_event(refused.status, dict(refused.body)))
            response.headers["Content-Type"] = "text/event-stream; charset=utf-8"
            return response
        return _page(refused.body, refused.status)

    def _note(self, body: bytes, outcome: str) -> None:
        if self._journal is not None:
            self._journal.note(body, outcome)

    async def _page(self, request: web.BaseRequest) -> web.Response:
        path, method, options = request.path, request.method, self._options
        load = self._engine.load()
        rate = self._engine.tokens_per_second(load)
        match (path, method):
            case ("/health" | "/health_generate" | "/ping", "GET"):
                return web.Response()
            case ("/", "GET"):
                return _page("SGLang is running")
            case ("/v1/models", "GET"):
                return _page(pages.models(options, self._created))
            case ("/model_info" | "/get_model_info", "GET"):
                return _page(pages.model_info(options))
            case ("/server_info" | "/get_server_info", "GET"):
                return _page(pages.server_info(options, self.port, rate))
            case ("/v1/loads", "GET"):
                include = request.query.get("include", "all")
                return _page(pages.loads(options, load, rate, time.time(), include))
            case ("/get_load", "GET"):
                return _page(pages.get_load(load, time.monotonic()))
            case ("/metrics", "GET"):
                response = web.Response(body=self._metrics.page(load, rate).encode())
                response.headers["Content-Type"] = metrics.CONTENT_TYPE
                return response
            case ("/flush_cache", "GET" | "POST"):
                if load.running or load.queued:
                    return web.Response(status=400, text="Flush cache failed.\n")
                return web.Response(
                    text="Cache flushed.\nPlease check backend logs for more details. (When there are "
                    "running or waiting requests, the operation will not be performed.)\n"
                )
            case ("/abort_request", "GET" | "POST"):
                return await self._abort(request)
            case (one_model, "GET") if one_model.startswith("/v1/models/"):
                return self._one_model(one_model.removeprefix("/v1/models/"))
            case (known, _) if known in _GENERATION:
                return _page({"detail": "Method Not Allowed"}, 405)
            case _:
                return _page({"detail": "Not Found"}, 404)

    def _one_model(self, name: str) -> web.Response:
        if name == self._options.model:
            return _page(pages.model_card(self._options, self._created))
        error = {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return _page({"error": error}, 404)

    async def _abort(self, request: web.BaseRequest) -> web.Response:
        try:
            document = json.loads(await request.read() or b"{}")
        except ValueError:
            return _page({"detail": "JSON decode error"}, 400)
        everything = bool(document.get("abort_all", False))
        rids = list(self._flights) if everything else [str(document.get("rid", ""))]
        for rid in rids:
            for flight in self._flights.get(rid, []):
                self._engine.abort(flight)
        return web.Response()

    async def _control(self, request: web.BaseRequest) -> web.Response:
        """Endpoints of the emulator itself: /emulator/faults and /emulator/stats, `?replica=N` for others."""
        if request.remote is None or not ipaddress.ip_address(request.remote).is_loopback:
            return _page({"error": f"{request.remote} is not this machine; ask from loopback"}, 403)
        try:
            replica = self._siblings(int(request.query.get("replica", self.index)))
            if (request.path, request.method) == ("/emulator/faults", "POST"):
                faults = faults_from(json.loads(await request.read() or b"{}"))
                self._spawn(replica.set_faults(faults))
                return _page(answers.plain(faults))
        except (ValueError, LookupError, UsageError) as error:
            return _page({"error": str(error)}, 400)
        if request.path == "/emulator/faults":
            return _page(answers.plain(replica.faults))
        if request.path == "/emulator/stats":
            return _page(answers.plain(replica.stats))
        return _page({"detail": "Not Found"}, 404)


@dataclass(slots=True)
class _Waiting:
    """A generation request between its arrival and its answer."""

    understood: asked.Asked
    rids: list[str]
    flights: list[Flight]
    received_at: float
    started: float
    body: bytes


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


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY_BYTES)


def _cut(request: web.BaseRequest) -> None:
    """Closes the connection after what is already written."""
    if request.transport is not None:
        request.transport.close()


def _event_stream() -> web.StreamResponse:
    return web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})


def _json(document: bytes, status: int = 200) -> web.Response:
    return web.Response(body=document, status=status, content_type="application/json")


def _page(document: Any, status: int = 200) -> web.Response:
    return _json(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(), status)
