"""Scrapes of one server over time, put together: columns, steady readings, what was stale or restarted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.engines.metrics import Page
from headrace.observe.observation import Column, Event, Window
from headrace.observe.readings import BY_RANK, LARGEST, READINGS, largest
from headrace.observe.steady import Growth, growth, queue_grows, steady_window, typical
from headrace.quantities import Origin, Quantity

STALE_SECONDS = 10.0  # gauges and counters that stand still for so long, while requests are said to run


@dataclass(slots=True)
class Reduced:
    """What a track comes to; the fields are those of ServerObservation."""

    seconds: Column
    columns: dict[str, Column] = field(default_factory=dict)
    readings: dict[str, Quantity] = field(default_factory=dict)
    capacities: dict[str, Quantity] = field(default_factory=dict)
    by_rank: dict[str, Mapping[str, float]] = field(default_factory=dict)
    window: Window | None = None
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Series:
    """One server's samples as columns, whoever took them.

    Attributes:
        seconds: times, ascending; at least one.
        gauges, counters: word → one value per time, NaN where unknown.
        by_rank: reading word → rank → values.
        names: word → the metric it was read from.
        ranks: data-parallel ranks.
        notes: what was left out in reading.
    """

    seconds: Column
    gauges: dict[str, Column] = field(default_factory=dict)
    counters: dict[str, Column] = field(default_factory=dict)
    by_rank: dict[str, dict[str, Column]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    ranks: int = 1
    notes: list[str] = field(default_factory=list)

    def rate(self) -> Column | None:
        """Output tokens per second by the counter, else as the server's gauge says; None without either."""
        counted = self.counters.get("output_tokens")
        if counted is not None:
            counted = _within(counted, LARGEST)
        if counted is not None and np.isfinite(counted).sum() > 1:
            return _per_interval(self.seconds, counted)
        return self.gauges.get("output_tokens_per_s")

    def reduced(self, steady: tuple[float, float] | None = None) -> Reduced:
        """Columns over all samples, readings over the steady window.

        Args:
            steady: its start and end where they are known; else the samples with a full batch.
        """
        return _Reducer(self, steady).run()


@dataclass(slots=True)
class Track:
    """One server's scrapes. Times are monotonic seconds, from the first scrape on."""

    seconds: list[float] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def add(self, seconds: float, page: Page) -> None:
        """Appends a scrape; one that is not later than the last is dropped."""
        if not self.seconds or seconds > self.seconds[-1]:
            self.seconds.append(seconds)
            self.pages.append(page)

    def series(self) -> Series:
        """The scrapes as columns; at least one was added."""
        pages = self.pages
        gauges = {word for page in pages for word in page.gauges}
        counters = {word for page in pages for word in page.counters}
        ranks = {(word, rank) for page in pages for word, each in page.by_rank.items() for rank in each}
        by_rank: dict[str, dict[str, Column]] = {}
        for word, rank in sorted(ranks):
            values = [page.by_rank.get(word, {}).get(rank) for page in pages]
            by_rank.setdefault(word, {})[rank] = as_column(values)
        return Series(
            seconds=np.array(self.seconds) - self.seconds[0],
            gauges={word: as_column([page.gauges.get(word) for page in pages]) for word in gauges},
            counters={word: as_column([page.counters.get(word) for page in pages]) for word in counters},
            by_rank=by_rank,
            names={word: name for page in pages for word, name in page.names.items()},
            ranks=max(page.ranks for page in pages),
            notes=list(dict.fromkeys(note for page in pages for note in page.notes)),
        )

    def reduced(self) -> Reduced:
        """Columns over all scrapes, readings over the steady window."""
        return self.series().reduced() if self.seconds else Reduced(np.empty(0))


