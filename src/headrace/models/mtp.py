"""Multi-token-prediction (MTP) layers: in the checkpoint, served only for speculative decoding."""

from __future__ import annotations

from headrace.models.fields import Fields
from headrace.models.layers import Experts, FeedForward, Layer
from headrace.models.traits import Traits


def mtp_layers(fields: Fields) -> int:
    """Returns how many MTP layers the checkpoint has."""
    return fields.integer(
        "mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_layers", default=0, maximum=64
    )


def mtp_parameters(count: int, last: Layer, hidden: int, vocabulary: int, traits: Traits) -> int:
    """Returns the elements of `count` MTP layers: each a decoder layer like the last one, the projection of
    [embedding; hidden] to hidden, three norms, and in some families an embedding and a head of its own."""
    if not count:
        return 0
    layer = last.norms
    if last.attention is not None:
        layer += last.attention.matrix_parameters(hidden) + last.attention.vector_parameters()
    if isinstance(last.ffn, FeedForward):
        layer += last.ffn.parameters(hidden) + last.ffn.biases
    elif isinstance(last.ffn, Experts):
        ffn = last.ffn
        layer += (
            ffn.routed_parameters(hidden)
            + ffn.always_read(hidden)
            + ffn.router_parameters(hidden)
            + ffn.biases
        )
    layer += 2 * hidden * hidden + 3 * hidden
    if traits.mtp_has_embeddings:
        layer += 2 * vocabulary * hidden
    return count * layer
