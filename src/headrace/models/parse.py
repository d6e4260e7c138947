"""A model's geometry from its config.json.

The config is data from outside: bounded, typed, never evaluated, never used as a path. A model_type that is
not known is an error, not a guess; so is a field that is needed and not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.errors import InputError, nearest
from headrace.models.feedforward import dense, experts
from headrace.models.fields import Fields
from headrace.models.geometry import ModelGeometry
from headrace.models.layers import AnyAttention, Attention, Experts, FeedForward, Layer, LayerKind, Recurrent
from headrace.models.mixers import attention, compressed_attention, has_indexer, latent_attention, recurrent
from headrace.models.mtp import mtp_layers, mtp_parameters
from headrace.models.patterns import BOTH, EXPERTS, FEED_FORWARD, experts_in, layer_words
from headrace.models.quantisation import quantisation_of
from headrace.models.traits import FAMILIES, Traits, family_of
from headrace.models.vision import vision_tower

_TEXT_PARTS = ("text_config", "llm_config", "language_config")
_VISION_PARTS = ("vision_config", "visual", "vision_tower_config")
# Where neither model_type nor a wrapper says it, the architecture's name does.
_BY_ARCHITECTURE = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "DeciLMForCausalLM": "nemotron-nas",
}


def geometry_from_config(
    config: Mapping[str, Any], name: str = "", source: str = "config.json"
) -> ModelGeometry:
    """Returns the geometry of the model that a config.json describes.

    Also takes the two wrapped forms: {"model_id", "source", "config": {…}} and {"SomeConfig": {…}}.

    Raises InputError for an unknown model_type, a missing field or a nonsensical value; the message names
    what was looked for and the way out.
    """
    config, name, source = _unwrap(config, name, source)
    name = name or str(config.get("_name_or_path") or "")[:200] or "model"
    outer = Fields(config, name)
    text = outer.inner(*_TEXT_PARTS) or outer
    model_type, family = _family(outer, text)
    traits = FAMILIES[family]
    if family == "kimi_k3":  # the wrapper; its text part is a Kimi-Linear
        family = "kimi_linear"
    caveats: list[str] = []
    hidden = text.integer("hidden_size", "n_embd", "d_model", minimum=1)
    layers = _layers(text, family, traits, hidden, caveats)
    vocabulary = text.integer("vocab_size", default=outer.integer("vocab_size", default=0))
    if not vocabulary:
        caveats.append(
            "the config does not state vocab_size: parameters and bytes are without embedding and head"
        )
    tied = text.flag("tie_word_embeddings", default=outer.flag("tie_word_embeddings", default=traits.tied))
    vision = vision_tower(outer.inner(*_VISION_PARTS), source, hidden)
    multimodal = vision is not None or traits.multimodal
    if multimodal and vision is None:
        caveats.append("the config does not describe the vision tower: parameters and bytes are without it")
    mtp = mtp_layers(text)
    extra = (
        mtp_parameters(mtp, _mtp_model(text, layers, traits, hidden), hidden, vocabulary, traits)
        if mtp
        else 0
    )
    geometry = ModelGeometry(
        name=name,
        model_type=model_type,
        architecture=_architecture(outer),
        source=source,
        hidden=hidden,
        vocabulary=vocabulary,
        tied_embeddings=tied,
        layers=layers,
        context_tokens=text.optional("max_position_embeddings", "seq_length", "n_positions"),
        quantisation=quantisation_of(outer, text, layers, hidden, caveats),
        state_dtype=text.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype"),
        final_norms=hidden * (2 if traits.norm_bias else 1),
        mtp_layers=mtp,
        mtp_parameters=extra,
        vision=vision,
        other_parameters=vocabulary if traits.head_bias else 0,
        multimodal=multimodal,
        caveats=tuple(caveats),
    )
    if geometry.total_parameters > 10**14:
        raise InputError(
            f"{name}: the config gives {geometry.total_parameters:.3g} parameters, more than any model has; "
            "mend it"
        )
    return geometry


def _mtp_model(text: Fields, layers: tuple[Layer, ...], traits: Traits, hidden: int) -> Layer:
    """Returns the layer that the MTP layers are built like: the last one with attention and a feed-forward
    part.

    Where no layer has both (Nemotron-H), one is put together from the last of each.
    """
    both = [layer for layer in layers if layer.attention is not None and layer.ffn is not None]
    if both and traits.mtp_dense:
        return replace(both[-1], ffn=dense(text, traits, hidden))
    if both:
        return both[-1]
    looks = next((layer.attention for layer in reversed(layers) if layer.attention is not None), None)
    part = next((layer.ffn for layer in reversed(layers) if layer.ffn is not None), None)
    return Layer(looks, None, part, 2 * hidden)


def _unwrap(config: Mapping[str, Any], name: str, source: str) -> tuple[Mapping[str, Any], str, str]:
    """Returns the config itself, with the name and source that a wrapper adds."""
    if not isinstance(config, Mapping):
        raise InputError(f"{name or 'config'}: a JSON object is needed, this is {type(config).__name__}")
    if isinstance(config.get("config"), Mapping):
        name = name or str(config.get("model_id") or "")[:200]
        source = str(config.get("source") or source)[:500]
        config = config["config"]
    if config and all(key.endswith("Config") and isinstance(value, Mapping) for key, value in config.items()):
        config = next(
            (part for part in config.values() if "hidden_size" in part), next(iter(config.values()))
        )
    return config, name, source


def _architecture(outer: Fields) -> str:
    names = outer.sequence("architectures")
    return str(names[0])[:200] if names else ""


def _family(outer: Fields, text: Fields) -> tuple[str, str]:
    """Returns (model_type as written, row of the family table)."""
    written = outer.text("model_type") or text.text("model_type")
    if written is None:
        written = _BY_ARCHITECTURE.get(_architecture(outer))
    if written is None:
        raise InputError(
            f"{outer.name}: the config has no model_type, and architectures is "
            f"{_architecture(outer) or 'missing'}; add a model_type ('llama' for a plain decoder)"
        )
    family = family_of(written)
    inner = text.text("model_type")
    if family is None and inner is not None:
        family = family_of(inner)
    if family is None:
        raise InputError(
            f"{outer.name}: model_type {written!r} ({_architecture(outer) or 'no architectures'}) is not "
            f"known here.{nearest(written, FAMILIES)} Looked for one of {', '.join(sorted(FAMILIES))}. If "
            "the model is built like one of these, set that model_type in a copy of its config.json and give "
            "the copy; a plain decoder is 'llama', with experts 'mixtral'"
        )
    return written, family


def _layers(text: Fields, family: str, traits: Traits, hidden: int, caveats: list[str]) -> tuple[Layer, ...]:
    if text.sequence("block_configs") is not None:
        return _nas_layers(text, traits, hidden)
    if family in {"deepseek_v4", "deepseek_ref"}:
        return _compressed_layers(text, traits, hidden, caveats)
    words = layer_words(text, family, traits, caveats)
    mixture = experts_in(text, words)
    made: dict[tuple[str, bool, bool], Layer] = {}
    layers = []
    for number, (word, has_experts) in enumerate(zip(words, mixture, strict=True)):
        indexer = has_indexer(text, number)
        key = (word, has_experts, indexer)
        if key not in made:
            layer = _layer(text, family, traits, hidden, word, has_experts)
            if word == LayerKind.LATENT and not indexer:
                layer = replace(layer, attention=latent_attention(text, indexer=False))
            made[key] = layer
        layers.append(made[key])
    return tuple(layers)


def _layer(text: Fields, family: str, traits: Traits, hidden: int, word: str, has_experts: bool) -> Layer:
    looks: AnyAttention | None = None
    remembers: Recurrent | None = None
    norms = traits.norms_per_layer * hidden * (2 if traits.norm_bias else 1)
    if word in {LayerKind.FULL, LayerKind.SLIDING, BOTH}:
        looks = attention(text, traits, hidden, sliding=word == LayerKind.SLIDING)
    elif word == LayerKind.LATENT:
        looks = latent_attention(text)
    if word == BOTH:
        remembers = recurrent(text, LayerKind.MAMBA2, hidden)
    elif looks is None and word not in {FEED_FORWARD, EXPERTS}:
        remembers = recurrent(text, LayerKind(word), hidden)
    if family == "nemotron_h":  # one part per layer
        part: FeedForward | Experts | None = None
        if word == EXPERTS:
            part = experts(text, traits, hidden)
        elif word == FEED_FORWARD:
            part = dense(text, traits, hidden)
        return Layer(looks, remembers, part, norms)
    if has_experts:
        return Layer(looks, remembers, experts(text, traits, hidden), norms)
    if family == "granitemoehybrid" and not text.has("intermediate_size"):
        return Layer(looks, remembers, None, norms)
    return Layer(looks, remembers, dense(text, traits, hidden), norms)


def _compressed_layers(text: Fields, traits: Traits, hidden: int, caveats: list[str]) -> tuple[Layer, ...]:
    """Returns DeepSeek V4's layers; all have experts."""
    count = text.integer("num_hidden_layers", minimum=1, maximum=10_000)
    ratios = list(text.sequence("compress_ratios") or ())[:count]
    if len(ratios) < count:
        caveats.append(
            "compress_ratios is not in the config; read as the family's pattern 0, 0, 4, 128, 4, 128, …"
        )
        ratios = [0, 0] + [4 if i % 2 == 0 else 128 for i in range(count - 2)]
    part = experts(text, traits, hidden)
    by_ratio = {
        ratio: Layer(compressed_attention(text, int(ratio)), None, part, traits.norms_per_layer * hidden)
        for ratio in dict.fromkeys(ratios)
    }
    caveats.append(
        "besides its compressed entries every layer keeps the last sliding_window tokens of a request; "
        "KV bytes per token leave that fixed part out"
    )
    return tuple(by_ratio[ratio] for ratio in ratios)


