"""What a knob that mended something speaks for: settings of the engines, by the words people use for them.

A knob is named by its flag or by the words for it ("max_num_seqs", "chunked prefill size"). That turning it
helped says what held the fleet back; `diagnose` weighs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.words import Constraint

FORCES_A_KERNEL = r"--(?:quantization|attention-backend|moe[\w-]*backend)"
"""Flags that take the choice of a kernel from the engine."""
WITHOUT_RADIX = (
    r"--disable-radix-cache\b|\b(?:without|no) (?:the )?radix[- ]cache"
    r"|\bradix[- ]cache (?:is )?(?:off|disabled)"
)
"""A server without its prefix tree, by flag or words."""
_KNOBS: tuple[tuple[Constraint, str], ...] = (
    (
        Constraint.TOKEN_BUDGET,
        r"max[-_ ]num[-_ ]batched[-_ ]tokens|chunked[-_ ]prefill[-_ ]size"
        r"|max[-_ ]prefill[-_ ]tokens|prefill chunks? of",
    ),
    (
        Constraint.MAX_RUNNING_REQUESTS,
        r"max[-_ ]num[-_ ]seqs|max[-_ ]running[-_ ]requests|--parallel\b|-np\b",
    ),
    (
        Constraint.KV_POOL,
        r"gpu[-_ ]memory[-_ ]utili[sz]ation|mem[-_ ]fraction[-_ ]static",
    ),
    (
        Constraint.STATE_POOL,
        r"mamba[-_ ](?:full[-_ ]memory[-_ ]ratio|ssm[-_ ]dtype|cache[-_ ]size)"
        r"|max[-_ ]mamba[-_ ]cache[-_ ]size",
    ),
    (
        Constraint.CUDA_GRAPH,
        r"cuda[-_ ]?graph[-_ ]max[-_ ]bs|max[-_ ]cudagraph[-_ ]capture[-_ ]size|capture[-_ ]sizes?",
    ),
    (
        Constraint.STEP_OVERHEAD,
        r"async[-_ ]scheduling|overlap[-_ ]schedule|num[-_ ]scheduler[-_ ]steps"
        r"|num[-_ ]continuous[-_ ]decode[-_ ]steps",
    ),
    (Constraint.ADMISSION, r"schedule[-_ ]conservativeness|new[-_ ]token[-_ ]ratio"),
    (
        Constraint.FRONTEND,
        r"api[-_ ]server[-_ ]count|(?:de)?tokenizer[-_ ]worker[-_ ]num|stream[-_ ]interval"
        r"|skip[-_ ]tokenizer[-_ ]init",
    ),
    (Constraint.EXPERT_IMBALANCE, r"enable[-_ ]eplb|\bEPLB\b|redundant[-_ ]experts"),
    (Constraint.INTERCONNECT, r"NCCL_P2P\w*|custom[-_ ]all[-_ ]?reduce|\bP2P\b|peer access|NVLink bridge"),
    (Constraint.PREFIX_CACHE, r"enable[-_ ]prefix[-_ ]caching|enable[-_ ]radix|prefix[- ]aware rout\w+"),
)
_COMPILED = tuple((constraint, re.compile(pattern, re.IGNORECASE)) for constraint, pattern in _KNOBS)


def knobs(text: str) -> Iterator[tuple[Constraint, re.Match[str]]]:
    """Yields each knob that a sentence names, with what turning it speaks for; at most one per constraint."""
    for constraint, pattern in _COMPILED:
        found = pattern.search(text)
        if found is not None:
            yield constraint, found
