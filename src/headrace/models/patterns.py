"""Which mixer each layer has: the many ways in which configs write it down, read into one list."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import InputError
from headrace.models.fields import MAX_LAYERS, Fields
from headrace.models.layers import LayerKind
from headrace.models.traits import Traits

FEED_FORWARD = "feed_forward"  # a Nemotron-H layer that is only a dense feed-forward part
EXPERTS = "experts"  # … or only experts
BOTH = "both"  # Falcon-H1: attention and mamba side by side

# The words that configs use for layers. "linear_attention" depends on the family.
_WORDS = {
    "full_attention": LayerKind.FULL,
    "attention": LayerKind.FULL,
    "sliding_attention": LayerKind.SLIDING,
    "chunked_attention": LayerKind.SLIDING,
    "deepseek_sparse_attention": LayerKind.LATENT,
    "mamba": LayerKind.MAMBA2,
    "moe": EXPERTS,
    "mlp": FEED_FORWARD,
    "hybrid": BOTH,
}
_NEMOTRON_LETTERS = {"M": LayerKind.MAMBA2, "*": LayerKind.FULL, "E": EXPERTS, "-": FEED_FORWARD}
_LINEAR = {
    "qwen3_next": LayerKind.GATED_DELTA,
    "qwen3_5": LayerKind.GATED_DELTA,
    "qwen3_5_moe": LayerKind.GATED_DELTA,
    "kimi_linear": LayerKind.KIMI_DELTA,
    "minimax": LayerKind.LIGHTNING,
    "minimax_text_01": LayerKind.LIGHTNING,
    "minimax_m1": LayerKind.LIGHTNING,
}


def layer_words(fields: Fields, family: str, traits: Traits, caveats: list[str]) -> list[str]:
    """Returns one word per layer: a `LayerKind`, or FEED_FORWARD, EXPERTS or BOTH.

    Raises InputError where a list of layers has an unknown word or another length than num_hidden_layers.
    """
    count = fields.optional("num_hidden_layers", "n_layer", "num_layers", minimum=1, maximum=MAX_LAYERS)
    words = _explicit(fields, family, caveats)
    if words is not None:
        if count is not None and len(words) != count:
            raise InputError(
                f"{fields.name}: its list of layers has {len(words)} entries, num_hidden_layers is {count}; "
                "mend one of them"
            )
        return words
    if count is None:
        count = fields.integer("num_hidden_layers")  # raises, naming it
    return _by_rule(fields, family, traits, count, caveats)


def _explicit(fields: Fields, family: str, caveats: list[str]) -> list[str] | None:
    """Returns the words of a list that names every layer, or None where the config has none."""
    linear = _LINEAR.get(family)
    pattern = fields.values.get("hybrid_override_pattern")
    if isinstance(pattern, str) and 0 < len(pattern) <= MAX_LAYERS:
        return [_known(fields, letter, _NEMOTRON_LETTERS) for letter in pattern]
    for name in ("layers_block_type", "layer_types"):
        entries = fields.sequence(name)
        if entries is not None:
            words = {**_WORDS, "linear_attention": linear} if linear else _WORDS
            return [_known(fields, entry, words) for entry in entries]
    if family == "nemotron_h" and not fields.has("num_hidden_layers"):
        caveats.append("the config lists no layers; read as the family's default: mamba, moe, attention, moe")
        return [LayerKind.MAMBA2, EXPERTS, LayerKind.FULL, EXPERTS]
    windows = fields.sequence("hybrid_layer_pattern")
    if windows is not None:
        return [LayerKind.SLIDING if entry == 1 else LayerKind.FULL for entry in windows]
    types = fields.sequence("attn_type_list")
    if types is not None:
        return [LayerKind.FULL if entry == 1 else LayerKind.LIGHTNING for entry in types]
    return None


def _known(fields: Fields, word: object, words: dict[str, str] | dict[str, LayerKind | str]) -> str:
    if isinstance(word, str) and word in words:
        return words[word]
    raise InputError(
        f"{fields.name}: layer of kind {str(word)[:60]!r} is unknown here; known are {', '.join(words)}. "
        "If it is one of them under another name, change it in a copy of the config"
    )


def _by_rule(fields: Fields, family: str, traits: Traits, count: int, caveats: list[str]) -> list[str]:
    """Returns the words where the config gives a rule, or nothing but a count."""
    linear = _LINEAR.get(family)
    listed = fields.inner("linear_attn_config")
    if listed is not None and listed.sequence("full_attn_layers") is not None:  # Kimi, counted from 1
        full = set(listed.sequence("full_attn_layers") or ())
        return [LayerKind.LATENT if i + 1 in full else LayerKind.KIMI_DELTA for i in range(count)]
    if family in {"qwen3_next", "qwen3_5", "qwen3_5_moe", "kimi_linear"}:
        interval = fields.integer("full_attention_interval", default=4, minimum=1)
        full_kind = LayerKind.LATENT if family == "kimi_linear" else LayerKind.FULL
        return [full_kind if (i + 1) % interval == 0 else str(linear) for i in range(count)]
    if family == "minimax":
        return [LayerKind.FULL if i % 2 else LayerKind.LIGHTNING for i in range(count)]
    if family == "jamba":
        period = fields.integer("attn_layer_period", default=8, minimum=1)
        offset = fields.integer("attn_layer_offset", default=4)
        return [LayerKind.FULL if i % period == offset else LayerKind.MAMBA for i in range(count)]
    if family in {"bamba", "granitemoehybrid"}:
        full = set(fields.sequence("attn_layer_indices") or ())
        if not full:
            caveats.append("the config names no attention layers; every layer is read as mamba 2")
        return [LayerKind.FULL if i in full else LayerKind.MAMBA2 for i in range(count)]
    if family == "falcon_h1":
        return [BOTH] * count
    if fields.has("kv_lora_rank"):
        return [LayerKind.LATENT] * count
    return _windows(fields, traits, count)


def _windows(fields: Fields, traits: Traits, count: int) -> list[str]:
    """Returns full and sliding layers of a plain decoder."""
    if fields.has("attention_chunk_size") and not fields.has(
        "sliding_window"
    ):  # Llama 4: every fourth sees all
        return [LayerKind.FULL if (i + 1) % 4 == 0 else LayerKind.SLIDING for i in range(count)]
    window = fields.optional("sliding_window")
    wanted = fields.flag("use_sliding_window", default=traits.window != "none")
    if not window or not wanted:
        return [LayerKind.FULL] * count
    every = fields.optional("sliding_window_pattern", minimum=1)
    if every is None and traits.window == "five_in_six":
        every = 6
    if every is None and traits.window == "alternate":
        every = 2
    if every is not None:
        return [LayerKind.FULL if (i + 1) % every == 0 else LayerKind.SLIDING for i in range(count)]
    return [LayerKind.SLIDING] * count


def experts_in(fields: Fields, words: Sequence[str]) -> list[bool]:
    """Returns for each layer whether its feed-forward part is a mixture of experts."""
    count = len(words)
    if not fields.optional("num_experts", "num_local_experts", "n_routed_experts"):
        return [False] * count
    frequencies = fields.sequence("moe_layer_freq")
    if frequencies is not None and len(frequencies) == count:
        return [bool(entry) for entry in frequencies]
    dense_first = fields.integer("first_k_dense_replace", default=0)
    if fields.has("expert_layer_period"):  # Jamba
        period = fields.integer("expert_layer_period", minimum=1)
        offset = fields.integer("expert_layer_offset", default=0)
        return [i % period == offset for i in range(count)]
    step = fields.integer(
        "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", default=1, minimum=1
    )
    dense = set(fields.sequence("mlp_only_layers") or ())
    by_end = fields.has("interleave_moe_layer_step") or fields.has("decoder_sparse_step")
    return [
        i >= dense_first and i not in dense and ((i + 1) if by_end else i) % step == 0 for i in range(count)
    ]
