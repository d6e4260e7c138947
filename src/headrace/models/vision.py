"""The vision tower of a multimodal model."""

from __future__ import annotations

from headrace.models.fields import Fields
from headrace.models.geometry import Vision
from headrace.quantities import Origin


def vision_tower(fields: Fields | None, source: str, hidden: int) -> Vision | None:
    """Returns the vision tower that a config's vision part describes, or None where nothing describes it.

    Counted as a ViT with biases, a position table and the family's projector: exact for the Qwen-VL line,
    to 0.01 % of the tower for Gemma 3 and Llama 4, within a few per cent of the tower for others (well under
    0.1 % of the model).
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
    frames = fields.integer("temporal_patch_size", default=1, minimum=1)
    qkv = fields.integer("qkv_hidden_size", default=width, minimum=1)
    block = (
        3 * width * qkv + 3 * qkv  # q, k, v
        + qkv * width + width  # out
        + 2 * width * intermediate + intermediate + width  # feed-forward
        + 4 * width  # two norms with bias
    )  # fmt: skip
    patches = 3 * frames * patch * patch * width + width
    total = layers * block + patches + _positions(fields, patch) * width + _projector(fields, width, hidden)
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


def _positions(fields: Fields, patch: int) -> int:
    """Returns the rows of the position table."""
    stated = fields.optional("num_position_embeddings", "position_embedding_size")
    if stated is not None:
        return stated
    side = fields.integer("init_pos_emb_height", default=fields.integer("image_size", default=1024) // patch)
    return side * side


def _projector(fields: Fields, width: int, hidden: int) -> int:
    """Returns the elements between the tower's width and the text model's, with the norms after the tower."""
    out = fields.integer("out_hidden_size", "text_hidden_size", "projection_dim", default=hidden, minimum=1)
    if fields.has(
        "vision_output_dim"
    ):  # Llama 4: pixels shuffled 2 × 2, two layers, a projection; class token
        inner = fields.integer("vision_output_dim", minimum=1)
        return 4 * width * inner + inner * inner + inner * hidden + 5 * width
    merge = fields.integer(
        "spatial_merge_size", default=2 if fields.has("depth", "vt_hidden_size") else 1, minimum=1
    )
    if merge == 1:  # Gemma: one projection and its norm
        return width * out + 3 * width
    merged = width * merge * merge
    merger = merged * merged + merged + merged * out + out
    deepstack = len(fields.sequence("deepstack_visual_indexes") or ())
    return merger + 2 * width + deepstack * (merger + 2 * merged)
