"""DeepSeek V4 on SGLang: what one token costs over the pools of windows, compressed entries and their states.

`model_executor/pool_configurator.py::DSV4PoolConfigurator` and `arg_groups/deepseek_v4_hook.py`, 0.5.12.
Later versions price some pools otherwise; the plan says so.
"""

from __future__ import annotations

from headrace.models.geometry import ModelGeometry
from headrace.models.layers import CompressedAttention

PAGE_TOKENS = 256
WINDOW_RATIO = 0.1  # the hook's default of --swa-full-tokens-ratio
_ROPE_DIM = (
    64  # DeepSeek V4's configs; the nope part of a head is stored in FP8, rope in bf16, 8 bytes of scales
)
_FLOAT = 4  # state pools are float32
_INDEX_BLOCK, _SCALE_BYTES = 128, 4


def is_compressed(model: ModelGeometry) -> bool:
    """Returns whether the model keeps compressed entries."""
    return any(isinstance(layer.attention, CompressedAttention) for layer in model.layers)


def bytes_per_full_token(model: ModelGeometry, window_ratio: float, drafts: bool) -> float:
    """Returns the bytes of one token over all pools, the same on every rank.

    Rows of every layer for the window's share, rows of compressed entries, the indexer's, and rings of
    states.
    """
    layers = [layer.attention for layer in model.layers if isinstance(layer.attention, CompressedAttention)]
    head = layers[0].head_dim
    window = layers[0].near_tokens
    index_dim = max((layer.index_dim for layer in layers), default=0)
    row = (head - _ROPE_DIM) + _ROPE_DIM * 2 + 8
    index = index_dim + index_dim // _INDEX_BLOCK * _SCALE_BYTES
    fine = sum(layer.ratio == 4 for layer in layers)
    coarse = sum(layer.ratio == 128 for layer in layers)
    fine_ring, coarse_ring = (16, 256) if drafts else (8, 128)
    total = (
        window_ratio * row * (len(layers) + model.mtp_layers)  # compress_ratios lists the MTP layer too
        + row * fine / 4
        + row * coarse / 128
        + index * fine / 4
        + window_ratio * fine_ring / window * (2 * 2 * head * _FLOAT) * fine
        + window_ratio * coarse_ring / window * (2 * head * _FLOAT) * coarse
        + window_ratio * fine_ring / window * (2 * 2 * index_dim * _FLOAT) * fine
    )
    # a draft worker is paid for by one layer more
    counted = len(layers) + model.mtp_layers
    return total * (counted + 1) / counted if drafts else total
