"""What is to be generated: prompts with their lengths, when they arrive, and which share a beginning."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Workload:
    """Prompts as arrays of equal length.

    Attributes:
        input_tokens, output_tokens: at least 1 each. Outputs are what a request really makes, cut at
            `asked_tokens` (max_tokens).
        asked_tokens: what it asks for; an engine's admission goes by it.
        arrival: seconds from the start, or None: all are there from the start.
        order: of sending.
        group: prompts with the same number begin alike; -1: with nobody.
        group_tokens: length of each group's common beginning.
        tokens_per_pass: with speculation, the mean tokens that a pass yields; 1 without.
        source: in words.
    """

    input_tokens: Ints
    output_tokens: Ints
    asked_tokens: Ints
    arrival: Floats | None = None
    order: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    group: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    group_tokens: tuple[int, ...] = ()
    tokens_per_pass: Floats = field(default_factory=lambda: np.empty(0))
    source: str = ""

    def __post_init__(self) -> None:
        count = len(self.input_tokens)
        if not len(self.order):
            first = np.arange(count) if self.arrival is None else np.argsort(self.arrival, kind="stable")
            object.__setattr__(self, "order", first)
        if not len(self.group):
            object.__setattr__(self, "group", np.full(count, -1, np.int64))
        if not len(self.tokens_per_pass):
            object.__setattr__(self, "tokens_per_pass", np.ones(count))

    def __len__(self) -> int:
        return len(self.input_tokens)

    def validated(self) -> Workload:
        """Returns itself.

        Raises:
            UsageError: no prompts, lengths below 1, arrays of other lengths, or a prompt shorter than the
                beginning it shares.
        """
        wrong = []
        if not len(self):
            wrong.append("the workload has no prompts")
        for name in ("input_tokens", "output_tokens", "asked_tokens"):
            values = getattr(self, name)
            if len(values) != len(self):
                wrong.append(f"{name} has {len(values):,} entries, {len(self):,} prompts")
            elif len(values) and int(values.min()) < 1:
                wrong.append(f"{name} has a value of {int(values.min())}; each is at least 1")
        if len(self.group) and self.group.max(initial=-1) >= len(self.group_tokens):
            wrong.append(f"group {int(self.group.max())} has no length in group_tokens")
        elif self.group_tokens:
            shared = np.where(self.group >= 0, np.asarray(self.group_tokens)[self.group], 0)
            if np.any(shared >= self.input_tokens):
                wrong.append("a prompt is no longer than the beginning it shares; make it longer by 1 token")
        if wrong:
            raise UsageError([f"{text}." for text in wrong])
        return self

    def longest_first(self) -> Workload:
        """Returns it in the order of falling output length."""
        return replace(self, order=np.argsort(-self.output_tokens, kind="stable"))
