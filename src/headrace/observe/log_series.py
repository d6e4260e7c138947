"""What one scheduler's log lines say over time, in memory that does not grow with the log.

A sample is one Decode or statistics line; what other lines count (prompt tokens, retractions, answers) is
added to the sample after them. Above 8,192 samples every two become one: gauges keep the later value,
counts are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from headrace.engines.log_event import Value
from headrace.engines.log_shapes import Measures
from headrace.observe.observation import Column

MAX_SAMPLES = 8_192
NO_TIME = float("nan")


@dataclass(slots=True)
class Sample:
    """One line's gauges, and what was counted since the line before it."""

    seconds: float
    gauges: Mapping[str, Value]
    counts: dict[str, float]


@dataclass(slots=True)
class Series:
    """The samples of one scheduler (data-parallel rank) of one server.

    Attributes:
        words: the gauges that are looked at; samples may hold more.
        samples: in the order of the log.
        counts: counted since the last sample.
        last_seconds: the latest time met, NaN before any.
    """

    words: frozenset[str]
    samples: list[Sample] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    last_seconds: float = NO_TIME
    _stride: int = 1
    _skipped: int = 0

    def add(self, seconds: float | None, gauges: Mapping[str, Value]) -> None:
        """Appends a sample."""
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        time = NO_TIME if seconds is None else seconds
        known = (
            gauges.among(self.words)
            if isinstance(gauges, Measures)
            else {word: value for word, value in gauges.items() if word in self.words}
        )
        self.samples.append(Sample(time, known, self.counts))
        self.counts = {}
        if len(self.samples) >= MAX_SAMPLES:
            self._halve()

    def count(self, word: str, amount: float) -> None:
        """Counts something that happened between two samples."""
        self.counts[word] = self.counts.get(word, 0.0) + amount

    def _halve(self) -> None:
        kept = []
        for before, after in zip(self.samples[::2], self.samples[1::2], strict=False):
            for word, amount in before.counts.items():
                after.counts[word] = after.counts.get(word, 0.0) + amount
            kept.append(after)
        self.samples = kept
        self._stride *= 2

    def close(self) -> None:
        """Puts what was counted after the last sample into one without gauges, at the latest time met."""
        if self.samples and self.counts:
            if self.last_seconds > self.samples[-1].seconds:
                self.samples.append(Sample(self.last_seconds, {}, self.counts))
            else:
                for word, amount in self.counts.items():
                    self.samples[-1].counts[word] = self.samples[-1].counts.get(word, 0.0) + amount
            self.counts = {}

    def columns(self) -> tuple[Column, dict[str, Column], dict[str, Column]]:
        """Returns (times, gauges, counts) in order of time; lines without a time are left out where others
        have one, and stand one second apart where none has."""
        times = np.array([sample.seconds for sample in self.samples])
        samples = self.samples
        timed = np.isfinite(times)
        if timed.any():
            order = np.flatnonzero(timed)
            order = order[np.argsort(times[order], kind="stable")]
            samples = [self.samples[at] for at in order]
            times = times[order]
        else:
            times = np.arange(float(len(samples)))
        words = {word for sample in samples for word in sample.gauges if word in self.words}
        counted = {word for sample in samples for word in sample.counts}
        gauges = {
            word: np.array([_plain(sample.gauges.get(word)) for sample in samples], dtype=float)
            for word in words
        }
        counts = {
            word: np.array([sample.counts.get(word, 0.0) for sample in samples], dtype=float)
            for word in counted
        }
        return times, gauges, counts

    @property
    def has_times(self) -> bool:
        """Whether any sample has a time of its own."""
        return any(sample.seconds == sample.seconds for sample in self.samples)


def _plain(value: Value | None) -> float:
    return value if isinstance(value, float) else NO_TIME
