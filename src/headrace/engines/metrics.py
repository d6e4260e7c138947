"""A scrape of a server's Prometheus page: what its families mean, summed over ranks without counting twice.

Every engine's `metrics` module has a table of families; this module reads lines and adds them up. Only the
families of the table are looked at: a page of 10,000 lines costs some milliseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

MAX_PAGE_BYTES = 32 * 1024 * 1024
MAX_LINE_CHARACTERS = 16_384
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')

COUNTERS: Mapping[str, str] = {
    "output_tokens": "tokens generated",
    "finished_output_tokens": "tokens of answers, counted as they are sent or finished",
    "prefill_tokens": "prompt tokens computed",
    "cached_tokens": "prompt tokens taken from the prefix cache",
    "queried_tokens": "prompt tokens looked up in the prefix cache",
    "finished_requests": "requests answered",
    "retracted_requests": "requests whose work was thrown away for lack of room",
    "steps": "forward passes",
    "decode_steps": "forward passes that generate",
    "decode_graph_steps": "of these, run as a captured graph",
    "busy_slots_steps": "running requests, summed over the forward passes",
    "drafts": "verification passes of speculative decoding",
    "draft_tokens": "tokens drafted",
    "accepted_tokens": "drafted tokens accepted",
    "prefill_seconds": "seconds spent in prefill",
    "idle_seconds": "seconds in which the scheduler had nothing to do",
    "ttft_seconds": "sum of a histogram: seconds to the first token",
    "ttft_count": "its count",
    "latency_seconds": "sum: seconds of whole requests",
    "latency_count": "its count",
    "itl_seconds": "sum: seconds between two tokens",
    "itl_count": "its count",
    "tpot_seconds": "sum: seconds per output token of a request",
    "tpot_count": "its count",
    "queue_seconds": "sum: seconds waited in the server",
    "queue_count": "its count",
    "input_length_tokens": "sum: prompt tokens of requests",
    "input_length_count": "its count",
    "output_length_tokens": "sum: output tokens of finished requests",
    "output_length_count": "its count",
    "moment_steps": "decode steps that follow a decode step",
    "moment_seconds": "seconds of these steps",
}
"""What only grows → what it counts. A value below the last one means that the server restarted."""


@dataclass(frozen=True, slots=True)
class Family:
    """What one metric family says.

    Attributes:
        word: a word of `observe.readings` for a gauge, of `COUNTERS` for a counter.
        ranks: how data-parallel ranks become one server: `sum`, `mean` or `each` (the same everywhere).
        counter: whether it only grows.
        where: label → beginning of its value, for samples that count; {} takes all.
    """

    word: str
    ranks: str = "sum"
    counter: bool = False
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Page:
    """One scrape in headrace's words.

    Attributes:
        gauges: reading word → value, ranks put together.
        counters: word of `COUNTERS` → value, ranks summed.
        by_rank: reading word → rank → value, where there are several.
        settings: allow-listed settings that the page tells.
        model: the served model's name, or None.
        seen: number of samples of known families; 0 says that this is no such engine's page.
        ranks: data-parallel ranks met, at least 1.
        names: word → the metric it was read from.
        notes: what was left out, and why.
    """

    gauges: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    by_rank: dict[str, dict[str, float]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    seen: int = 0
    ranks: int = 1
    names: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def samples(page: bytes | str, names: Mapping[str, object]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yields (family, labels, value) of each sample whose family is in `names`; passes over all else.

    `sglang_x` and `sglang:x` are one name: relabelling proxies write the first. Values may be NaN.
    """
    text = page if isinstance(page, str) else page[:MAX_PAGE_BYTES].decode("utf-8", "replace")
    for line in text.splitlines():
        if not line or line[0] == "#" or len(line) > MAX_LINE_CHARACTERS:
            continue
        brace = line.find("{")
        name_end = brace if brace > 0 else line.find(" ")
        if name_end <= 0:
            continue
        name = line[:name_end]
        if name not in names:
            name = name.replace("_", ":", 1)
            if name not in names:
                continue
        labels: dict[str, str] = {}
        rest = line[name_end:]
        if brace > 0:
            close = line.rfind("}")
            if close < brace:
                continue
            labels = dict(_LABEL.findall(line[brace + 1 : close]))
            rest = line[close + 1 :]
        words = rest.split()
        if not words or len(words) > 2:  # value, and perhaps a timestamp
            continue
        try:
            value = float(words[0])
        except ValueError:
            continue
        yield name, labels, value


