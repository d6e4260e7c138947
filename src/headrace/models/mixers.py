"""Attention and recurrent parts, from the fields of a config."""

from __future__ import annotations

from headrace.models.fields import Fields
from headrace.models.layers import Attention, CompressedAttention, LatentAttention, LayerKind, Recurrent
from headrace.models.traits import Traits


def attention(fields: Fields, traits: Traits, hidden: int, *, sliding: bool) -> Attention:
    """Returns the plain attention part of a full or sliding layer.

    Configs may shape the two differently: `swa_*` fields (MiMo), `global_*` fields (Gemma 4).
    """
    heads = fields.integer("num_attention_heads", "n_head", minimum=1)
    kv_heads = fields.integer("num_key_value_heads", "num_kv_heads", default=heads, minimum=1)
    # rounded down where it does not divide, as transformers does
    key_dim = fields.optional("head_dim", minimum=1) or max(1, hidden // heads)
    value_dim = fields.integer("v_head_dim", default=key_dim, minimum=1)
    window = None
    key_is_value = False
    if sliding:
        heads = fields.integer("swa_num_attention_heads", default=heads, minimum=1)
        kv_heads = fields.integer("swa_num_key_value_heads", default=kv_heads, minimum=1)
        key_dim = fields.integer("swa_head_dim", default=key_dim, minimum=1)
        value_dim = fields.integer("swa_v_head_dim", default=value_dim, minimum=1)
        window = fields.integer("sliding_window", "attention_chunk_size", "sliding_window_size", minimum=1)
    elif fields.has("global_head_dim"):
        key_dim = value_dim = fields.integer("global_head_dim", minimum=1)
        kv_heads = fields.integer("num_global_key_value_heads", default=kv_heads, minimum=1)
        key_is_value = fields.flag("attention_k_eq_v")
    biases = 0
    if fields.flag("attention_bias", "qkv_bias", default=traits.qkv_bias):
        biases += heads * key_dim + kv_heads * (key_dim + value_dim)
    if traits.out_bias:
        biases += hidden
    sparse = fields.inner("sparse_attention_config")  # MiniMax-M3 picks blocks with a small indexer
    indexer = 0
    if sparse is not None:
        width = sparse.integer("sparse_index_dim", default=0)
        indexer = (sparse.integer("sparse_num_index_heads", default=0) + 1) * width
    norms = heads if traits.sinks else 0
    if traits.qk_norm == "head" or (not traits.qk_norm and fields.flag("use_qk_norm")):
        norms += 2 * key_dim
    elif traits.qk_norm == "all":
        norms += (heads + kv_heads) * key_dim
    return Attention(
        query_heads=heads,
        kv_heads=kv_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        window_tokens=window,
        output_gate=fields.flag("attn_output_gate", default=traits.output_gate),
        biases=biases,
        norms=norms,
        key_is_value=key_is_value,
        extra_width=indexer,
    )


def has_indexer(fields: Fields, number: int) -> bool:
    """Returns whether layer `number` picks its tokens itself; in GLM-5.2 three of four layers reuse a
    neighbour's."""
    every = fields.integer("index_topk_freq", default=1, minimum=1)
    first = fields.integer("index_skip_topk_offset", default=0)
    return number < first or (number - first) % every == 0


def latent_attention(fields: Fields, *, indexer: bool = True) -> LatentAttention:
    """Returns the MLA part; without its indexer, a layer that reuses the choice of another one."""
    return LatentAttention(
        query_heads=fields.integer("num_attention_heads", minimum=1),
        kv_rank=fields.integer("kv_lora_rank", minimum=1),
        rope_dim=fields.integer("qk_rope_head_dim"),
        nope_dim=fields.integer("qk_nope_head_dim", minimum=1),
        value_dim=fields.integer("v_head_dim", minimum=1),
        query_rank=fields.optional("q_lora_rank") or None,
        index_heads=fields.integer("index_n_heads", default=0) if indexer else 0,
        index_dim=fields.integer("index_head_dim", default=0) if indexer else 0,
        index_tokens=fields.integer("index_topk", default=0),
        output_gate=fields.flag("mla_use_output_gate"),
    )


def compressed_attention(fields: Fields, ratio: int) -> CompressedAttention:
    """Returns the attention part of a DeepSeek V4 layer that keeps one entry per `ratio` tokens (0: a
    window)."""
    return CompressedAttention(
        query_heads=fields.integer("num_attention_heads", minimum=1),
        head_dim=fields.integer("head_dim", minimum=1),
        query_rank=fields.integer("q_lora_rank", minimum=1),
        out_groups=fields.integer("o_groups", default=8, minimum=1),
        out_rank=fields.integer("o_lora_rank", default=1024, minimum=1),
        ratio=ratio,
        near_tokens=fields.integer("sliding_window", minimum=1),
        index_heads=fields.integer("index_n_heads", default=0) if ratio == 4 else 0,
        index_dim=fields.integer("index_head_dim", default=0) if ratio == 4 else 0,
        index_tokens=fields.integer("index_topk", default=0) if ratio == 4 else 0,
    )


def recurrent(fields: Fields, kind: LayerKind, hidden: int) -> Recurrent:
    """Returns the recurrent part of a layer of that kind."""
    if kind is LayerKind.GATED_DELTA:
        return gated_delta(fields, hidden)
    if kind is LayerKind.KIMI_DELTA:
        return kimi_delta(fields, hidden)
    if kind is LayerKind.MAMBA:
        return mamba(fields, hidden)
    if kind is LayerKind.MAMBA2:
        return mamba2(fields, hidden)
    return lightning(fields, hidden)


def gated_delta(fields: Fields, hidden: int) -> Recurrent:
    """Returns a gated delta net: projections q, k, v, z (one), b, a (one), out; a convolution over q, k,
    v."""
    value_heads = fields.integer("linear_num_value_heads", minimum=1)
    key_heads = fields.integer("linear_num_key_heads", minimum=1)
    value_dim = fields.integer("linear_value_head_dim", minimum=1)
    key_dim = fields.integer("linear_key_head_dim", minimum=1)
    kernel = fields.integer("linear_conv_kernel_dim", minimum=1)
    values, keys = value_heads * value_dim, key_heads * key_dim
    matrices = hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden
    return Recurrent(
        kind=LayerKind.GATED_DELTA,
        value_heads=value_heads,
        key_heads=key_heads,
        value_dim=value_dim,
        key_dim=key_dim,
        conv_kernel=kernel,
        parameters=matrices + (2 * keys + values) * kernel,
        vectors=2 * value_heads + value_dim,  # A_log, dt_bias, gated norm
    )


def kimi_delta(fields: Fields, hidden: int) -> Recurrent:
    """Returns Kimi delta attention: q, k, v, out; decay and gate of rank head_dim (or full); b;
    convolutions."""
    inner = fields.inner("linear_attn_config") or fields
    heads = inner.integer("num_heads", "linear_num_heads", minimum=1)
    dim = inner.integer("head_dim", "linear_head_dim", minimum=1)
    kernel = inner.integer("short_conv_kernel_size", "linear_conv_kernel_dim", default=4, minimum=1)
    width = heads * dim
    low_rank = hidden * dim + dim * width
    gate = hidden * width if inner.flag("use_full_rank_gate") else low_rank
    return Recurrent(
        kind=LayerKind.KIMI_DELTA,
        value_heads=heads,
        key_heads=heads,
        value_dim=dim,
        key_dim=dim,
        conv_kernel=kernel,
        parameters=4 * hidden * width + low_rank + gate + hidden * heads + 3 * width * kernel,
        vectors=heads + width + dim,  # A_log, dt_bias, out norm
    )


def mamba2(fields: Fields, hidden: int) -> Recurrent:
    """Returns a mamba 2 mixer: in projection to z, x, B, C, dt; a convolution over x, B, C; out
    projection."""
    state = fields.integer("ssm_state_size", "mamba_d_state", "mamba_state_dim", minimum=1)
    kernel = fields.integer("conv_kernel", "mamba_d_conv", default=4, minimum=1)
    groups = fields.integer("n_groups", "mamba_n_groups", default=1, minimum=1)
    expand = fields.integer("expand", "mamba_expand", default=2, minimum=1)
    inner = fields.optional("mamba_d_ssm", minimum=1)
    heads = fields.optional("mamba_num_heads", "mamba_n_heads", minimum=1)
    dim = None
    if fields.values.get("mamba_d_head") != "auto":
        dim = fields.optional("mamba_head_dim", "mamba_d_head", minimum=1)
    if inner is None:
        inner = heads * dim if heads and dim else expand * hidden
    if heads is None:
        heads = inner // dim if dim else fields.integer("mamba_num_heads", "mamba_n_heads")
    dim = dim or max(1, inner // heads)
    channels = inner + 2 * groups * state
    return Recurrent(
        kind=LayerKind.MAMBA2,
        value_heads=heads,
        key_heads=groups,
        value_dim=dim,
        key_dim=state,
        conv_kernel=kernel,
        parameters=hidden * (inner + channels + heads) + inner * hidden + channels * kernel,
        vectors=3 * heads + inner + channels,  # A_log, D, dt_bias; gated norm; convolution bias
    )


def mamba(fields: Fields, hidden: int) -> Recurrent:
    """Returns a mamba 1 mixer (Jamba): in, x and dt projections, a convolution, out projection, three small
    norms."""
    state = fields.integer("mamba_d_state", minimum=1)
    kernel = fields.integer("mamba_d_conv", default=4, minimum=1)
    inner = fields.integer("mamba_expand", default=2, minimum=1) * hidden
    rank = -(-hidden // 16)
    if fields.values.get("mamba_dt_rank") != "auto":
        rank = fields.integer("mamba_dt_rank", default=rank, minimum=1)
    return Recurrent(
        kind=LayerKind.MAMBA,
        value_heads=inner,
        key_heads=0,
        value_dim=1,
        key_dim=state,
        conv_kernel=kernel,
        parameters=3 * hidden * inner + inner * (rank + 2 * state) + rank * inner + inner * (kernel + state),
        vectors=3 * inner + rank + 2 * state,  # convolution bias, dt bias, D; the norms of dt, B, C
    )


def lightning(fields: Fields, hidden: int) -> Recurrent:
    """Returns lightning attention (MiniMax-Text-01): q, k, v, gate, out; a state of k × v per head; no
    convolution."""
    heads = fields.integer("num_attention_heads", minimum=1)
    dim = fields.integer("head_dim", default=hidden // heads, minimum=1)
    width = heads * dim
    return Recurrent(
        kind=LayerKind.LIGHTNING,
        value_heads=heads,
        key_heads=heads,
        value_dim=dim,
        key_dim=dim,
        conv_kernel=0,
        parameters=5 * hidden * width,
        vectors=width,
    )