class _Reducer:
    def __init__(self, series: Series, steady: tuple[float, float] | None) -> None:
        self._series, self._times = series, series.seconds
        self._found = Reduced(series.seconds, notes=list(series.notes))
        self._gauges = {word: _within(values, largest(word)) for word, values in series.gauges.items()}
        for word in sorted(self._gauges):
            shown = int(np.isfinite(series.gauges[word]).sum())
            if beyond := shown - int(np.isfinite(self._gauges[word]).sum()):
                self._found.notes.append(
                    f"{beyond} readings of {word} are below 0 or above {largest(word):g}; they are not used."
                )
        self._counters = {word: _within(values, LARGEST) for word, values in series.counters.items()}
        self._names, self._ranks = series.names, series.ranks
        self._first, self._last, self._found.window = steady_window(
            self._times, self._gauges.get("running"), steady
        )

    def run(self) -> Reduced:
        found = self._found
        for word, values in self._gauges.items():
            if word not in READINGS:
                continue
            found.columns[word] = values
            usual = typical(values[self._first : self._last + 1])
            if usual is None:
                continue
            median, low, high, count = usual
            source = self._names.get(word, word) + (f", median of {count}" if count > 1 else "")
            quantity = Quantity(median, READINGS[word].unit, Origin.REPORTED, source)
            if low < high:
                quantity = quantity.with_range(low, high)
            (found.capacities if READINGS[word].capacity else found.readings)[word] = quantity
        self._queue()
        self._by_rank()
        self._rates()
        self._means()
        self._restarts()
        self._staleness()
        return found

    def _queue(self) -> None:
        queued = self._gauges.get("queued")
        if queued is not None and (grows := queue_grows(queued[self._first : self._last + 1])) is not None:
            source = f"{self._names.get('queued', 'queued')}, last third against first"
            self._found.readings["queue_growing"] = Quantity(float(grows), "yes/no", Origin.MEASURED, source)

    # ── counters ──────────────────────────────────────────────────────────────────────────────────────────
    def _rates(self) -> None:
        columns = self._found.columns
        for counter, word in (
            ("output_tokens", "output_tokens_per_s"),
            ("finished_output_tokens", "output_tokens_per_s_finished_only"),
            ("prefill_tokens", "prefill_tokens_per_s"),
            ("finished_requests", "requests_per_s"),
        ):
            grown = self._growth(counter)
            if grown is None:
                continue
            columns[word] = _per_interval(self._times, self._counters[counter])
            shorter_than_a_step = grown.seconds < STALE_SECONDS and self._running() > 0
            if counter == "output_tokens" and not grown.amount and shorter_than_a_step:
                continue  # the counter moves once per log interval; the gauge stands
            self._measure(word, grown.per_second, counter, grown)
        retracted = self._growth("retracted_requests")
        if retracted is not None:
            self._measure("preemptions", retracted.amount, "retracted_requests", retracted)
            self._measure("retractions_per_min", 60 * retracted.per_second, "retracted_requests", retracted)
        steps = self._growth("moment_steps", from_step_to_step=False)
        busy = self._growth("moment_seconds", from_step_to_step=False)
        if steps and busy and steps.amount > 0:
            self._measure("step_ms", 1000 * busy.amount / steps.amount, "moment_seconds", steps)
        elif self._always_busy():
            steps = self._growth("decode_steps") or self._growth("steps")
            if steps is not None and steps.amount > 0:
                word = "decode_steps" if "decode_steps" in self._counters else "steps"
                milliseconds = 1000 * self._ranks / steps.per_second
                self._measure("step_ms", milliseconds, word, steps, ", prefill between steps included")
        prefill = self._growth("prefill_seconds")
        if prefill is not None:
            share = min(prefill.per_second / self._ranks, 1.0)
            self._measure("prefill_share_of_time", share, "prefill_seconds", prefill)
        slots, passes = self._growth("busy_slots_steps"), self._growth("steps")
        if slots and passes and passes.amount > 0 and "output_tokens_per_s" not in self._found.readings:
            self._measure("output_tokens_per_s", slots.per_second, "busy_slots_steps", slots)

    def _means(self) -> None:
        """Ratios and means: over the window where it counts anything, else since the server started."""
        for top, bottom, word in (
            ("ttft_seconds", "ttft_count", "ttft_s"),
            ("latency_seconds", "latency_count", "latency_s"),
            ("itl_seconds", "itl_count", "itl_s"),
            ("tpot_seconds", "tpot_count", "tpot_s"),
            ("queue_seconds", "queue_count", "queue_time_s"),
            ("input_length_tokens", "input_length_count", "mean_input_tokens"),
            ("output_length_tokens", "output_length_count", "mean_output_tokens"),
            ("decode_graph_steps", "decode_steps", "cuda_graph_hit_rate"),
            ("accepted_tokens", "draft_tokens", "accept_rate"),
        ):
            self._ratio(word, top, bottom)
        if self._ratio("cuda_graph", "decode_graph_steps", "decode_steps"):
            share = self._found.readings["cuda_graph"]
            self._found.readings["cuda_graph"] = Quantity(
                float(share.value >= 0.5), "yes/no", share.origin, share.source
            )
        self._ratio("accept_length", "accepted_tokens", "drafts", plus=1.0)
        if "queried_tokens" in self._counters:
            self._ratio("cache_hit_rate", "cached_tokens", "queried_tokens")
        else:
            self._ratio("cache_hit_rate", "cached_tokens", "prefill_tokens", share=True)

    def _ratio(self, word: str, top: str, bottom: str, *, plus: float = 0.0, share: bool = False) -> bool:
        """Puts growth of `top` ÷ growth of `bottom` (`share`: ÷ their sum) as a reading."""
        if bottom not in self._counters:
            return False
        below = self._growth(bottom, from_step_to_step=False)
        above = self._growth(top, from_step_to_step=False) or Growth(0.0, 1.0, 0)
        when = f"over {below.seconds:.3g} s" if below else ""
        total, part = (below.amount if below else 0.0), above.amount
        if total + (part if share else 0.0) <= 0:
            total, part = self._newest(bottom), self._newest(top)
            when = "since the server started"
        whole = total + (part if share else 0.0)
        if whole <= 0 or part < 0 or part / whole > LARGEST:
            return False
        name = self._names.get(bottom, bottom)
        self._found.readings[word] = Quantity(
            plus + part / whole, READINGS[word].unit, Origin.REPORTED, f"{name}, {when}"
        )
        return True

    def _growth(self, counter: str, *, from_step_to_step: bool = True) -> Growth | None:
        values = self._counters.get(counter)
        if values is None:
            return None
        part = slice(self._first, self._last + 1)
        return growth(self._times[part], values[part], from_step_to_step=from_step_to_step)

    def _newest(self, counter: str) -> float:
        values = self._counters.get(counter)
        finite = values[np.isfinite(values)] if values is not None else np.empty(0)
        return float(finite[-1]) if len(finite) else 0.0

    def _measure(self, word: str, value: float, counter: str, grown: Growth, remark: str = "") -> None:
        if 0 <= value < LARGEST:
            source = f"{self._names.get(counter, counter)}, growth over {grown.seconds:.3g} s{remark}"
            self._found.readings[word] = Quantity(value, READINGS[word].unit, Origin.MEASURED, source)

    # ── what to say ───────────────────────────────────────────────────────────────────────────────────────
    def _restarts(self) -> None:
        resets = 0
        for word in self._counters:
            grown = growth(self._times, self._counters[word])
            resets = max(resets, grown.resets if grown else 0)
        if resets:
            text = "counters went back to a lower value: the server restarted while it was watched"
            self._found.events.append(Event("restart", "failure", resets, text))
            self._found.notes.append(f"{text}; intervals across a restart are left out.")

    def _staleness(self) -> None:
        """Gauges keep their last value when nothing runs: told by counters that stand still beside them."""
        grown = (
            growth(self._times, self._counters["output_tokens"])
            if "output_tokens" in self._counters
            else None
        )
        if grown is None or grown.amount > 0 or grown.seconds < STALE_SECONDS or not self._running():
            return
        if self._names.get("running", "").startswith("/v1/loads"):
            self._found.notes.append(
                f"requests run but no token was made in {grown.seconds:.3g} s: the server is stuck, or in a "
                "long prefill."
            )
            return
        gauges = [
            word
            for word in (*self._gauges, "output_tokens_per_s", "queue_growing")
            if word in self._found.readings
        ]
        for word in gauges:
            self._found.readings.pop(word, None)
        names = ", ".join(sorted(set(gauges)))
        self._found.notes.append(
            f"no token was made in {grown.seconds:.3g} s: the gauges ({names}) are left over from earlier "
            "work and are not read. Watch the server while it works."
        )

    def _by_rank(self) -> None:
        for word, ranks in self._series.by_rank.items():
            if f"{word}_by_rank" not in BY_RANK:
                continue
            part = slice(self._first, self._last + 1)
            usual = {rank: typical(_within(values[part], largest(word))) for rank, values in ranks.items()}
            medians = {rank: found[0] for rank, found in sorted(usual.items()) if found is not None}
            if medians:
                self._found.by_rank[f"{word}_by_rank"] = medians

    def _running(self) -> float:
        reading = self._found.readings.get("running")
        return reading.value if reading else 0.0

    def _always_busy(self) -> bool:
        running = self._gauges.get("running")
        return running is not None and bool(np.all(running[self._first : self._last + 1] > 0))


def as_column(values: Sequence[float | None]) -> Column:
    """Values as a column, NaN for None."""
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _within(values: Column, limit: float) -> Column:
    """The column without what is no reading: negative, infinite, or beyond the limit."""
    return np.where((values >= 0) & (values <= limit), values, np.nan)


def _per_interval(times: Column, values: Column) -> Column:
    """A counter's rate in each interval; NaN in the first and across a restart."""
    rates = np.full(len(times), np.nan)
    if len(times) > 1:
        steps = np.diff(values)
        rates[1:] = np.where(steps >= 0, steps / np.diff(times), np.nan)
    return rates