def read_page(
    page: bytes | str, families: Mapping[str, tuple[Family, ...]], rank_labels: tuple[str, ...]
) -> Page:
    """Returns the scrape, with every data-parallel rank counted once.

    Args:
        families: metric name → what it says, each perhaps under several conditions.
        rank_labels: the label of data-parallel ranks first, then those of ranks that say the same again
            (tensor, pipeline, expert): of these the first rank is taken.
    """
    return add_up(samples(page, families), families, rank_labels)


def add_up(
    found_samples: Iterable[tuple[str, dict[str, str], float]],
    families: Mapping[str, tuple[Family, ...]],
    rank_labels: tuple[str, ...],
) -> Page:
    """`read_page` of samples that were read already; each is of a family of the table."""
    entries = list(found_samples)
    return Sums.of(entries, families, rank_labels).page([value for _, _, value in entries])


@dataclass(frozen=True, slots=True)
class _Sum:
    """Where the samples of one word stand: per data-parallel rank, those that add up."""

    word: str
    name: str
    counter: bool
    ranks: str
    parts: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """How the samples of a page become its words: worked out once for pages that have the same lines."""

    sums: tuple[_Sum, ...]
    seen: int
    model: str | None
    ranks: int

    @classmethod
    def of(
        cls,
        entries: Sequence[tuple[str, dict[str, str], float]],
        families: Mapping[str, tuple[Family, ...]],
        rank_labels: tuple[str, ...],
    ) -> Sums:
        """The sums of these samples; those that are no finite number are in none."""
        # (word, name) → data-parallel rank → rest of the identity → place of the first inner rank
        parts: dict[tuple[str, str], dict[str, dict[tuple[str, ...], tuple[tuple[int, ...], int]]]] = {}
        known: dict[str, Family] = {}
        model = None
        ignored = {*rank_labels, "pid", "model_name"}
        for place, (name, labels, value) in enumerate(entries):
            model = model or labels.get("model_name") or labels.get("name")
            if not math.isfinite(value):
                continue
            for family in families[name]:
                if any(not labels.get(label, "").startswith(start) for label, start in family.where.items()):
                    continue
                known[family.word] = family
                outer = labels.get(rank_labels[0], "0")
                inner = tuple(_whole(labels.get(label)) for label in rank_labels[1:])
                rest = tuple(f"{label}={labels[label]}" for label in sorted(labels) if label not in ignored)
                ranks = parts.setdefault((family.word, name), {}).setdefault(outer, {})
                if rest not in ranks or inner < ranks[rest][0]:
                    ranks[rest] = (inner, place)
        order = {name: place for place, name in enumerate(families)}
        sums: dict[str, _Sum] = {}
        for (word, name), by_outer in sorted(parts.items(), key=lambda part: order[part[0][1]]):
            if word not in sums:  # else an earlier family of the table says it already
                family = known[word]
                summed = tuple((outer, _places(ranks)) for outer, ranks in by_outer.items())
                sums[word] = _Sum(word, name, family.counter, family.ranks, summed)
        most = max((len(one.parts) for one in sums.values()), default=1)
        return cls(tuple(sums.values()), len(entries), model, max(1, most))

    def page(self, values: Sequence[float]) -> Page:
        """The page of these values, in the order of the samples."""
        found = Page(seen=self.seen, model=self.model, ranks=self.ranks)
        for one in self.sums:
            found.names[one.word] = one.name
            by_rank = {
                rank: values[places[0]] if len(places) == 1 else math.fsum(values[place] for place in places)
                for rank, places in one.parts
            }
            total = math.fsum(by_rank.values())
            if one.counter:
                found.counters[one.word] = total
                continue
            found.gauges[one.word] = total if one.ranks == "sum" else total / len(by_rank)
            if len(by_rank) > 1 and one.ranks != "each":
                found.by_rank[one.word] = by_rank
        return found


def _places(ranks: Mapping[tuple[str, ...], tuple[tuple[int, ...], int]]) -> tuple[int, ...]:
    """What is left of a family's labels (modes, priorities) adds up; "" of a priority is their sum."""
    plain = [place for rest, (_, place) in ranks.items() if "priority=" in rest]
    return tuple(plain or [place for _, place in ranks.values()])


def _whole(text: str | None) -> int:
    return int(text) if text and len(text) < 9 and text.isascii() and text.isdigit() else 0
