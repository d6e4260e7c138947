"""Emulated fleets in this process: for asyncio callers, and for synchronous ones (a thread of its own)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace.errors import StorageError, UsageError
from headrace.simulate.emulate.faults import Faults, faults_from
from headrace.simulate.emulate.generation import ReplicaStats
from headrace.simulate.emulate.journal import Journal
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.server import Replica

T = TypeVar("T")


class EmulatedFleet:
    """N emulated servers in the running event loop: `async with EmulatedFleet(options) as fleet`.

    Args:
        options: of the fleet.

    Raises:
        UsageError: on entering, for options that cannot be.
        BusyError: on entering, when a port is taken.
        StorageError: on entering, when the journal cannot be written.
    """

    def __init__(self, options: EmulatorOptions | None = None) -> None:
        self.options = options or EmulatorOptions()
        self._replicas: list[Replica] = []
        self._journal: Journal | None = None

    @property
    def urls(self) -> list[str]:
        """Base URLs in replica order; they stay the same over stops and starts."""
        return [replica.url for replica in self._replicas]

    async def __aenter__(self) -> Self:
        self.options.validate()
        path = self.options.journal
        if path is not None:
            try:
                self._journal = Journal(path)
            except OSError as error:
                raise StorageError(f"the journal {path} cannot be written: {error.strerror}") from error
        self._replicas = [
            Replica(index, self.options, self._journal, self._replica)
            for index in range(self.options.replicas)
        ]
        try:
            for replica in self._replicas:
                await replica.start()
                if replica.faults.refuse:  # opened once all the same, so that its port is known
                    await replica.stop()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def set_faults(self, replica: int, faults: Faults | None = None, **fields: Any) -> None:
        """Replaces the faults of one server by `faults`, or by those the fields name; none heals it.

        A server that was stopped, has crashed or refused is started again, unless `refuse` is among them.
        """
        chosen = faults if faults is not None else faults_from(fields)
        await self._replica(replica).set_faults(chosen)

    def stats(self, replica: int) -> ReplicaStats:
        """The counters of one server."""
        return self._replica(replica).stats

    async def stop_replica(self, replica: int) -> None:
        """Closes the port of one server and cuts its connections, as kill -9 would."""
        await self._replica(replica).stop()

    async def start_replica(self, replica: int) -> None:
        """Opens the port of a stopped server again, with an empty engine."""
        await self._replica(replica).start()

    def _replica(self, index: int) -> Replica:
        if not 0 <= index < len(self._replicas):
            raise UsageError(f"replica {index} does not exist; replicas are 0 to {len(self._replicas) - 1}")
        return self._replicas[index]

    async def drain(self) -> None:
        """Waits until no server has a request left."""
        await asyncio.gather(*(replica.drain() for replica in self._replicas))

    async def _close(self) -> None:
        for replica in self._replicas:
            await replica.close()
        if self._journal is not None:
            self._journal.close()


class ThreadedFleet:
    """The same fleet in a thread with its own event loop: `with ThreadedFleet(options) as fleet`."""

    def __init__(self, options: EmulatorOptions | None = None) -> None:
        self._fleet = EmulatedFleet(options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="emulated-fleet", daemon=True)

    @property
    def urls(self) -> list[str]:
        """Base URLs in replica order."""
        return self._fleet.urls

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._fleet.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run(self._fleet.__aexit__(None, None, None))
        self._end()

    def set_faults(self, replica: int, faults: Faults | None = None, **fields: Any) -> None:
        """As `EmulatedFleet.set_faults`."""
        self._run(self._fleet.set_faults(replica, faults, **fields))

    def stats(self, replica: int) -> ReplicaStats:
        """As `EmulatedFleet.stats`."""

        async def read() -> ReplicaStats:
            return self._fleet.stats(replica)

        return self._run(read())

    def stop_replica(self, replica: int) -> None:
        """As `EmulatedFleet.stop_replica`."""
        self._run(self._fleet.stop_replica(replica))

    def start_replica(self, replica: int) -> None:
        """As `EmulatedFleet.start_replica`."""
        self._run(self._fleet.start_replica(replica))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
