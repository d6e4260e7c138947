"""How a job goes: counts, rates, lengths and the time left, from what was answered and what is in flight.

Requests in flight have made tokens that no finished row shows yet. Each is credited with its age times
the tokens per second of finished requests (Σ tokens ÷ Σ latency), so that the rate is right from the
first answers on; the finished-only figure stands beside it until two latencies have passed.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from statistics import median

WINDOW_SECONDS = 60.0
RECENT = 512  # answers remembered for the median latency and the tokens per second of one request


@dataclass(slots=True)
class SourceCount:
    """One source's answers."""

    answered: int = 0
    output_tokens: int = 0
    truncated: int = 0

    def mean_tokens(self) -> float | None:
        return self.output_tokens / self.answered if self.answered else None


@dataclass(slots=True)
class _Sample:
    now: float
    answers: int
    tokens: float
    in_flight_tokens: float
    by_server: dict[str, tuple[int, float]]


@dataclass(slots=True)
class Rates:
    """Rates over the last window; None while nothing has been answered."""

    requests_per_second: float | None
    tokens_per_second: float | None
    finished_tokens_per_second: float | None
    by_server: dict[str, float]


@dataclass(slots=True)
class Progress:
    """Counts of this run. `started` is monotonic seconds."""

    started: float
    sources: list[SourceCount]
    answers: int = 0
    tokens: int = 0
    hedged: int = 0
    flags: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))
    _recent_seconds: float = 0.0
    _recent_tokens: int = 0
    _samples: deque[_Sample] = field(default_factory=deque)

    def answered(self, source: int, output_tokens: int, latency_seconds: float, flags: list[str]) -> None:
        """A row was answered."""
        self.answers += 1
        self.tokens += output_tokens
        count = self.sources[source]
        count.answered += 1
        count.output_tokens += output_tokens
        for flag in flags:
            self.flags[flag] += 1
            if flag == "truncated":
                count.truncated += 1
        if len(self._recent) == RECENT:
            old_seconds, old_tokens = self._recent[0]
            self._recent_seconds -= old_seconds
            self._recent_tokens -= old_tokens
        self._recent.append((latency_seconds, output_tokens))
        self._recent_seconds += latency_seconds
        self._recent_tokens += output_tokens

    def add_earlier(self, source: int, earlier: SourceCount) -> None:
        """Takes up what a source's rows of earlier runs were like; rates stay those of this run."""
        count = self.sources[source]
        count.answered += earlier.answered
        count.output_tokens += earlier.output_tokens
        count.truncated += earlier.truncated

    def request_tokens_per_second(self) -> float | None:
        """Output tokens per second of one running request, over recent answers."""
        return self._recent_tokens / self._recent_seconds if self._recent_seconds > 0 else None

    def median_latency(self) -> float | None:
        return median(latency for latency, _ in self._recent) if self._recent else None

    def mean_tokens(self) -> float | None:
        """Mean output tokens of all rows answered so far."""
        answered = sum(count.answered for count in self.sources)
        return sum(count.output_tokens for count in self.sources) / answered if answered else None

    def expected_tokens(self, source: int, fallback: float) -> float:
        """Expected output tokens of a row of this source."""
        return self.sources[source].mean_tokens() or self.mean_tokens() or fallback

    def in_flight_tokens(self, ages_seconds: float) -> float | None:
        """Tokens already made by requests in flight whose ages sum to `ages_seconds`."""
        rate = self.request_tokens_per_second()
        return None if rate is None else rate * ages_seconds

    def sample(self, now: float, ages: dict[str, float], by_server: dict[str, tuple[int, int]]) -> None:
        """Notes where the job stands now; called about once a second.

        Args:
            ages: per server, the summed ages of its requests in flight, seconds.
            by_server: per server, rows answered and their output tokens.
        """
        rate = self.request_tokens_per_second() or 0.0
        servers = {
            url: (answered, tokens + rate * ages.get(url, 0.0))
            for url, (answered, tokens) in by_server.items()
        }
        self._samples.append(_Sample(now, self.answers, self.tokens, rate * sum(ages.values()), servers))
        while len(self._samples) > 2 and now - self._samples[1].now >= WINDOW_SECONDS:
            self._samples.popleft()

    def rates(self) -> Rates:
        """Rates between the oldest and the newest sample of the window."""
        if not self.answers or len(self._samples) < 2:
            return Rates(None, None, None, {})
        first, last = self._samples[0], self._samples[-1]
        seconds = last.now - first.now
        if seconds <= 0:
            return Rates(None, None, None, {})
        # what was in flight at the window's start was made before it; at the start of a run nothing was.
        made = last.tokens + last.in_flight_tokens - first.tokens - first.in_flight_tokens
        return Rates(
            requests_per_second=(last.answers - first.answers) / seconds,
            tokens_per_second=max(made, 0.0) / seconds,
            finished_tokens_per_second=(last.tokens - first.tokens) / seconds,
            by_server={
                url: max(tokens - first.by_server[url][1], 0.0) / seconds
                for url, (_, tokens) in last.by_server.items()
                if url in first.by_server
            },
        )

    def whole_run(self, now: float) -> Rates:
        """Rates over the whole run, for its end."""
        seconds = now - self.started
        if not self.answers or seconds <= 0:
            return Rates(None, None, None, {})
        finished = self.tokens / seconds
        return Rates(self.answers / seconds, finished, finished, {})

    def settled(self, now: float) -> bool:
        """Whether two median latencies have passed, so that finished rows alone tell the rate."""
        latency = self.median_latency()
        return latency is not None and now - self.started >= 2 * latency + 1

    def eta_seconds(
        self, remaining_by_source: list[int], in_flight_tokens: float, rate: float | None
    ) -> float | None:
        """Seconds left: remaining rows × mean tokens of their source, less what is in flight, ÷ rate."""
        mean = self.mean_tokens()
        if not rate or mean is None:
            return None
        tokens = sum(
            rows * (count.mean_tokens() or mean)
            for rows, count in zip(remaining_by_source, self.sources, strict=True)
        )
        return max(tokens - in_flight_tokens, 0.0) / rate
