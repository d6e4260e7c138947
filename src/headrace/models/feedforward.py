"""Feed-forward parts, dense and experts, from the fields of a config."""

from __future__ import annotations

from headrace.models.fields import Fields
from headrace.models.layers import Experts, FeedForward
from headrace.models.traits import Traits


def dense(fields: Fields, traits: Traits, hidden: int) -> FeedForward:
    """Returns the dense feed-forward part."""
    # Llama 4 and MiniMax-M3 write the experts' size under intermediate_size and the dense layers' elsewhere.
    intermediate = fields.integer(
        "intermediate_size_mlp", "dense_intermediate_size", "intermediate_size", minimum=1
    )
    matrices = 3 if traits.gated_ffn else 2
    return FeedForward(
        intermediate=intermediate,
        gated=traits.gated_ffn,
        biases=(matrices - 1) * intermediate + hidden if traits.ffn_bias else 0,
    )


def experts(fields: Fields, traits: Traits, hidden: int) -> Experts:
    """Returns the mixture of experts."""
    count = fields.integer("num_experts", "num_local_experts", "n_routed_experts", minimum=1)
    intermediate = fields.integer("moe_intermediate_size", "intermediate_size", minimum=1)
    matrices = 3 if traits.gated_ffn else 2
    biases = count * ((matrices - 1) * intermediate + hidden) if traits.expert_bias else 0
    return Experts(
        count=count,
        per_token=fields.integer(
            "num_experts_per_tok",
            "num_experts_per_token",
            "top_k_experts",
            "moe_topk",
            minimum=1,
            maximum=count,
        ),
        intermediate=intermediate,
        shared_intermediate=_shared_width(fields, intermediate),
        gated=traits.gated_ffn,
        shared_gate=traits.shared_gate,
        latent=fields.optional("moe_latent_size", "routed_expert_hidden_size", minimum=1),
        dense_intermediate=fields.integer("intermediate_size") if traits.parallel_dense else 0,
        biases=biases,
        router_vectors=count if traits.router_bias else 0,
    )


def _shared_width(fields: Fields, intermediate: int) -> int:
    """Returns the width of all shared experts of a layer together; 0 where there is none."""
    if fields.has(
        "interleave_moe_layer_step"
    ):  # Llama 4 has one, as wide as a routed expert, and does not say so
        return intermediate
    shared = fields.optional(
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    )
    number = fields.optional("n_shared_experts", "num_shared_experts")
    if shared is not None:
        return shared if number is None or number == 1 else shared * max(1, number)
    return (number or 0) * intermediate
