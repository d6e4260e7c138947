"""How a checkpoint's weights are stored: bytes per element for each part of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Part(StrEnum):
    """The parts whose weights may be stored differently."""

    EMBEDDING = "embedding"
    HEAD = "head"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    DENSE_FFN = "dense_ffn"
    EXPERTS = "experts"  # routed
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    NORMS = "norms"  # and other vectors
    VISION = "vision"
    MTP = "mtp"


PLAIN_BYTES: Mapping[str, float] = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The stored form of the weights.

    `bytes_per_element` includes scales (NVFP4: 4 bits + one fp8 scale per 16 = 0.5625). Parts that are missing
    from it are stored plainly, `plain_dtype`.
    """

    plain_dtype: str = "bfloat16"
    method: str | None = None  # "fp8", "nvfp4", "mxfp4", "awq", "gptq", "int8", …; None: not quantised
    weight_dtype: str | None = None  # what the multiplications read: "fp8", "fp4", "int4", "int8"
    bytes_per_element: Mapping[Part, float] = field(default_factory=dict)
    kv_dtype: str | None = None  # a KV dtype that the checkpoint asks for: "fp8"
    source: str = ""

    def bytes_of(self, part: Part) -> float:
        """Returns bytes per element of that part, scales included."""
        return self.bytes_per_element.get(part, PLAIN_BYTES.get(self.plain_dtype, 2.0))
