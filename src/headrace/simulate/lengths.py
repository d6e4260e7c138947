"""Workloads from distributions: so many prompts with lengths drawn by a law, several parts in a row or
mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.simulate.workload import Workload

LAWS = ("fixed", "gamma", "lognormal")


@dataclass(frozen=True, slots=True)
class Length:
    """A length law: its name, mean in tokens, and spread (standard deviation ÷ mean)."""

    mean: float
    law: str = "gamma"
    spread: float = 0.3

    def draw(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Returns so many lengths, each at least 1.

        Raises:
            UsageError: a law that nobody knows, a mean below 1, or a spread out of 0 … 5.
        """
        if self.law not in LAWS:
            raise UsageError(f"the length law '{self.law}' is not known; take one of {', '.join(LAWS)}.")
        if not 1 <= self.mean <= 10_000_000 or not 0 <= self.spread <= 5:
            raise UsageError(
                f"lengths of mean {self.mean:g} and spread {self.spread:g}: the mean is at least 1 token, "
                f"the "
                "spread 0 to 5."
            )
        if self.law == "fixed" or self.spread == 0:
            return np.full(count, max(1, round(self.mean)), np.int64)
        if self.law == "gamma":
            shape = self.spread**-2
            drawn = random.gamma(shape, self.mean / shape, count)
        else:
            variance = np.log1p(self.spread**2)
            drawn = random.lognormal(np.log(self.mean) - variance / 2, np.sqrt(variance), count)
        return np.maximum(1, np.rint(drawn)).astype(np.int64)


def drawn(
    count: int,
    input_length: Length,
    output_length: Length,
    *,
    max_tokens: int | None = None,
    context_tokens: int = 32_768,
    seed: int = 0,
    shared_tokens: int = 0,
    prompts_per_group: int = 0,
    requests_per_second: float | None = None,
) -> Workload:
    """Returns a workload drawn from laws. The same seed gives the same prompts whatever serves them.

    Args:
        max_tokens: what every request asks for; longer outputs end there. None: what its prompt leaves of the
            context, which is what servers take for it.
        context_tokens: of the server; prompts that fill it are cut to leave one token.
        shared_tokens: a common beginning of that many tokens, on top of the input's own length.
        prompts_per_group: how many prompts share one beginning; 0: all do.
        requests_per_second: open loop, arrivals at random (Poisson); None: all are there from the start.
    """
    if count < 1 or (max_tokens is not None and max_tokens < 1) or context_tokens <= shared_tokens + 2:
        raise UsageError(
            f"{count:,} prompts with at most {max_tokens} tokens each in a context of {context_tokens:,}: "
            "there is nothing to generate. Give at least 1 of each, and a context that holds the prompt."
        )
    source = np.random.SeedSequence(seed)
    lengths, inputs, arrivals = (np.random.default_rng(part) for part in source.spawn(3))
    output = output_length.draw(count, lengths)
    prompt = input_length.draw(count, inputs)
    group = np.full(count, -1, np.int64)
    group_tokens: tuple[int, ...] = ()
    if shared_tokens > 0:
        each = prompts_per_group or count
        group, group_tokens = np.arange(count) // each, (shared_tokens,) * -(-count // each)
        prompt = prompt + shared_tokens
    prompt = np.minimum(prompt, context_tokens - 1)
    asked = np.minimum(context_tokens - prompt, max_tokens if max_tokens is not None else context_tokens)
    arrival = None
    if requests_per_second is not None:
        if requests_per_second <= 0:
            raise UsageError(f"{requests_per_second:g} requests per second never arrive; give more than 0.")
        arrival = np.cumsum(arrivals.exponential(1 / requests_per_second, count))
    return Workload(
        prompt, np.minimum(output, asked), asked, arrival, group=group, group_tokens=group_tokens,
        source=f"{count:,} prompts, {output_length.law}, mean {output_length.mean:,.0f}, seed {seed}",
    ).validated()  # fmt: skip


def with_acceptance(load: Workload, mean: float, spread: float, seed: int = 0) -> Workload:
    """Returns the workload with speculation: tokens that a pass yields, drawn per request, at least 1.

    Args:
        mean, spread: over requests: mean, and standard deviation in tokens (normal).
    """
    drawn_rates = np.random.default_rng([seed, 1]).normal(mean, spread, len(load))
    return replace(load, tokens_per_pass=np.maximum(1.0, drawn_rates))


def joined(parts: Sequence[Workload], *, mixed_by: int | None = None) -> Workload:
    """Returns several workloads as one: in a row, or mixed at random by a seed."""
    if len(parts) == 1 and mixed_by is None:
        return parts[0]
    groups: list[NDArray[np.int64]] = []
    lengths: list[int] = []
    shift = 0
    for part in parts:
        groups.append(np.where(part.group >= 0, part.group + shift, -1))
        lengths += part.group_tokens
        shift += len(part.group_tokens)
    arrivals = [part.arrival for part in parts]
    arrival = None
    if any(times is not None for times in arrivals):
        arrival = np.concatenate(
            [
                np.zeros(len(part)) if times is None else times
                for part, times in zip(parts, arrivals, strict=True)
            ]
        )
    whole = Workload(
        np.concatenate([part.input_tokens for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
        np.concatenate([part.asked_tokens for part in parts]),
        arrival,
        group=np.concatenate(groups),
        group_tokens=tuple(lengths),
        tokens_per_pass=np.concatenate([part.tokens_per_pass for part in parts]),
        source="; ".join(part.source for part in parts),
    )
    if mixed_by is None or arrival is not None:
        return whole.validated()
    return replace(whole, order=np.random.default_rng(mixed_by).permutation(len(whole))).validated()
