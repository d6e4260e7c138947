"""What a step model has to know about how a server runs: widths, ranks, overlap, graphs, speculation.

Engines fill this from their settings; a person can fill it by hand. Every default is the plain case.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from headrace.errors import UsageError

EVERY_SIZE: tuple[int, ...] = ()
"""`graphs`: every batch runs as a captured graph of its own size; also where the sizes are not known."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: what one step verifies and what comes of it."""

    draft_tokens: int  # tokens of one request that the model computes in a step, the sure one included
    accept_length: float  # tokens that a step yields per request, on average: 1 … draft_tokens
    draft_passes: int = 0  # passes of the checkpoint's own drafting layers (MTP); 0: the draft costs nothing

    def __post_init__(self) -> None:
        if self.draft_tokens < 1 or not 1.0 <= self.accept_length <= self.draft_tokens:
            raise UsageError(
                f"acceptance length {self.accept_length:g} with {self.draft_tokens} draft tokens: "
                "it lies between 1 and the draft tokens of a step"
            )


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How the server runs. `batch` of a model with these options counts requests of one scheduler.

    `tp` ranks share every layer. Of them `dp` may be attention ranks with requests of their own (SGLang's
    --enable-dp-attention): attention is then divided by tp ÷ dp, feed-forward parts still by tp. `ep` of the
    tp ranks hold different experts. Replicas beside each other are no matter of the step.
    """

    engine: str = ""  # "sglang", "vllm", …: a key for efficiencies, nothing else
    engine_version: tuple[int, ...] | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    weights_dtype: str | None = None  # None: as the checkpoint is quantised; else "bf16", "fp8", "nvfp4", …
    kv_dtype_bytes: float = 2.0
    state_ssm_bytes: float = 4.0
    state_conv_bytes: float = 2.0
    overlap: bool | None = None  # the host prepares the next step while this one runs; None: not known
    graphs: tuple[int, ...] | None = EVERY_SIZE  # captured batch sizes, ascending; None: eager
    speculation: Speculation | None = None
    page_tokens: int = 1
    chunk_tokens: int = 8192  # prompt tokens of one prefill step
    mixes_prefill: bool = False  # prompt chunks ride in the decode steps (vLLM); else they have their own
    prefill_graphs: bool = False  # passes with prompts run as (piecewise) graphs, not kernel by kernel

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "ep", "chunk_tokens", "page_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it is a whole number from 1")
        if self.tp % self.dp:
            raise UsageError(f"tp {self.tp} cannot be divided by {self.dp} attention ranks (dp)")
        if self.tp % self.ep:
            raise UsageError(f"tp {self.tp} cannot be divided by {self.ep} expert ranks (ep)")

    @property
    def attention_tp(self) -> int:
        """Ranks that share the attention of one request."""
        return self.tp // self.dp

    @property
    def tokens_per_request(self) -> int:
        """Tokens of one request that a decode step computes."""
        return self.speculation.draft_tokens if self.speculation else 1

    @property
    def yield_per_request(self) -> float:
        """Tokens that a decode step yields per request, on average."""
        return self.speculation.accept_length if self.speculation else 1.0

    def padded(self, batch: float) -> float:
        """Returns the batch that runs: the next captured size; the batch itself where none is larger."""
        if not self.graphs:
            return batch
        at = bisect_left(self.graphs, batch)
        return float(self.graphs[at]) if at < len(self.graphs) else batch

    def is_eager(self, batch: float) -> bool:
        """Returns whether a decode step of this batch runs kernel by kernel, without a graph."""
        return self.graphs is None or bool(self.graphs and batch > self.graphs[-1])
