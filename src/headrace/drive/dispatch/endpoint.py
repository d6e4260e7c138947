"""The endpoint state machine: one server as the driver sees it. Pure: events with `now` in, state out.

    reachable   takes requests, up to its limit
    limited     said 429 or 503: takes requests again after a short wait
    broken      the breaker is open: no requests; a probe is due now and then
    trial       was broken, answers probes again: gets one request to prove itself
    refusing    said 401 or 403, or 404 to everything: it takes nothing of ours until that is mended
    draining    gets nothing new; what runs there may finish
    drained     draining, and nothing runs there any more
    removed     as drained, and forgotten at the next look

A 4xx about a row never counts here: over-long prompts must not take a server out.
"""

from __future__ import annotations

from collections import Counter, deque
from enum import StrEnum
from statistics import median

# The breaker opens after this many failed tries in a row without any success between them. One killed
# server drops all it was running at once, so it opens at the first kill; 2 % random drops reach five in a
# row once in 3e8 requests.
FAILURES_TO_OPEN = 5
REFUSALS_TO_OPEN = 2  # nothing listens on the port: two in a row suffice
PROBE_FAILURES_TO_OPEN = 3  # a server that answers no cheap GET three times does not answer
FIRST_RETRY_SECONDS = 1.0  # then doubled up to
LAST_RETRY_SECONDS = 10.0  # a probe is one cheap GET
FIRST_WAIT_SECONDS = 0.1  # after a 429 or 503 without Retry-After; doubled up to
LAST_WAIT_SECONDS = 15.0
KEPT_LATENCIES = 64
ASTRAY = (404, 405)  # no such model or path: not about the row
ASTRAY_TO_REFUSE = 3


class EndpointState(StrEnum):
    REACHABLE = "reachable"
    LIMITED = "limited"
    BROKEN = "broken"
    TRIAL = "trial"
    REFUSING = "refusing"
    DRAINING = "draining"
    DRAINED = "drained"
    REMOVED = "removed"


