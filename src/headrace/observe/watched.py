"""A server that is looked at again and again: its last minute, kept as an observation."""

from __future__ import annotations

from headrace.clock import Clock
from headrace.net.http import HttpClient, HttpFailure
from headrace.net.redact import redact, without_user
from headrace.observe.live import ANSWER_SECONDS, MAX_BODY_BYTES, observation_of
from headrace.observe.live_engines import Reader, find_engine
from headrace.observe.observation import ServerObservation
from headrace.observe.track import Track

KEPT_SECONDS = 60.0  # readings are of the last minute: what was before is another state of the server
_FEWEST_KEPT = 2  # looks: a rate needs two


class Watched:
    """One server. `look` asks its cheap pages once; `seen` says what the last minute showed.

    Attributes:
        name: its URL without a user or secrets, as it may be shown.
        problem: why the last look got nothing; "" where it did.
    """

    def __init__(self, url: str, http: HttpClient, clock: Clock) -> None:
        self._base, self._http, self._clock = url.rstrip("/"), http, clock
        self.name = redact(without_user(self._base))
        self.problem = "not asked yet"
        self._reader: Reader | None = None
        self._track = Track()
        self._misses = 0
        self._why = ""

    async def look(self) -> None:
        """Asks once. Never raises for what a server does; `problem` has it."""
        self._why = ""
        if self._reader is None:
            self._reader = await find_engine(self._fetch)
            if self._reader is None:
                self.problem = (
                    self._why or "no known engine's endpoints answer here (SGLang, vLLM, llama.cpp)"
                )
                return
        page = await self._reader.look(self._fetch)
        if page is None:
            self._misses += 1
            self.problem = self._why or "its load pages do not answer"
            return
        self.problem = ""
        self._track.add(self._clock.monotonic(), page)
        self._forget()

    def seen(self) -> ServerObservation:
        """What the last minute showed; of a server that never answered, its name alone."""
        if self._reader is None:
            return ServerObservation(self.name)
        return observation_of(self._reader, self._track, self.name, self._misses)

    def _forget(self) -> None:
        """Drops looks of more than a minute ago."""
        seconds = self._track.seconds
        old = sum(1 for second in seconds if second < seconds[-1] - KEPT_SECONDS)
        old = min(old, len(seconds) - _FEWEST_KEPT)
        if old > 0:
            self._track = Track(seconds[old:], self._track.pages[old:])
            self._misses = 0

    async def _fetch(self, path: str) -> bytes | None:
        try:
            answer = await self._http.get(self._base + path, ANSWER_SECONDS)
        except HttpFailure as failure:
            self._why = redact(without_user(str(failure)))
            return None
        if answer.status in (401, 403):
            self._why = f"answers {answer.status}: it wants a key; name it with --api-key-env"
        if answer.status != 200 or len(answer.body) > MAX_BODY_BYTES:
            return None
        return answer.body
