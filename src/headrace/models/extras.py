"""What comes beside the language model's layers: the vision tower and multi-token-prediction (MTP) layers."""

from __future__ import annotations

from headrace.models.fields import Fields
from headrace.models.geometry import Vision
from headrace.models.layers import Experts, FeedForward, Layer
from headrace.models.traits import Traits
from headrace.quantities import Origin


def vision_tower(fields: Fields | None, source: str, hidden: int) -> Vision | None:
    """Returns the vision tower that a config's vision part describes, or None where nothing describes it.

    Counted as a ViT with biases, a learned position table and a two-layer projector after merging patches:
    exact for the Qwen-VL line, within a few per cent of the tower for others (well under 0.1 % of the
    model).
    """
    if fields is None:
        return None
    layers = fields.optional("depth", "vt_num_hidden_layers", "num_hidden_layers", minimum=1, maximum=1000)
    width = fields.optional("hidden_size", "vt_hidden_size", "embed_dim", minimum=1)
    if layers is None or width is None:
        return None
    intermediate = fields.integer("intermediate_size", "vt_intermediate_size", default=4 * width, minimum=1)
    heads = fields.integer(
        "num_heads", "vt_num_attention_heads", "num_attention_heads", default=16, minimum=1
    )
    patch = fields.integer("patch_size", default=16, minimum=1)
    out = fields.integer("out_hidden_size", "text_hidden_size", "projection_dim", default=hidden, minimum=1)
    merge = fields.integer(
        "spatial_merge_size", default=2 if fields.has("depth", "vt_hidden_size") else 1, minimum=1
    )
    positions = fields.optional("num_position_embeddings", "position_embedding_size")
    if positions is None:
        side = fields.integer(
            "init_pos_emb_height", default=fields.integer("image_size", default=1024) // patch
        )
        positions = side * side
    frames = fields.integer("temporal_patch_size", default=1, minimum=1)
    qkv = fields.integer("qkv_hidden_size", default=width, minimum=1)
    block = (
        3 * width * qkv + 3 * qkv  # q, k, v
        + qkv * width + width  # out
        + 2 * width * intermediate + intermediate + width  # feed-forward
        + 4 * width  # two norms with bias
    )  # fmt: skip
    merged = width * merge * merge
    merger = merged * merged + merged + merged * out + out
    deepstack = len(fields.sequence("deepstack_visual_indexes") or ())
    total = (
        layers * block + 3 * frames * patch * patch * width + width + positions * width + merger + 2 * width
    )
    total += deepstack * (merger + 2 * merged)
    return Vision(
        layers=layers,
        hidden=width,
        intermediate=intermediate,
        heads=heads,
        patch=patch,
        parameters=total,
        origin=Origin.CONFIGURED,
        source=source,
    )


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
