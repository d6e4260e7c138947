"""How a checkpoint's weights are stored: bytes per element for each part of the model.

Formats differ in what they count beside the elements: NVFP4 has one fp8 scale per 16 elements (0.5625 bytes
each), MXFP4 one 8-bit exponent per 32 (0.53125), block fp8 one float32 per 128 × 128, AWQ and GPTQ a 16-bit
scale and a zero point per group. Which modules stay plain is read from the exclusion lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.models.exclusions import canonical, excluded
from headrace.models.fields import Fields
from headrace.models.layers import Experts, FeedForward, Layer, LayerKind


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
_FP8_BLOCK = 1.0 + 4.0 / (128 * 128)
_MAX_MODULES = 200_000
_NVFP4 = 0.5 + 1.0 / 16
_MXFP4 = 0.5 + 1.0 / 32
_MATRICES = (Part.ATTENTION, Part.RECURRENT, Part.DENSE_FFN, Part.EXPERTS, Part.SHARED_EXPERTS)


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The stored form of the weights.

    `bytes_per_element` includes scales. Parts that are missing from it are stored plainly, `plain_dtype`. A
    part of which some modules are excluded has the mean over its elements.
    """

    plain_dtype: str = "bfloat16"
    method: str | None = None  # "fp8", "nvfp4", "mxfp4", "awq", "gptq", "int8", …; None: not quantised
    weight_dtype: str | None = None  # the element's format: "fp8", "fp4", "int4", "int8"
    bytes_per_element: Mapping[Part, float] = field(default_factory=dict)
    kv_dtype: str | None = None  # a KV dtype that the checkpoint asks for: "fp8"
    source: str = ""

    @property
    def plain_bytes(self) -> float:
        """Bytes per element of what is not quantised."""
        return PLAIN_BYTES.get(self.plain_dtype, 2.0)

    def bytes_of(self, part: Part) -> float:
        """Returns bytes per element of that part, scales included."""
        return self.bytes_per_element.get(part, self.plain_bytes)


def quantisation_of(
    outer: Fields, text: Fields, layers: Sequence[Layer], hidden: int, caveats: list[str]
) -> Quantisation:
    """Returns how the weights are stored, from quantization_config (or hf_quant_config's "quantization")."""
    dtype = text.text("dtype", "torch_dtype") or outer.text("dtype", "torch_dtype") or "bfloat16"
    settings = outer.inner("quantization_config", "quantization") or text.inner(
        "quantization_config", "quantization", "compression_config"
    )
    if settings is None:
        return Quantisation(plain_dtype=dtype, source="no quantization_config")
    method, weight_dtype, width = _format(settings, caveats)
    if method is None:
        return Quantisation(plain_dtype=dtype, source=settings.name)
    patterns = _exclusions(settings)
    plain = PLAIN_BYTES.get(dtype, 2.0)
    widths = dict.fromkeys(_MATRICES, width)
    mixed = _mixed(settings)
    if mixed:
        rest = dict.fromkeys(_MATRICES, _FP8_BLOCK) if settings.text("quant_method") == "fp8" else {}
        widths = rest | mixed
        patterns = () if rest else patterns
    elif method == "fp8" and text.text("expert_dtype") == "fp4":  # DeepSeek V4
        widths[Part.EXPERTS] = _MXFP4
    elif method == "mxfp4" and not patterns:  # gpt-oss: experts only
        widths = {Part.EXPERTS: width}
    elif method == "nvfp4" and not patterns:
        caveats.append(
            "the config does not list which modules stay unquantised; every linear layer is read as NVFP4"
        )
    bytes_per_element = {
        part: width * share + plain * (1.0 - share)
        for part, width in widths.items()
        if (share := _quantised_share(part, layers, hidden, patterns)) is not None and share > 0.0
    }
    if not excluded("mtp.layers.0.mlp.gate_proj", patterns) and Part.DENSE_FFN in widths and method == "fp8":
        bytes_per_element[Part.MTP] = width
    return Quantisation(dtype, method, weight_dtype, bytes_per_element, _kv_dtype(settings), settings.name)


def _format(settings: Fields, caveats: list[str]) -> tuple[str | None, str | None, float]:
    """Returns (method, element format, bytes per element with scales); method None where nothing is
    quantised."""
    method = (settings.text("quant_method") or "").lower().replace("_", "-")
    algorithm = (settings.text("quant_algo") or "").upper()
    if algorithm:  # modelopt
        if "NVFP4" in algorithm or algorithm == "MIXED_PRECISION":
            return "nvfp4", "fp4", _NVFP4
        if "FP8" in algorithm:
            return "fp8", "fp8", 1.0
        if "W4A16" in algorithm or "AWQ" in algorithm:
            return "awq", "int4", _grouped(4, settings.integer("group_size", default=128, minimum=1))
        if "INT8" in algorithm or "W8A8" in algorithm:
            return "int8", "int8", 1.0
    if method in {"fp8", "fbgemm-fp8", "modelopt"}:
        return "fp8", "fp8", _FP8_BLOCK if settings.sequence("weight_block_size") else 1.0
    if method == "mxfp4":
        return "mxfp4", "fp4", _MXFP4
    if method in {"awq", "gptq", "auto-round", "gptq-marlin", "awq-marlin"}:
        bits = settings.integer("bits", "w_bit", default=4, minimum=2, maximum=8)
        group = settings.optional("group_size", "q_group_size", minimum=-1) or 128
        return method, f"int{bits}", _grouped(bits, max(1, group) if group != -1 else 4096)
    if method in {"compressed-tensors", "sparseml"}:
        return _compressed_tensors(settings, caveats)
    if method in {"bitsandbytes"}:
        return ("int8", "int8", 1.0) if settings.flag("load_in_8bit") else ("bnb4", "fp4", 0.5 + 4.0 / 64)
    if method in {"int8", "w8a8-int8", "smoothquant"}:
        return "int8", "int8", 1.0
    caveats.append(
        f"quantisation method {method or algorithm or 'unstated'!r} is not known here: "
        "bytes are those of the plain dtype"
    )
    return None, None, 0.0