class Endpoint:
    """One server.

    Args:
        url: base URL without trailing slash.
        limit: requests in flight at most.
        now: monotonic seconds.
    """

    def __init__(self, url: str, limit: int, now: float) -> None:
        self.url = url
        self.limit = limit
        self.state = EndpointState.REACHABLE
        self.why = ""
        self.in_flight = 0
        self.started_sum = 0.0  # of the start times of what is in flight: their ages without a loop
        self.outstanding_tokens = 0.0
        self.answered = 0
        self.output_tokens = 0
        self.errors: Counter[str] = Counter()
        self.latencies: deque[float] = deque(maxlen=KEPT_LATENCIES)
        self.not_before = now
        self.last_answer = now
        self._failures = 0
        self._probe_failures = 0
        self._astray = 0  # 404 and 405 in a row
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._wait_seconds = FIRST_WAIT_SECONDS

    # what the dispatcher asks

    def room(self, now: float) -> int:
        """How many more requests it may be given at `now`."""
        if self.state is EndpointState.REACHABLE:
            return max(0, self.limit - self.in_flight)
        if self.state is EndpointState.LIMITED:
            return max(0, self.limit - self.in_flight) if now >= self.not_before else 0
        if self.state is EndpointState.TRIAL:
            return max(0, 1 - self.in_flight)
        return 0

    def probe_due(self, now: float) -> bool:
        """Whether a broken endpoint should be asked now whether it lives."""
        return self.state is EndpointState.BROKEN and now >= self.not_before

    def median_latency(self) -> float | None:
        """Median seconds of its recent answers; None before the first."""
        return median(self.latencies) if self.latencies else None

    # what happened

    def sent(self, now: float, tokens: float) -> None:
        self.in_flight += 1
        self.started_sum += now
        self.outstanding_tokens += tokens

    def landed(self, started: float, tokens: float) -> None:
        """A request left the server, however it ended."""
        self.in_flight -= 1
        self.started_sum -= started
        self.outstanding_tokens -= tokens
        if self.in_flight == 0:
            self.started_sum = self.outstanding_tokens = 0.0
            if self.state is EndpointState.DRAINING:
                self.state = EndpointState.DRAINED

    def on_answer(self, now: float, latency_seconds: float, output_tokens: int) -> None:
        """A row was answered."""
        self.answered += 1
        self.output_tokens += output_tokens
        self.latencies.append(latency_seconds)
        self.last_answer = now
        self._failures = self._probe_failures = self._astray = 0
        self._wait_seconds = FIRST_WAIT_SECONDS
        self._mend(now)

    def on_later(self, now: float, status: int, retry_after_seconds: float | None) -> float:
        """It said 429 or 503; returns the seconds to wait. Never opens the breaker: it answers."""
        self.errors[str(status)] += 1
        wait = max(retry_after_seconds or 0.0, self._wait_seconds)
        self._wait_seconds = min(self._wait_seconds * 2, LAST_WAIT_SECONDS)
        if self.state in (EndpointState.REACHABLE, EndpointState.LIMITED, EndpointState.TRIAL):
            self.state, self.why = EndpointState.LIMITED, f"said {status}"
            self.not_before = max(self.not_before, now + wait)
        return wait

    def on_failure(self, now: float, kind: str, why: str) -> bool:
        """A try failed by the server's fault (5xx, dropped, timeout, …); True if the breaker opened."""
        self.errors[kind] += 1
        self._failures += 1
        needed = REFUSALS_TO_OPEN if kind == "refused" else FAILURES_TO_OPEN
        if self.state is EndpointState.TRIAL or self._failures >= needed:
            return self._open(now, why)
        return False

    def on_refusal(self, now: float, status: int, words: str) -> None:
        """It said 4xx about a row. Only a row of 404 or 405 is about the server: it serves something else."""
        self.last_answer = now
        self._failures = self._probe_failures = 0
        self._astray = self._astray + 1 if status in ASTRAY else 0
        if self._astray >= ASTRAY_TO_REFUSE and self.state in (
            EndpointState.REACHABLE,
            EndpointState.LIMITED,
        ):
            self.state, self.why = (
                EndpointState.REFUSING,
                f"said {status} {self._astray} times: {words[:200]}",
            )

    def on_unauthorised(self, now: float, status: int) -> None:
        """It said 401 or 403: no row is at fault."""
        self.errors[str(status)] += 1
        if self.state not in (EndpointState.DRAINING, EndpointState.DRAINED, EndpointState.REMOVED):
            self.state = EndpointState.REFUSING
            self.why = f"said {status}: it wants another key (--api-key-env or --api-key-file)"

    def on_silent(self, now: float, why: str) -> None:
        """It did not answer the first look: it begins broken, and is probed."""
        self.errors["refused"] += 1
        self._open(now, why)

    def on_stalled(self, now: float, why: str) -> bool:
        """It holds requests and finishes none; True if the breaker opened."""
        self.errors["stalled"] += 1
        return self._open(now, why)

    def on_probe(self, now: float, alive: bool) -> bool:
        """A cheap GET was answered or not; True if the breaker opened by it."""
        if alive:
            self._probe_failures = 0
            if self.state is EndpointState.BROKEN:
                self.state = EndpointState.TRIAL
            return False
        self._probe_failures += 1
        if self.state is EndpointState.BROKEN:
            self._back_off(now)
            return False
        if self._probe_failures >= PROBE_FAILURES_TO_OPEN:
            return self._open(now, f"answers no probe ({self._probe_failures} in a row)")
        return False

    def drain(self) -> None:
        """Gives it nothing new; what runs there may finish."""
        if self.state is not EndpointState.REMOVED:
            self.state = EndpointState.DRAINED if self.in_flight == 0 else EndpointState.DRAINING
            self.why = "asked to drain"

    def remove(self) -> None:
        self.state, self.why = EndpointState.REMOVED, "asked to leave"

    def readmit(self, now: float) -> None:
        """Added again by hand: takes requests at once, whatever it was."""
        self.state, self.why, self.not_before = EndpointState.REACHABLE, "", now
        self._failures = self._probe_failures = self._astray = 0
        self._retry_seconds = FIRST_RETRY_SECONDS
        self.last_answer = now

    def check(self) -> None:
        """Raises AssertionError when the state contradicts itself."""
        assert self.in_flight >= 0, self
        assert self.in_flight > 0 or self.outstanding_tokens == 0.0, self
        assert self.state is not EndpointState.DRAINED or self.in_flight == 0, self

    # inside

    def _mend(self, now: float) -> None:
        if self.state in (
            EndpointState.LIMITED,
            EndpointState.TRIAL,
            EndpointState.BROKEN,
            EndpointState.REFUSING,
        ):
            if self.state is EndpointState.LIMITED and now < self.not_before:
                return
            self.state, self.why = EndpointState.REACHABLE, ""
            self._retry_seconds = FIRST_RETRY_SECONDS

    def _open(self, now: float, why: str) -> bool:
        if self.state in (EndpointState.DRAINING, EndpointState.DRAINED, EndpointState.REMOVED):
            return False
        opened = self.state is not EndpointState.BROKEN
        self.state, self.why = EndpointState.BROKEN, why
        if opened:
            self._back_off(now)
        return opened

    def _back_off(self, now: float) -> None:
        self.not_before = now + self._retry_seconds
        self._retry_seconds = min(self._retry_seconds * 2, LAST_RETRY_SECONDS)

    def __repr__(self) -> str:
        return f"Endpoint({self.url}, {self.state}, {self.in_flight}/{self.limit})"
