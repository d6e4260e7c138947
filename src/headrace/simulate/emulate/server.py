"""One emulated server: an HTTP port, an engine behind it, and what is wrong with it."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

from aiohttp import web

from headrace.errors import BusyError, UsageError
from headrace.simulate.emulate import answers, asked, metrics, pages
from headrace.simulate.emulate.core import new_core
from headrace.simulate.emulate.engine import Engine
from headrace.simulate.emulate.faults import FaultDraw, Faults, faults_from
from headrace.simulate.emulate.generation import Generation, ReplicaStats, page
from headrace.simulate.emulate.journal import Journal
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.sglang_log import SglangLog, log_path
from headrace.simulate.emulate.vllm_answers import vllm_models
from headrace.simulate.emulate.vllm_metrics import VllmMetrics

LARGEST_BODY_BYTES = 64 << 20
KEEP_ALIVE_SECONDS = 5.0  # as uvicorn under SGLang
_GENERATION = ("/v1/chat/completions", "/v1/completions", "/generate")
_VLLM_GENERATION = ("/v1/chat/completions", "/v1/completions")
_HANDLER_END_SECONDS = 1.0
_LOG_LOOK_SECONDS = 0.02
_CRASH_DELAY_SECONDS = 0.005  # lets the last counted answer leave


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
        self._metrics: metrics.ServerMetrics | VllmMetrics
        if options.server is not None and options.is_vllm:
            self._metrics = VllmMetrics(options.server)
        else:
            self._metrics = metrics.ServerMetrics(
                options.model, options.pool_tokens, options.context_length, options.server
            )
        self._log: SglangLog | None = None
        if options.log is not None and options.server is not None:
            self._log = SglangLog(log_path(options.log, index, options.replicas), options.server)
        self._log_task: asyncio.Task[None] | None = None
        self._engine = self._new_engine()
        self._generation = self._new_generation()
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
        self._generation = self._new_generation()
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
        if self._log is not None:
            self._log.booted(pages.server_info(self._options, self.port, 0.0), self.port)
            self._log_task = asyncio.create_task(self._watch(self._log, self._engine))

    async def stop(self) -> None:
        """Closes the port and cuts every connection; what was in flight is lost."""
        listener, server = self._listener, self._web
        self._listener = self._web = None
        self._stats.stops += 1
        if listener is None or server is None:
            return
        self._generation.closed = True
        if self._log_task is not None:
            self._log_task.cancel()
            self._log_task = None
        listener.close()
        for connection in server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        self._engine.stop()
        await listener.wait_closed()
        await asyncio.sleep(0)  # the loop tells the handlers that their connections are lost
        await server.shutdown(_HANDLER_END_SECONDS)

    async def drain(self) -> None:
        """Waits until no request is left, as the engine does on SIGTERM; new ones are taken meanwhile."""
        if self._log is not None:
            self._log.told_to_stop()
        await self._generation.idle.wait()
        if self._log is not None:
            self._log.drained()

    async def _watch(self, log: SglangLog, engine: Engine) -> None:
        """Looks at the engine between its events: a stretch of decode passes is one event."""
        while True:
            await asyncio.sleep(_LOG_LOOK_SECONDS)
            log.passed(engine.load())

    async def close(self) -> None:
        """Stops for good."""
        await self.stop()
        if self._log is not None:
            self._log.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def set_faults(self, faults: Faults) -> None:
        """Replaces the faults; opens or closes the port as they say."""
        self.faults = self._generation.faults = faults
        self._engine.set_speed(self._options.speed / faults.slow)
        self._answered_at_start = self._stats.answered
        if faults.refuse:
            await self.stop()
        else:
            await self.start()

    def _new_engine(self) -> Engine:
        core = new_core(self._options)
        on_pass = None if self._log is None else self._log.passed
        return Engine(core, self._options.speed / self.faults.slow, on_pass)

    def _new_generation(self) -> Generation:
        return Generation(
            self._options,
            self._engine,
            self._stats,
            self._metrics,
            self._draw,
            self.faults,
            self._journal,
            self._on_good,
        )

    def _on_good(self) -> None:
        limit = self.faults.crash_after
        if limit is not None and self._stats.answered - self._answered_at_start >= limit:
            asyncio.get_running_loop().call_later(_CRASH_DELAY_SECONDS, self._crash)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work that outlives the request that caused it; `close` ends what is left of it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _crash(self) -> None:
        if self._listener is not None and self.faults.crash_after is not None:
            self._spawn(self._crash_and_return(self.faults.back_after_seconds))

    async def _crash_and_return(self, after_seconds: float | None) -> None:
        await self.stop()
        stopped = self._stats.stops
        if after_seconds is not None:
            await asyncio.sleep(after_seconds)
            if self._stats.stops == stopped:  # nobody has started and stopped it meanwhile
                await self.start()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, method = request.path, request.method
        if path.startswith("/emulator/"):
            return await self._control(request)
        if self.faults.hang == "all" or (self.faults.hang == "posts" and path in _GENERATION):
            await self._generation.hang(request)
        endpoint = (path, method)
        self._metrics.http_requests[endpoint] += 1
        self._metrics.http_active[endpoint] += 1
        try:
            if method == "POST" and path in (_VLLM_GENERATION if self._options.is_vllm else _GENERATION):
                response = await self._generation.answer(request, cast(asked.Path, path))
            else:
                response = self._vllm_page(request) if self._options.is_vllm else await self._page(request)
        finally:
            self._metrics.http_active[endpoint] -= 1
        self._metrics.http_responses[(path, method, str(response.status))] += 1
        return response

    async def _page(self, request: web.BaseRequest) -> web.Response:
        path, method, options = request.path, request.method, self._options
        load = self._engine.load()
        rate = self._engine.tokens_per_second(load)
        match (path, method):
            case ("/health" | "/health_generate" | "/ping", "GET"):
                return web.Response()
            case ("/", "GET"):
                return page("SGLang is running")
            case ("/v1/models", "GET"):
                return page(pages.models(options, self._created))
            case ("/model_info" | "/get_model_info", "GET"):
                return page(pages.model_info(options))
            case ("/server_info" | "/get_server_info", "GET"):
                return page(pages.server_info(options, self.port, rate))
            case ("/v1/loads", "GET"):
                include = request.query.get("include", "all")
                return page(pages.loads(options, load, rate, time.time(), include))
            case ("/get_load", "GET"):
                return page(pages.get_load(load, time.monotonic()))
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
                return page({"detail": "Method Not Allowed"}, 405)
            case _:
                return page({"detail": "Not Found"}, 404)

    def _vllm_page(self, request: web.BaseRequest) -> web.Response:
        load = self._engine.load()
        match (request.path, request.method):
            case ("/health" | "/ping", "GET"):
                return web.Response()
            case ("/version", "GET"):
                return page({"version": self._options.version})
            case ("/load", "GET"):
                return page({"server_load": 0})  # without --enable-server-load-tracking
            case ("/v1/models", "GET"):
                return page(vllm_models(self._options, self._created))
            case ("/metrics", "GET"):
                response = web.Response(body=self._metrics.page(load, 0.0).encode())
                response.headers["Content-Type"] = metrics.CONTENT_TYPE
                return response
            case (known, _) if known in _VLLM_GENERATION:
                return page({"detail": "Method Not Allowed"}, 405)
            case _:
                return page({"detail": "Not Found"}, 404)

    def _one_model(self, name: str) -> web.Response:
        if name == self._options.model:
            return page(pages.model_card(self._options, self._created))
        error = {
            "message": f"The model '{name}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return page({"error": error}, 404)

    async def _abort(self, request: web.BaseRequest) -> web.Response:
        try:
            document = json.loads(await request.read() or b"{}")
        except ValueError:
            return page({"detail": "JSON decode error"}, 400)
        self._generation.abort(document if isinstance(document, dict) else {})
        return web.Response()

    async def _control(self, request: web.BaseRequest) -> web.Response:
        """Endpoints of the emulator itself: /emulator/faults and /emulator/stats, `?replica=N` for others."""
        if request.remote is None or not ipaddress.ip_address(request.remote).is_loopback:
            return page({"error": f"{request.remote} is not this machine; ask from loopback"}, 403)
        try:
            replica = self._siblings(int(request.query.get("replica", self.index)))
            if (request.path, request.method) == ("/emulator/faults", "POST"):
                faults = faults_from(json.loads(await request.read() or b"{}"))
                self._spawn(replica.set_faults(faults))
                return page(answers.plain(faults))
        except (ValueError, LookupError, UsageError) as error:
            return page({"error": str(error)}, 400)
        if request.path == "/emulator/faults":
            return page(answers.plain(replica.faults))
        if request.path == "/emulator/stats":
            return page(answers.plain(replica.stats))
        return page({"detail": "Not Found"}, 404)


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY_BYTES)
