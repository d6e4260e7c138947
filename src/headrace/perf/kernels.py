"""A kernel of a forward pass: the bytes and FLOPs it costs per token, per request and per token of context.

Equal layers are one kernel with their sums: the maximum of two linear terms is the same for each of them.
All sizes are of one rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

from headrace.perf.efficiency import OperatorClass


class Drive(IntEnum):
    """What a kernel's work goes with."""

    TOKENS = 0  # every token of the pass
    HEAD = 1  # tokens whose logits are wanted
    DECODE = 2  # decoding requests, their drafts and context
    PREFILL = 3  # prompt tokens, their sequences and context
    SHARED_TOKENS = 4  # every token of all attention ranks together
    DRAFT = 5  # one token per decoding request: the passes of drafting layers


@dataclass(frozen=True, slots=True)
class Kernel:
    """The work of one kind of kernel in a pass, summed over its `launches`.

    bytes = weights + experts woken × expert_bytes + token_bytes × tokens + request_bytes × requests
            + context_bytes × tokens of context seen
    FLOPs = token_flops × tokens + pair_flops × pairs of (token, token it sees)
    """

    name: str
    kind: OperatorClass
    dtype: str  # of the weights or of what is streamed: "bf16", "fp8", "fp4", …
    compute_dtype: str  # of the multiplication
    drive: Drive
    launches: float
    weight_bytes: float = 0.0
    experts: float = 0.0  # routed experts of the whole model's layer; 0: dense
    experts_per_token: float = 0.0
    expert_bytes: float = 0.0  # of one expert on this rank, all layers together
    token_bytes: float = 0.0
    request_bytes: float = 0.0
    context_bytes: float = 0.0
    token_flops: float = 0.0
    pair_flops: float = 0.0
    bound: float = math.inf  # tokens of context that a token sees at most
    link: bool = False  # bytes go over the link between GPUs
