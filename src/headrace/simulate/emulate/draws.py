"""Drawn output lengths, the same for the same prompt and seed, so that a retry asks for the same work."""

from __future__ import annotations

import hashlib
import math
import statistics

_NORMAL = statistics.NormalDist()


def fingerprint(seed: int, *parts: bytes) -> int:
    """Returns 64 bits that depend on the seed and every part, evenly spread."""
    digest = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little", signed=True))
    for part in parts:
        digest.update(len(part).to_bytes(4, "little"))
        digest.update(part)
    return int.from_bytes(digest.digest(), "little")


def uniform(bits: int) -> float:
    """Returns a number above 0 and below 1 from 64 bits."""
    return ((bits >> 11) + 0.5) / (1 << 53)


def output_tokens(bits: int, mean: float, spread: float) -> int:
    """Returns a log-normal length of the given mean, at least 1.

    Args:
        bits: 64 even bits.
        mean: of the lengths, in tokens, before rounding.
        spread: standard deviation of the logarithm; 0 = always the mean.
    """
    location = math.log(mean) - spread * spread / 2
    return max(1, round(math.exp(location + spread * _NORMAL.inv_cdf(uniform(bits)))))
