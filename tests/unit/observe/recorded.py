"""A recorded server: pages by path, in the order of asking; and a clock that sleeping moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from headrace.clock import VirtualClock
from headrace.observe.live import observe_through
from headrace.observe.observation import ServerObservation

Pages = Mapping[str, Sequence[bytes | None]]


class Recorded:
    """Answers like a server of which these pages were recorded; the last of a path is repeated."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.asked: Counter[str] = Counter()

    async def fetch(self, path: str) -> bytes | None:
        plain = path.split("?")[0]
        pages = self._pages.get(plain, (None,))
        page = pages[min(self.asked[plain], len(pages) - 1)]
        self.asked[plain] += 1
        return page


def watch(pages: Pages, seconds: float = 0.0) -> ServerObservation:
    """The observation of a recorded server over so many virtual seconds."""
    return watched(Recorded(pages), seconds)


def watched(server: Recorded, seconds: float) -> ServerObservation:
    clock = VirtualClock()

    async def sleep(duration: float) -> None:
        clock.advance(duration)

    return asyncio.run(observe_through(server.fetch, "recorded", seconds, clock=clock, sleep=sleep))
