"""What there is to say about a model: one document, every number with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.models.geometry import ModelGeometry
from headrace.models.layers import Experts
from headrace.models.quantisation import Part
from headrace.quantities import Origin, Quantity, derived

_KV_DTYPES: Mapping[str, float] = {"bf16": 2.0, "fp8": 1.0}
_STATE_DTYPES: Mapping[str, float] = {"float32": 4.0, "bfloat16": 2.0}


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model's numbers, for one rank of `tp`, a step over `tokens_per_step` tokens, at `context_tokens`.

    Attributes:
        geometry: the shape that they come from; not in the JSON.
    """

    geometry: ModelGeometry
    model: str
    model_type: str
    architecture: str
    source: str
    stored_as: str
    layers: Mapping[str, int]
    experts: str
    parameters: Mapping[str, Quantity]  # total, active, text, vision, mtp
    parameters_by_part: Mapping[str, Quantity]
    weight_bytes_served: Quantity
    weight_bytes_read_per_step: Quantity
    kv_bytes_per_token: Mapping[str, Quantity]  # by dtype
    kv_window_bytes_per_token: Mapping[str, Quantity]  # of them in sliding-window layers
    window_tokens: int | None
    state_bytes_per_request: Mapping[str, Quantity]  # by dtype of the recurrent state; empty without one
    state_dtype: str | None  # the dtype that the config names
    flops_per_token: Quantity
    context_tokens: Quantity | None  # the longest that the config allows
    tp: int
    tokens_per_step: int
    at_context_tokens: int
    caveats: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the document as plain JSON, quantities in their own form."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__ if name != "geometry"}


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


def describe(
    model: ModelGeometry, *, tp: int = 1, tokens_per_step: int = 1, context_tokens: int = 0
) -> ModelDescription:
    """Returns what there is to say about a model.

    Args:
        tp: ranks of tensor parallelism; bytes are those of one rank.
        tokens_per_step: tokens of one step, which decide how many experts it reads.
        context_tokens: tokens of context for FLOPs per token.
    """
    parts = model.parameters_by_part()
    counted = {
        part: _count(model, value, f"shapes of {part.replace('_', ' ')}") for part, value in parts.items()
    }
    shown = {str(part): quantity for part, quantity in counted.items() if quantity.value}
    windowed = {
        dtype: model.kv_bytes_per_token(width, tp, windowed=True)
        for dtype, width in _KV_DTYPES.items()
        if model.window_tokens
    }
    return ModelDescription(
        geometry=model,
        model=model.name,
        model_type=model.model_type,
        architecture=model.architecture,
        source=model.source,
        stored_as=_stored_as(model),
        layers={str(kind): number for kind, number in model.layers_by_kind.items()},
        experts=_experts(model),
        parameters={
            "total": derived(model.total_parameters, "parameters", "Σ parts", **shown),
            "active": _count(
                model, model.active_parameters, "text, of the routed experts those chosen per token"
            ),
            "text": _count(model, model.text_parameters, "total less vision tower and MTP"),
            "vision": counted[Part.VISION],
            "mtp": counted[Part.MTP],
        },
        parameters_by_part=shown,
        weight_bytes_served=model.weight_bytes(tp),
        weight_bytes_read_per_step=model.weight_bytes_read_per_step(tokens_per_step, tp),
        kv_bytes_per_token={
            dtype: model.kv_bytes_per_token(width, tp) for dtype, width in _KV_DTYPES.items()
        },
        kv_window_bytes_per_token=windowed,
        window_tokens=model.window_tokens,
        state_bytes_per_request={
            dtype: model.state_bytes_per_request(width, 2.0, tp)
            for dtype, width in _STATE_DTYPES.items()
            if model.is_hybrid
        },
        state_dtype=model.state_dtype,
        flops_per_token=model.flops_per_token(context_tokens),
        context_tokens=None
        if model.context_tokens is None
        else Quantity(model.context_tokens, "tokens", Origin.CONFIGURED, "max_position_embeddings"),
        tp=tp,
        tokens_per_step=tokens_per_step,
        at_context_tokens=context_tokens,
        caveats=model.caveats,
    )


def _count(model: ModelGeometry, value: float, how: str) -> Quantity:
    config = Quantity(len(model.layers), "layers", Origin.CONFIGURED, model.source)
    return derived(round(value), "parameters", how, config=config)


def _stored_as(model: ModelGeometry) -> str:
    quantisation = model.quantisation
    if quantisation.method is None:
        return quantisation.plain_dtype
    widths = ", ".join(
        f"{part} {8 * width:.3g} bit" for part, width in quantisation.bytes_per_element.items()
    )
    return f"{quantisation.method} ({widths or 'no part'}; the rest {quantisation.plain_dtype})"


def _experts(model: ModelGeometry) -> str:
    with_experts = [layer.ffn for layer in model.layers if isinstance(layer.ffn, Experts)]
    if not with_experts:
        return ""
    first = with_experts[0]
    shared = ", a shared one" if first.shared_intermediate else ""
    return f"{first.per_token} of {first.count}{shared}, in {len(with_experts)} layers"
