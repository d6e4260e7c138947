"""The lines of a metrics page that count, found again without looking at the others.

A server's page has the same lines in the same order from scrape to scrape; only values change. So the first
scrape says which lines are of known families and what their labels are; from then on these lines alone are
taken up, checked by their first bytes, and their values read. A page that changed (a restart, a new label,
the first request of a kind) is read in full once more. What that saves stands in bench/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.engines.metrics import MAX_LINE_CHARACTERS, MAX_PAGE_BYTES, samples

READ_IN_FULL_EVERY = 300  # a family that took the place of another one's line is met within so many pages


@dataclass(frozen=True, slots=True)
class _Known:
    """One line of a known family: its place, the bytes before the value, and what they say."""

    place: int
    before: bytes
    name: str
    labels: dict[str, str]


class PageLines:
    """Reads the pages of one server, one after the other.

    Args:
        names: families that count.
    """

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names
        self._known: list[_Known] = []
        self._lines = -1
        self._since = 0
        self.full_reads = 0  # how often a page was read in full

    def read(self, page: bytes) -> list[tuple[str, dict[str, str], float]]:
        """Returns (family, labels, value) of each line that counts, as `samples` does. Labels are shared."""
        lines = page[:MAX_PAGE_BYTES].split(b"\n")
        if len(lines) == self._lines:
            found = self._again(lines)
            if found is not None:
                return found
        return self._in_full(lines)

    def _again(self, lines: list[bytes]) -> list[tuple[str, dict[str, str], float]] | None:
        found = []
        for known in self._known:
            line = lines[known.place]
            if not line.startswith(known.before):
                return None
            try:
                found.append((known.name, known.labels, float(line[len(known.before) :])))
            except ValueError:  # a time stamp behind the value, or no number
                return None
        return found

    def _in_full(self, lines: list[bytes]) -> list[tuple[str, dict[str, str], float]]:
        self.full_reads += 1
        self._since = 0
        found: list[tuple[str, dict[str, str], float]] = []
        known: list[_Known] = []
        plain = True
        for place, line in enumerate(lines):
            if line[:1] == b"#" or len(line) > MAX_LINE_CHARACTERS:
                continue
            for name, labels, value in samples(line, self._names):
                found.append((name, labels, value))
                before = line[: line.rstrip().rfind(b" ") + 1]
                plain = plain and before.rstrip().endswith((b"}", name.encode(), _relabelled(name)))
                known.append(_Known(place, before, name, labels))
        self._known, self._lines = known, len(lines) if plain else -1
        return found


def _relabelled(name: str) -> bytes:
    return name.replace(":", "_", 1).encode()