def _grouped(bits: int, group: int) -> float:
    """Returns bytes per element of group-wise integers: a 16-bit scale and a `bits`-wide zero point per
    group."""
    return bits / 8 + (2 + bits / 8) / group


def _compressed_tensors(settings: Fields, caveats: list[str]) -> tuple[str | None, str | None, float]:
    groups = settings.inner("config_groups")
    first: Any = next(iter(groups.values.values()), None) if groups is not None and groups.values else None
    weights = Fields(first, settings.name).inner("weights") if isinstance(first, dict) else None
    if weights is None:
        caveats.append(
            "quantization_config names compressed-tensors but no format: bytes are those of the plain dtype"
        )
        return None, None, 0.0
    bits = weights.integer("num_bits", default=8, minimum=2, maximum=16)
    group = weights.optional("group_size", minimum=-1) or 0
    layout = settings.text("format") or ""
    if weights.text("type") == "float":
        if bits == 4:
            return ("mxfp4", "fp4", _MXFP4) if group == 32 or "mxfp4" in layout else ("nvfp4", "fp4", _NVFP4)
        return "fp8", "fp8", _FP8_BLOCK if weights.text("strategy") == "block" else 1.0
    scale = 2.0 / group if group > 0 else 0.0
    return f"int{bits}", f"int{bits}", bits / 8 + scale


def _mixed(settings: Fields) -> dict[Part, float]:
    """Returns bytes per part where the config lists formats module by module (modelopt's
    quantized_layers)."""
    layers = settings.inner("quantized_layers")
    if layers is None:
        return {}
    totals: dict[Part, list[float]] = {}
    for name, entry in list(layers.values.items())[:_MAX_MODULES]:
        part = _part_of(canonical(name))
        if part is not None and isinstance(entry, dict):
            algorithm = str(entry.get("quant_algo", "")).upper()
            totals.setdefault(part, []).append(_NVFP4 if "NVFP4" in algorithm else 1.0)
    return {part: sum(widths) / len(widths) for part, widths in totals.items()}


def _part_of(module: str) -> Part | None:
    """Returns the part that a module's name belongs to, None for one that is not counted by part."""
    words = (
        ("mtp", Part.MTP),
        ("shared_expert", Part.SHARED_EXPERTS),
        ("experts", Part.EXPERTS),
        ("linear_attn", Part.RECURRENT),
        ("attn", Part.ATTENTION),
        ("mlp", Part.DENSE_FFN),
        ("lm_head", Part.HEAD),
    )
    return next((part for word, part in words if word in module), None)


def _exclusions(settings: Fields) -> tuple[str, ...]:
    """Returns the patterns of all exclusion lists."""
    found: list[str] = []
    for name in (
        "ignore",
        "exclude_modules",
        "modules_to_not_convert",
        "ignored_layers",
        "llm_int8_skip_modules",
    ):
        found += [entry for entry in settings.sequence(name) or () if isinstance(entry, str)]
    return tuple(found)


def _kv_dtype(settings: Fields) -> str | None:
    scheme = settings.values.get("kv_cache_scheme") or settings.values.get("kv_cache_quant_algo")
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type") == "float" else "int8"
    return "fp8" if isinstance(scheme, str) and "FP8" in scheme.upper() else None


def _quantised_share(
    part: Part, layers: Sequence[Layer], hidden: int, patterns: Sequence[str]
) -> float | None:
    """Returns the share of the part's elements that the exclusion list leaves quantised; None without any."""
    total = kept = 0.0
    for number, layer in enumerate(layers):
        for name, elements in _matrices(part, layer, hidden):
            total += elements
            if not patterns or not excluded(f"model.layers.{number}.{name}", patterns):
                kept += elements
    return kept / total if total else None


def _matrices(part: Part, layer: Layer, hidden: int) -> Iterator[tuple[str, float]]:
    """Yields (name in the commonest spelling, elements) of the matrices of one part of a layer."""
    if part is Part.ATTENTION and layer.attention is not None:
        yield from ((f"self_attn.{name}", count) for name, count in layer.attention.matrices(hidden))
    elif part is Part.RECURRENT and layer.recurrent is not None:
        holder = "self_attn" if layer.recurrent.kind is LayerKind.KIMI_DELTA else "linear_attn"
        out = layer.recurrent.value_heads * layer.recurrent.value_dim * hidden
        yield f"{holder}.out_proj", out
        yield f"{holder}.in_proj_qkv", layer.recurrent.parameters - out
    elif part is Part.DENSE_FFN and isinstance(layer.ffn, FeedForward):
        yield from _thirds("mlp", layer.ffn.parameters(hidden))
    elif part is Part.EXPERTS and isinstance(layer.ffn, Experts):
        holder = (
            "experts.0" if layer.ffn.dense_intermediate else "mlp.experts.0"
        )  # Gemma 4 has them beside the mlp
        yield from _thirds(holder, layer.ffn.routed_parameters(hidden))
    elif part is Part.SHARED_EXPERTS and isinstance(layer.ffn, Experts):
        holder = "mlp" if layer.ffn.dense_intermediate else "mlp.shared_experts"
        yield from _thirds(holder, layer.ffn.always_read(hidden))


def _thirds(holder: str, elements: float) -> Iterator[tuple[str, float]]:
    for name in ("gate_proj", "up_proj", "down_proj"):
        yield f"{holder}.{name}", elements / 3
