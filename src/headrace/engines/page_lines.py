"""The lines of a metrics page that count, found again without looking at the others.

A server's page has the same lines in the same order from scrape to scrape; only values change. So the first
scrape says which lines are of known families, what their labels are and how they add up; from then on these
lines alone are taken up, checked by their first bytes, and their values read. A page that changed
(a restart, a new label, the first request of a kind) is read in full once more. What that saves stands in
bench/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from headrace.engines.metrics import MAX_LINE_CHARACTERS, MAX_PAGE_BYTES, Family, Page, Sums, samples

READ_IN_FULL_EVERY = 300  # a family that took the place of another one's line is met within so many pages
Sample = tuple[str, dict[str, str], float]


class PageLines:
    """Reads the pages of one server, one after the other.

    Args:
        families, rank_labels: as of `read_page`.
        beside: families of which only the labels count.
    """

    def __init__(
        self,
        families: Mapping[str, tuple[Family, ...]],
        rank_labels: tuple[str, ...],
        beside: tuple[str, ...] = (),
    ) -> None:
        self._families, self._rank_labels = families, rank_labels
        self._names: Mapping[str, object] = {**families, **dict.fromkeys(beside)}
        self._known: list[tuple[int, bytes]] = []  # line, and the bytes before its value
        self._lines = -1
        self._since = 0
        self._entries: list[Sample] = []
        self._finite: list[bool] = []
        self._sums: Sums | None = None
        self._beside: list[Sample] = []
        self.full_reads = 0  # how often a page was read in full

    def read(self, page: bytes) -> tuple[Page, list[Sample]]:
        """Returns the page, and the samples of the families beside."""
        lines = page[:MAX_PAGE_BYTES].split(b"\n")
        self._since += 1
        values = None
        if len(lines) == self._lines and self._since < READ_IN_FULL_EVERY:
            values = self._again(lines)
        if values is None:
            values = self._in_full(lines)
        finite = [math.isfinite(value) for value in values]
        if self._sums is None or finite != self._finite:
            rows = [
                (name, labels, value) for (name, labels, _), value in zip(self._entries, values, strict=True)
            ]
            self._sums, self._finite = Sums.of(rows, self._families, self._rank_labels), finite
        return self._sums.page(values), self._beside

    def _again(self, lines: list[bytes]) -> list[float] | None:
        found = []
        for place, before in self._known:
            line = lines[place]
            if not line.startswith(before):
                return None
            try:
                found.append(float(line[len(before) :]))
            except ValueError:  # no number any more
                return None
        return found

    def _in_full(self, lines: list[bytes]) -> list[float]:
        self.full_reads += 1
        self._since = 0
        self._entries, self._beside, self._sums = [], [], None
        known: list[tuple[int, bytes]] = []
        same = True  # whether every line is `name{labels} value`, without a time stamp
        for place, line in enumerate(lines):
            if line[:1] == b"#" or len(line) > MAX_LINE_CHARACTERS:
                continue
            read = list(samples(line, self._names))
            if not read and self._is_known(line):
                same = False  # it has no number now, and may have one in the next page
            for sample in read:
                if sample[0] not in self._families:
                    self._beside.append(sample)
                    continue
                self._entries.append(sample)
                before = line[: line.rstrip().rfind(b" ") + 1]
                same = same and before.rstrip().endswith((b"}", *_spellings(sample[0])))
                known.append((place, before))
        self._known, self._lines = known, len(lines) if same else -1
        return [value for _, _, value in self._entries]

    def _is_known(self, line: bytes) -> bool:
        name = line.split(b"{")[0].split(b" ")[0].decode("utf-8", "replace")
        return name in self._names or name.replace("_", ":", 1) in self._names


def _spellings(name: str) -> tuple[bytes, bytes]:
    return name.encode(), name.replace(":", "_", 1).encode()