def _nas_layers(text: Fields, traits: Traits, hidden: int) -> tuple[Layer, ...]:
    """Returns the layers of a searched architecture (DeciLM): each block has its own attention and width,
    or none."""
    heads = text.integer("num_attention_heads", minimum=1)
    dim = text.integer("head_dim", default=hidden // heads, minimum=1)
    layers = []
    for number, block in enumerate(text.sequence("block_configs") or ()):
        if not isinstance(block, dict):
            raise InputError(f"{text.name}: block_configs[{number}] is not an object; mend the config")
        entry = Fields(block, f"{text.name}: block_configs[{number}]")
        looks, width = None, 0
        mixer = entry.inner("attention")
        if mixer is not None and not mixer.flag("no_op") and mixer.has("n_heads_in_group"):
            group = mixer.integer("n_heads_in_group", minimum=1, maximum=heads)
            looks = Attention(heads, heads // group, dim, dim)
        part = entry.inner("ffn")
        if part is not None and not part.flag("no_op"):
            width = -(-int(2 * part.number("ffn_mult") * hidden / 3) // 256) * 256  # as the family rounds it
        ffn = FeedForward(width) if width else None
        layers.append(Layer(looks, None, ffn, hidden * ((looks is not None) + (ffn is not None))))
    return tuple(layers)
