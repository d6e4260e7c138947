"""Attention kernels of one kind of layer: KV read per token of context, products per pair of tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headrace.models.layers import AnyAttention, Attention, CompressedAttention, LatentAttention
from headrace.perf.efficiency import OperatorClass
from headrace.perf.kernels import Drive, Kernel
from headrace.perf.options import StepOptions

_INDEX_BYTES = 1.0 + 4.0 / 128  # an indexer's keys are fp8 with a scale per 128 (DeepSeek V3.2)
_ROW_BYTES = 2.0


def attention_kernels(attention: AnyAttention, count: int, options: StepOptions) -> Iterator[Kernel]:
    """Yields the kernels of `count` equal layers: for decoding requests and for prompt chunks."""
    if isinstance(attention, LatentAttention):
        yield from _latent(attention, count, options)
    elif isinstance(attention, CompressedAttention):
        yield from _compressed(attention, count, options)
    else:
        yield from _plain(attention, count, options)


def _plain(attention: Attention, count: int, options: StepOptions) -> Iterator[Kernel]:
    tp = options.attention_tp
    # a layer that shares another's keys and values stores none, but reads them
    heads = max(1, -(-attention.kv_heads // tp))
    read = heads * (attention.key_dim + attention.value_dim) * options.kv_dtype_bytes
    query = -(-attention.query_heads // tp) * (attention.key_dim + attention.value_dim) * _ROW_BYTES
    pair = attention.flops_per_context_token() / tp
    bound = float(attention.window_tokens) if attention.window_tokens else math.inf
    name = "window attention" if attention.window_tokens else "attention"
    yield from _both(name, count, read, query, pair, pair, bound, options)


def _latent(attention: LatentAttention, count: int, options: StepOptions) -> Iterator[Kernel]:
    tp = options.attention_tp
    heads = -(-attention.query_heads // tp)
    read = attention.kv_elements_per_token(tp) * options.kv_dtype_bytes
    query = heads * (2 * attention.kv_rank + attention.rope_dim) * _ROW_BYTES
    absorbed = attention.flops_per_context_token() / tp
    expanded = 2.0 * heads * (attention.nope_dim + attention.rope_dim + attention.value_dim)
    bound = float(attention.index_tokens) if attention.index_tokens else math.inf
    # with an indexer, prompts too are attended to in the absorbed form
    prompt = absorbed if attention.index_tokens else expanded
    yield from _both("latent attention", count, read, query, absorbed, prompt, bound, options)
    if attention.index_heads:
        keys = attention.index_dim * _INDEX_BYTES
        pair = 2.0 * attention.index_heads * attention.index_dim  # every rank has all index heads
        yield from _both("indexer", count, keys, 0.0, pair, pair, math.inf, options)


def _compressed(attention: CompressedAttention, count: int, options: StepOptions) -> Iterator[Kernel]:
    tp = options.attention_tp
    heads = -(-attention.query_heads // tp)
    near = attention.head_dim * options.kv_dtype_bytes
    query = 2.0 * heads * attention.head_dim * _ROW_BYTES
    pair = 4.0 * heads * attention.head_dim
    yield from _both(
        "window attention", count, near, query, pair, pair, float(attention.near_tokens), options
    )
    if attention.ratio:
        bound = (
            float(attention.index_tokens * attention.ratio) if attention.index_tokens else math.inf
        )  # tokens that the picked entries stand for
        far, far_pair = near / attention.ratio, pair / attention.ratio
        yield from _both("compressed attention", count, far, 0.0, far_pair, far_pair, bound, options)
        if attention.index_heads:
            keys = attention.index_dim * _INDEX_BYTES / attention.ratio
            index_pair = 2.0 * attention.index_heads * attention.index_dim / attention.ratio
            yield from _both("indexer", count, keys, 0.0, index_pair, index_pair, math.inf, options)


def _both(
    name: str,
    count: int,
    context_bytes: float,
    token_bytes: float,
    decode_pair: float,
    prefill_pair: float,
    bound: float,
    options: StepOptions,
) -> Iterator[Kernel]:
    dtype = "fp8" if options.kv_dtype_bytes <= 1.0 else "bf16"
    for kind, drive, pair, suffix in (
        (OperatorClass.ATTENTION_DECODE, Drive.DECODE, decode_pair, ""),
        (OperatorClass.ATTENTION_PREFILL, Drive.PREFILL, prefill_pair, " (prefill)"),
    ):
        yield Kernel(
            name + suffix,
            kind,
            dtype,
            "bf16",
            drive,
            float(count),
            token_bytes=count * token_bytes,
            context_bytes=count * context_bytes,
            pair_flops=count * pair,
            bound=bound,
        )
