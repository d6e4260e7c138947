"""The failure catalogue: what an engine's warnings and crash texts mean, and what mends them.

An entry is data: an id, how grave it is, the texts that show it, one sentence of meaning, one of mending. The
engines' own entries lie in their folders (`sglang/failures.py`, `vllm/failures.py`); what any of them may
say lies in `failures_shared.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from headrace.engines.failure_entry import Failure
from headrace.engines.failures_shared import SHARED


class _Index:
    """Finds the first of some entries one of whose texts stands in a message.

    A line of a log is looked at for a hundred texts: nearly all are ruled out at once by an inner word.
    """

    def __init__(self, entries: Sequence[Failure]) -> None:
        self._entries = entries
        self._short: list[tuple[int, str]] = []
        self._by_word: dict[str, list[tuple[int, str]]] = {}
        for number, entry in enumerate(entries):
            for mark in entry.marks:
                word = max(mark.split(" ")[1:-1], key=len, default="")
                if len(word) > 3:
                    self._by_word.setdefault(word, []).append((number, mark))
                else:
                    self._short.append((number, mark))
        self._words = frozenset(self._by_word)

    def find(self, message: str) -> Failure | None:
        first = len(self._entries)
        for number, mark in self._short:
            if mark in message:
                first = number
                break
        words = message.split(" ")
        for word in () if self._words.isdisjoint(words) else self._words.intersection(words):
            for number, mark in self._by_word[word]:
                if number < first and mark in message:
                    first = number
        return self._entries[first] if first < len(self._entries) else None


class Catalogue:
    """The entries of one engine, the shared ones after them."""

    def __init__(self, entries: Sequence[Failure]) -> None:
        self.entries: tuple[Failure, ...] = (*entries, *SHARED)
        self.by_id = {entry.id: entry for entry in self.entries}
        if len(self.by_id) != len(self.entries):
            raise ValueError("two entries of one id")
        self._own = _Index(tuple(entries))

    def find(self, message: str) -> Failure | None:
        """Returns the first entry one of whose texts stands in the message, or None."""
        return self._own.find(message) or _find_shared(message)


SHARED_IDS = frozenset(entry.id for entry in SHARED)
_SHARED_INDEX = _Index(SHARED)


@lru_cache(maxsize=4)
def _find_shared(message: str) -> Failure | None:
    """The shared entry of a message; remembered, for each engine's parser asks in turn."""
    return _SHARED_INDEX.find(message)
