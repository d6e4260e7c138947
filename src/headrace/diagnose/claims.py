"""What people say of a fleet, as data: shares of another GPU, products, runs in another dtype or on one GPU.

A claim is a person's word: it is answered, and as evidence it weighs little unless it is a paired
measurement. Text that fits no form is kept as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_RATE = re.compile(_NUMBER + r"\s*(output |total )?tok(?:ens?)?/s(?: per GPU)?", re.IGNORECASE)
_GPU = (
    r"((?:RTX (?:PRO )?\w+(?: Blackwell)?(?: Server| Workstation| Max-Q)?)"
    r"|(?:G?[ABHLV]\d{2,3}s?\w?)|(?:MI\d{3}X))\b"
)
_SHARE = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:[-–…]\s*(\d+(?:\.\d+)?)\s*)?(?:%|percent)\s*of\s+(?:an?\s+|the\s+)?" + _GPU,
    re.IGNORECASE,
)
_PRODUCT = re.compile(_NUMBER + r"\s*[x×*]\s*" + _NUMBER + r"\s*(?:tok/s)?\s*=\s*" + _NUMBER, re.IGNORECASE)
_HALF = re.compile(r"half (?:of )?the (?:memory )?(bandwidth|[\w ]*compute)", re.IGNORECASE)
_FLEET = re.compile(_GPU + r" fleet of (\d+)|(\d+) ?[x×] ?" + _GPU, re.IGNORECASE)
_NAMED_GPU = re.compile(r"\b(?:an?|the) " + _GPU)
_WIDTH = re.compile(r"\b(bf16|fp16|fp8|int8|int4|nvfp4|mxfp4)\b(.{0,24})", re.IGNORECASE)
_FLAT = re.compile(
    r"\b(stays? flat|flat\b|nothing|no gain|no change|almost the same|same result|changes? nothing)",
    re.IGNORECASE,
)
_MAX_CLAIM = 2000


class Topic(StrEnum):
    """What a paired claim changes."""

    WEIGHTS_DTYPE = "weights_dtype"
    KV_DTYPE = "kv_dtype"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Pair:
    """The same load with one thing changed: `rate` tokens/s with `alternative` in place of what was observed.

    `rate` is None where the claim only says that nothing changed (`flat`).
    """

    topic: Topic
    alternative: str
    rate: float | None
    total: bool  # prompt and output tokens together
    per_gpu: bool
    flat: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim's text and the forms it fits.

    Attributes:
        share: (low, high, GPU): the fraction of another GPU that is expected.
        product: (count, rate of each, result) of an arithmetic.
        halves: of what another GPU has, half is said to be here: `bandwidth`, `compute`.
        gpu: a GPU that it names.
        reference: (GPUs, tokens/s in all) of a fleet of `gpu`.
        pair: the same load with one thing changed.
    """

    text: str
    share: tuple[float, float, str] | None = None
    product: tuple[float, float, float] | None = None
    halves: tuple[str, ...] = ()
    gpu: str | None = None
    reference: tuple[float, float] | None = None
    pair: Pair | None = None

    def says(self, pattern: str) -> bool:
        """Whether the text matches a pattern, in any case."""
        return re.search(pattern, self.text, re.IGNORECASE) is not None


def read_claims(texts: Iterable[str]) -> tuple[Claim, ...]:
    """Returns every claim as data; 2,000 characters of each are read, and the first 100."""
    return tuple(_read(" ".join(text[:_MAX_CLAIM].split())) for text in list(texts)[:100])


def _read(text: str) -> Claim:
    share = product = reference = None
    gpu: str | None = None
    if match := _SHARE.search(text):
        low = float(match[1]) / 100
        share = (low, float(match[2]) / 100 if match[2] else low, match[3])
        gpu = match[3]
    if match := _PRODUCT.search(text):
        product = (_value(match[1]), _value(match[2]), _value(match[3]))
    rate = _RATE.search(text)
    if match := _FLEET.search(text):
        gpu = match[1] or match[4]
        if rate:
            reference = (float(match[2] or match[3]), _value(rate[1]))
    if gpu is None and (match := _NAMED_GPU.search(text)):
        gpu = match[1]
    halves = tuple("compute" if "compute" in found else "bandwidth" for found in _HALF.findall(text.lower()))
    return Claim(text, share, product, halves, gpu, reference, _pair(text, gpu))


def _pair(text: str, gpu: str | None) -> Pair | None:
    rate = _RATE.search(text)
    flat = _FLAT.search(text) is not None
    value = _value(rate[1]) if rate else None
    if value is None and not flat:
        return None
    total = bool(rate and rate[2] and rate[2].lower().startswith("total"))
    per_gpu = bool(rate and rate[0].lower().endswith("per gpu"))
    if match := _WIDTH.search(text):
        kv = re.match(r"\W*(KV|cache)\b", match[2], re.IGNORECASE) is not None
        return Pair(
            Topic.KV_DTYPE if kv else Topic.WEIGHTS_DTYPE, match[1].lower(), value, total, per_gpu, flat
        )
    if gpu is not None and value is not None and not _SHARE.search(text) and not _FLEET.search(text):
        return Pair(Topic.GPU, gpu, value, total, per_gpu, flat)
    return None


def _value(text: str) -> float:
    return float(text.replace(",", ""))
