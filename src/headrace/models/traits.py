"""What a model_type implies that its config does not say: biases, norms, gates, default layer patterns.

One row per family. Sources: the modelling files of transformers 5.24 (model_type of the same name), and
SGLang 0.5.12 for the families that transformers does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Traits:
    """What a family implies. Everything here is overridden by a field of the config that says otherwise."""

    tied: bool = False  # tie_word_embeddings where the config is silent
    gated_ffn: bool = True
    ffn_bias: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    head_bias: bool = False
    qk_norm: str = ""  # "head": one vector of head size for q and for k; "all": one over all heads
    sinks: bool = False  # one attention sink per query head
    norms_per_layer: int = 2  # vectors of hidden size
    norm_bias: bool = False  # layer norms with bias
    shared_gate: bool = False  # the shared expert has a gate vector
    expert_bias: bool = False
    router_bias: bool = False  # one number per expert
    output_gate: bool = False
    window: str = (
        "all"  # where sliding_window applies, the config giving no list: all, none, alternate, five_in_six
    )
    parallel_dense: bool = False  # a dense part beside the experts of the same layer
    mtp_dense: bool = False  # MTP layers have a dense feed-forward part where the model has experts
    mtp_has_embeddings: bool = False  # MTP layers store an embedding and a head of their own
    multimodal: bool = False  # served by a multimodal class even where the config describes no tower


_PLAIN = Traits()
_QWEN2 = Traits(qkv_bias=True, window="none")
_QWEN3 = Traits(qk_norm="head", window="none")
_QWEN_HYBRID = Traits(qk_norm="head", shared_gate=True, output_gate=True)
_DEEPSEEK = Traits(router_bias=True, mtp_has_embeddings=True)
_GEMMA = Traits(tied=True)
_GEMMA3 = Traits(tied=True, qk_norm="head", norms_per_layer=4, window="five_in_six")

FAMILIES: Mapping[str, Traits] = {
    "llama": _PLAIN,
    "mistral": _PLAIN,
    "ministral": _PLAIN,
    "mixtral": _PLAIN,
    "internlm2": _PLAIN,
    "phi3": Traits(window="all"),
    "granite": _PLAIN,
    "seed_oss": Traits(qkv_bias=True),
    "smollm3": _PLAIN,
    "nemotron-nas": _PLAIN,
    "qwen": replace(_QWEN2, tied=False),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, shared_gate=True),
    "qwen2_vl": replace(_QWEN2, multimodal=True),
    "qwen2_5_vl": replace(_QWEN2, multimodal=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl": replace(_QWEN3, multimodal=True),
    "qwen3_vl_moe": replace(_QWEN3, multimodal=True),
    "qwen3_next": _QWEN_HYBRID,
    "qwen3_5": replace(_QWEN_HYBRID, multimodal=True),
    "qwen3_5_moe": replace(_QWEN_HYBRID, multimodal=True),
    "phi": Traits(
        gated_ffn=False,
        ffn_bias=True,
        qkv_bias=True,
        out_bias=True,
        head_bias=True,
        norms_per_layer=1,
        norm_bias=True,
    ),
    "starcoder2": Traits(
        tied=True, gated_ffn=False, ffn_bias=True, qkv_bias=True, out_bias=True, norm_bias=True
    ),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms_per_layer=4, window="alternate"),
    "gemma3": _GEMMA3,
    "gemma4": replace(_GEMMA3, parallel_dense=True, multimodal=True),
    "olmo2": Traits(qk_norm="all"),
    "olmo3": Traits(qk_norm="all"),
    "cohere2": Traits(tied=True, norms_per_layer=1),
    "deepseek_v2": replace(_DEEPSEEK, router_bias=False),
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "deepseek_v4": replace(_DEEPSEEK, mtp_has_embeddings=False),
    "deepseek_ref": replace(_DEEPSEEK, mtp_has_embeddings=False),
    "kimi_k2": _DEEPSEEK,
    "kimi_k25": replace(_DEEPSEEK, multimodal=True),
    "kimi_k3": replace(_DEEPSEEK, multimodal=True),
    "kimi_linear": replace(_DEEPSEEK, mtp_has_embeddings=False),
    "glm_moe_dsa": replace(_DEEPSEEK, mtp_has_embeddings=False),
    "glm4_moe": Traits(qkv_bias=True, router_bias=True, mtp_has_embeddings=True),
    "glm4": Traits(qkv_bias=True, norms_per_layer=4),
    "minimax": _PLAIN,
    "minimax_text_01": _PLAIN,
    "minimax_m1": _PLAIN,
    "minimax_m2": Traits(qk_norm="all", router_bias=True),
    "minimax_m3": Traits(qk_norm="head", router_bias=True),
    "minimax_m3_vl": Traits(qk_norm="head", router_bias=True, multimodal=True),
    "gpt_oss": Traits(
        qkv_bias=True, out_bias=True, sinks=True, expert_bias=True, router_bias=True, window="alternate"
    ),
    "nemotron_h": Traits(gated_ffn=False, norms_per_layer=1, router_bias=True),
    "bamba": _PLAIN,
    "falcon_h1": _PLAIN,
    "granitemoe": Traits(tied=True),
    "granitemoehybrid": Traits(tied=True),
    "jamba": _PLAIN,
    "mimo": replace(_QWEN2, window="none"),
    "mimo_v2_flash": Traits(router_bias=True),
    "step3p7": Traits(qk_norm="head", router_bias=True, mtp_dense=True),
    "llama4": Traits(multimodal=True),
    "ernie4_5": Traits(tied=True),
    "ernie4_5_moe": Traits(tied=True, router_bias=True),
    "dots1": Traits(qk_norm="head", router_bias=True),
    "mistral3": Traits(multimodal=True),
}
_TEXT_SUFFIXES = ("_text", "_language")


def family_of(model_type: str) -> str | None:
    """Returns the row's name for a model_type ("qwen3_5_text" → "qwen3_5"), or None where there is none."""
    if model_type in FAMILIES:
        return model_type
    for suffix in _TEXT_SUFFIXES:
        if model_type.endswith(suffix) and model_type.removesuffix(suffix) in FAMILIES:
            return model_type.removesuffix(suffix)
    return None
