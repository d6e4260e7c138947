"""Drawn output lengths, the same for the same prompt and seed, so that a retry asks for the same work."""

from __future__ import annotations

import hashlib
import math
import statistics

_NORMAL = statistics.NormalDist()
_SHORT_SHARE, _SHORT_MEAN = 0.3, 0.25


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


def output_tokens(bits: int, mean: float, spread: float, law: str = "lognormal") -> int:
    """Returns a length of the given mean, at least 1.

    Args:
        bits: 64 even bits.
        mean: of the lengths, in tokens, before rounding.
        spread: standard deviation of the logarithm; 0 = always the mean.
        law: `lognormal`; `weibull`, of about the same spread; `two_kinds`: three in ten answers are
            log-normal with a quarter of the mean, the others with more.
    """
    even = uniform(bits)
    if spread == 0:
        return max(1, round(mean))
    if law == "weibull":
        shape = math.pi / math.sqrt(6) / spread  # a Weibull's logarithm has the deviation π ÷ √6 ÷ shape
        scale = mean / math.gamma(1 + 1 / shape)
        return max(1, round(scale * math.pow(-math.log1p(-even), 1 / shape)))
    if law == "two_kinds":
        short = even < _SHORT_SHARE
        even = even / _SHORT_SHARE if short else (even - _SHORT_SHARE) / (1 - _SHORT_SHARE)
        mean *= _SHORT_MEAN if short else (1 - _SHORT_SHARE * _SHORT_MEAN) / (1 - _SHORT_SHARE)
    location = math.log(mean) - spread * spread / 2
    return max(1, round(math.exp(location + spread * _NORMAL.inv_cdf(even))))
