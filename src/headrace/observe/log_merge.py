"""The schedulers of one server put together: sums and means over ranks, steady readings, counts over time."""

from __future__ import annotations

import numpy as np

from headrace.observe.log_series import Series
from headrace.observe.log_start import PREFILL_GAUGES, Start
from headrace.observe.observation import Column, Window
from headrace.observe.readings import READINGS, Scope, largest
from headrace.observe.steady import queue_grows, steady_window, typical
from headrace.quantities import Origin, Quantity

FEW_SAMPLES = 5  # of a pasted snippet: counts are taken over all of it
TELLING_SECONDS = 30.0  # so long without a retraction says that there are none


class Merged:
    """The schedulers of one server on one time axis: sums, or means where a fraction cannot be added."""

    def __init__(self, start: Start, ranks: int, *, always_tells_retractions: bool) -> None:
        self._tells_retractions = always_tells_retractions
        self._series: dict[int, Series] = {}
        self._line = "Decode or statistics lines"
        if not any(series.samples for inner in start.series.values() for series in inner.values()):
            self._line = "Prefill lines"
            for outer, series in start.prefills.items():
                known = start.series.setdefault(outer, {})
                main = known.setdefault(min(known, default=()), Series(words=PREFILL_GAUGES))
                main.samples, main.words = series.samples, series.words
        for outer, inner in start.series.items():
            with_samples = {rank: series for rank, series in inner.items() if series.samples}
            chosen = with_samples or inner
            first = min(chosen)
            for rank, series in inner.items():
                if rank != first and not series.samples:
                    for word, amount in series.counts.items():  # answers have no rank; the batches do
                        chosen[first].count(word, amount)
            chosen[first].close()
            self._series[outer] = chosen[first]
        unranked = self._series.get(0)
        if unranked is not None and not unranked.samples and len(self._series) > 1:
            other = next(series for rank, series in self._series.items() if rank)
            for word, amount in unranked.counts.items():
                other.count(word, amount)
            other.close()
            del self._series[0]
        self._ranks = ranks
        self.samples = sum(len(series.samples) for series in self._series.values())
        self.has_times = any(series.has_times for series in self._series.values())
        self._impossible: dict[str, int] = {}
        self.times: Column = np.empty(0)
        self.gauges: dict[str, Column] = {}
        self.counts: dict[str, Column] = {}
        self._parts: dict[int, dict[str, Column]] = {}
        self._merge()

    def _merge(self) -> None:
        tables = {rank: series.columns() for rank, series in self._series.items() if series.samples}
        if not tables:
            return
        densest = max(tables, key=lambda rank: len(tables[rank][0]))
        axis = tables[densest][0]
        words = {word for _, gauges, _ in tables.values() for word in gauges}
        for _, gauges, _ in tables.values():
            for word, values in gauges.items():
                beyond = ~((values >= 0) & (values <= largest(word))) & np.isfinite(values)
                values[beyond] = np.nan
                self._impossible[word] = self._impossible.get(word, 0) + int(beyond.sum())
        for rank, (times, gauges, counts) in tables.items():
            at = np.arange(len(axis))
            edges = at
            if rank != densest:  # what this rank said last at each time
                at = np.clip(np.searchsorted(times, axis, side="right") - 1, 0, len(times) - 1)
                edges = np.clip(np.searchsorted(axis, times, side="left"), 0, len(axis) - 1)
            self._parts[rank] = {word: gauges[word][at] for word in gauges}
            for word, amounts in counts.items():
                total = self.counts.setdefault(word, np.zeros(len(axis)))
                np.add.at(total, edges, amounts)
        for word in words:
            parts = np.array([part[word] for part in self._parts.values() if word in part])
            known = np.isfinite(parts).any(axis=0)
            scope = READINGS[word].scope if word in READINGS else Scope.MEAN
            total = np.where(known, np.nansum(parts, axis=0), np.nan)
            if scope is not Scope.SUM:
                total = total / np.maximum(np.isfinite(parts).sum(axis=0), 1)
            elif len(self._parts) < self._ranks:
                total = total * (self._ranks / len(self._parts))  # ranks whose lines are not in this log
            self.gauges[word] = total
        self.times = axis - axis[0]

    def impossible(self) -> list[str]:
        """What was left out because no server shows it."""
        return [
            f"{count} readings of {word} are below 0 or above {largest(word):g}; they are not used."
            for word, count in sorted(self._impossible.items())
            if count
        ]

    def by_rank(self) -> dict[str, dict[str, float]]:
        if len(self._parts) < 2:
            return {}
        found: dict[str, dict[str, float]] = {}
        for rank, part in sorted(self._parts.items()):
            for word in ("running", "queued", "kv_usage"):
                if word in part and (usual := typical(part[word])) is not None:
                    found.setdefault(f"{word}_by_rank", {})[str(rank)] = usual[0]
        return found

    def readings(self) -> tuple[dict[str, Quantity], Window | None]:
        """The steady readings and their window."""
        if not len(self.times):
            return {}, None
        first, last, window = steady_window(self.times, self.gauges.get("running"))
        part = slice(first, last + 1)
        found: dict[str, Quantity] = {}
        line = self._line
        for word, values in self.gauges.items():
            if word not in READINGS or READINGS[word].capacity:
                continue
            usual = typical(values[part])
            if usual is None:
                continue
            median, low, high, count = usual
            quantity = Quantity(
                median, READINGS[word].unit, Origin.REPORTED, f"log, median of {count} {line}"
            )
            found[word] = quantity.with_range(low, high) if low < high else quantity
        self._graphs(found, part)
        self._counted(found, part, first, window.seconds)
        queued = self.gauges.get("queued")
        if queued is not None:
            waiting = queued[part][np.isfinite(queued[part])]
            if len(waiting):
                share = float((waiting > 0).mean())
                found["queue_share_of_steps"] = Quantity(
                    share, "fraction", Origin.MEASURED, f"log, share of {line}"
                )
            if (grows := queue_grows(queued[part])) is not None:
                source = "log, the queue's last third against its first"
                found["queue_growing"] = Quantity(float(grows), "yes/no", Origin.MEASURED, source)
        return found, window

    def _graphs(self, found: dict[str, Quantity], part: slice) -> None:
        graph = self.gauges.get("cuda_graph")
        if graph is None:
            return
        known = graph[part][np.isfinite(graph[part])]
        if len(known):
            share = float(known.mean())
            source = f"log, {len(known)} Decode lines"
            found["cuda_graph"] = Quantity(float(share >= 0.5), "yes/no", Origin.REPORTED, source)
            found["cuda_graph_hit_rate"] = Quantity(share, "fraction", Origin.REPORTED, source)

    def _counted(self, found: dict[str, Quantity], part: slice, first: int, seconds: float) -> None:
        # what a sample counts happened before it: the first sample's lies before the window
        inside = slice(first + 1, part.stop) if part.stop - first > 1 else part
        if part.stop - first < FEW_SAMPLES:
            inside, seconds = slice(0, len(self.times)), float(self.times[-1])
        sums = {word: float(values[inside].sum()) for word, values in self.counts.items()}
        whole = {word: float(values.sum()) for word, values in self.counts.items()}
        new, cached = sums.get("prefill_tokens", 0.0), sums.get("cached_tokens", 0.0)
        if new + cached <= 0:
            new, cached = whole.get("prefill_tokens", 0.0), whole.get("cached_tokens", 0.0)
        if new + cached > 0 and "cache_hit_rate" not in self.gauges:
            source = "log, #cached-token ÷ (#new-token + #cached-token) of Prefill lines"
            found["cache_hit_rate"] = Quantity(cached / (new + cached), "fraction", Origin.MEASURED, source)
        for word in ("accept_length", "accept_rate"):
            times = sums.get(f"times_{word}") or whole.get(f"times_{word}", 0.0)
            total = sums[f"sum_{word}"] if sums.get(f"times_{word}") else whole.get(f"sum_{word}", 0.0)
            if times and word not in found:
                found[word] = Quantity(
                    total / times, READINGS[word].unit, Origin.REPORTED, "log, mean of lines"
                )
        for name, word in (
            ("prompt_tokens", "mean_input_tokens"),
            ("output_tokens", "mean_output_tokens"),
            ("queue_seconds", "queue_time_s"),
        ):
            times = whole.get(f"times_{name}", 0.0)
            if times:
                mean = whole[f"sum_{name}"] / times
                found[word] = Quantity(
                    mean, READINGS[word].unit, Origin.REPORTED, f"log, mean of {times:.0f} requests"
                )
        retracted = sums.get("retracted_requests", 0.0)
        over = f"counted over {seconds:.4g} s of log"
        if not retracted and (retracted := whole.get("retracted_requests", 0.0)):
            seconds_retracted = float(self.times[-1])
            over = f"counted over {seconds_retracted:.4g} s, the whole log"
        else:
            seconds_retracted = seconds
        if retracted or (self._tells_retractions and seconds_retracted >= TELLING_SECONDS):
            found["preemptions"] = Quantity(retracted, "requests", Origin.MEASURED, f"log, {over}")
            if self.has_times and seconds_retracted > 0:
                per_minute = 60 * retracted / seconds_retracted
                found["retractions_per_min"] = Quantity(
                    per_minute, "requests/min", Origin.MEASURED, f"log, {over}"
                )
        if not self.has_times or seconds <= 0:
            return
        over = f"counted over {seconds:.4g} s of log"
        if sums.get("answers") and part.stop - first >= FEW_SAMPLES:
            found["requests_per_s"] = Quantity(
                sums["answers"] / seconds,
                "requests/s",
                Origin.MEASURED,
                f"log, answers with status 200 {over}",
            )
        if "prefill_tokens" in sums and "prefill_tokens_per_s" not in found:
            found["prefill_tokens_per_s"] = Quantity(
                sums["prefill_tokens"] / seconds, "tokens/s", Origin.MEASURED, f"log, #new-token {over}"
            )


def read_capacities(start: Start, ranks: int) -> dict[str, Quantity]:
    """Sizes of the whole server: what adds up is summed over ranks, those that told nothing counted alike."""
    found: dict[str, Quantity] = {}
    for word, by_rank in start.capacities.items():
        if word not in READINGS or not READINGS[word].capacity:
            continue
        values = [value for _, value in by_rank.values() if 0 <= value <= largest(word)]
        if not values:
            continue
        mean = sum(values) / len(values)
        total = mean * ranks if READINGS[word].scope is Scope.SUM else mean
        source = "log, a line of the start" + (f", {len(values)} of {ranks} ranks" if ranks > 1 else "")
        found[word] = Quantity(total, READINGS[word].unit, Origin.REPORTED, source)
    return found
