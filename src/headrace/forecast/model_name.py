"""The model of a row: its shape, and how its weights are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from headrace.errors import HeadraceError
from headrace.forecast.reason import CannotJudge
from headrace.models.catalogue import find_model
from headrace.models.geometry import ModelGeometry
from headrace.models.quantisation import Part, Quantisation

# Checkpoints of one published shape under several names: what a name matches, and the built-in shape.
# Only families whose sizes the makers published as the same; vocabularies that differ by < 3 % count as such.
_SAME_SHAPE: tuple[tuple[str, str], ...] = (
    (r"(meta-)?llama-3(\.[13])?-8b", "Meta-Llama-3.1-8B"),
    (r"(meta-)?llama-3(\.[13])?-70b", "Meta-Llama-3.1-70B"),
    (r"deepseek-r1-distill-llama-8b", "Meta-Llama-3.1-8B"),
    (r"deepseek-r1-distill-llama-70b", "Meta-Llama-3.1-70B"),
    (r"llama-3\.1-nemotron-nano-8b(-v1)?", "Meta-Llama-3.1-8B"),
    (r"llama-3\.1-nemotron-70b", "Meta-Llama-3.1-70B"),
    (r"llama-3\.2-([13])b", r"Llama-3.2-\1B"),
    (r"qwen2(\.5)?(-coder|-math)?-7b", "Qwen2.5-7B-Instruct"),
    (r"qwen2(\.5)?(-math)?-72b", "Qwen2.5-72B-Instruct"),
    (r"qwen2\.5-vl-7b", "Qwen2.5-7B-Instruct"),
    (r"qwen2\.5-vl-72b", "Qwen2.5-72B-Instruct"),
    (r"deepseek-r1-distill-qwen-7b", "Qwen2.5-7B-Instruct"),
    (r"acemath-7b", "Qwen2.5-7B-Instruct"),
    (r"qwen2\.5-32b|deepseek-r1-distill-qwen-32b", "QwQ-32B"),
    (r"mistral-7b(-v0\.[123])?", "Mistral-7B-v0.3"),
    (r"mixtral-8x7b", "Mixtral-8x7B-v0.1"),
    (r"mixtral-8x22b", "Mixtral-8x22B-v0.1"),
    (r"codellama-7b", "Llama-2-7b-hf"),
    (r"codellama-34b", "CodeLlama-34b-Instruct-hf"),
    (r"deepseek-(v3(\.1)?(-terminus)?|r1)(-\d{4})?", "DeepSeek-V3"),
    (r"deepseek-(v3\.2(-exp)?|math-v2)", "DeepSeek-V3.2"),
    (r"glm-4\.[56]", "GLM-4.5"),
    (r"gemma-4-31b", "Gemma-4-31B-IT-NVFP4"),
    (r"gemma-4-26b-a4b", "gemma-4-26B-A4B"),
    (r"minimax-m2(\.1)?", "MiniMax-M2.5"),
    (r"kimi-k2(-0\d\d\d)?", "Kimi-K2-Instruct"),
    (r"kimi-k2-thinking", "Kimi-K2.5"),
    (r"qwen3-coder-30b-a3b|qwen3-omni-30b-a3b", "Qwen3-30B-A3B"),
    (r"qwen3-(coder-next|next-80b-a3b)", "Qwen3-Next-80B-A3B-Instruct"),
    (r"qwen3-vl-235b-a22b", "Qwen3-VL-235B-A22B-Instruct"),
    (r"(llama-3[._]3-)?nemotron-super-49b(-v1(\.5)?)?", "Llama-3_3-Nemotron-Super-49B-v1"),
    (r"llama-4-(scout-17b-16e|maverick-17b-128e)", r"Llama-4-\1-Instruct"),
)
_WORDS = re.compile(
    r"-(instruct|chat|it|hf|base|gguf|mtp|eagle\d?|bf16|fp16|kv|dynamic|2[45]\d\d)(?=-|$)", re.IGNORECASE
)
_FORM_IN_NAME = re.compile(
    r"-(fp8(-dynamic|-kv)?|nvfp4|fp4|mxfp4|awq(-int4)?|gptq(-int[48])?|int[48]|w4a16|q8_0|q4_0|q4_k_m)(?=-|$)",
    re.IGNORECASE,
)
# Bytes per element of llama.cpp's block formats: 32 weights and a 16-bit scale (q4_K_M: mixed, 4.85 bits).
_GGUF: Mapping[str, float] = {"q8_0": 34 / 32, "q4_0": 18 / 32, "q4_k_m": 4.85 / 8, "q8_k_xl": 34 / 32}
_ENDING = {"fp8": "-FP8", "nvfp4": "-NVFP4", "int4": "-AWQ-INT4", "int8": "-INT8"}
_STORED_AS = {"fp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "int4": "int4", "int8": "int8"}


def form_of(text: str) -> str | None:
    """Returns the stored form that a dtype cell names: plain, fp8, nvfp4, mxfp4, int4, int8, a gguf key or
    None.
    """
    lower = text.lower()
    for key in _GGUF:
        if key in lower:
            return key
    words = (
        ("mxfp4", "mxfp4"),
        ("nvfp4", "nvfp4"),
        ("fp4", "nvfp4"),
        ("fp8", "fp8"),
        ("awq", "int4"),
        ("gptq", "int4"),
        ("w4a16", "int4"),
        ("int4", "int4"),
        ("w8a8", "int8"),
        ("int8", "int8"),
        ("bf16", "plain"),
        ("bfloat16", "plain"),
        ("fp16", "plain"),
        ("float16", "plain"),
        ("f16", "plain"),
        ("16 bit", "plain"),
    )
    return next((form for word, form in words if word in lower), None)


@lru_cache(maxsize=512)
def model_of(name: str, weights_dtype: str) -> ModelGeometry:
    """Returns the geometry of a model as a table names it, stored as its dtype cell says.

    Without a dtype cell the form is the checkpoint's own, or what its name ends with.

    Raises:
        CannotJudge: no such shape is built in, or the dtype is none that is known.
    """
    plain = re.sub(r"\s+", "-", re.sub(r"\(.*?\)", " ", name).strip())
    if not plain:
        raise CannotJudge("model not stated")
    in_name = _FORM_IN_NAME.search(plain)
    base = _FORM_IN_NAME.sub("", plain)
    told = form_of(weights_dtype)
    if weights_dtype and told is None:
        raise CannotJudge(f"weights dtype {weights_dtype[:40]!r} is not known")
    form = told or (form_of(in_name.group(1)) if in_name else None)
    own = _find(plain) or _find(base)
    if own is None:
        own = next((found for ending in _ENDING.values() if (found := _find(base + ending))), None)
    if own is None:
        raise CannotJudge(f"the shape of {name[:80]!r} is not built in")
    if form is None and in_name is None and _FORM_IN_NAME.search(own.name):
        form = "plain"  # only a quantised sibling of the model named is built in
    return _stored(own, base, form)


def _find(name: str) -> ModelGeometry | None:
    """Returns the built-in geometry of exactly this name, organisation aside, or of its published twin."""
    short = name.rpartition("/")[2]
    stem = _WORDS.sub("", short)
    for candidate in dict.fromkeys((name, f"x/{short}", f"x/{stem}")):
        if "/" in candidate and (found := _try(candidate)) is not None:
            return found
    for pattern, twin in _SAME_SHAPE:
        if matched := re.fullmatch(pattern, stem, re.IGNORECASE):
            return _try(f"x/{matched.expand(twin)}")
    return None


def _try(name: str) -> ModelGeometry | None:
    try:
        return find_model(name)
    except HeadraceError:
        return None


def _stored(own: ModelGeometry, base: str, form: str | None) -> ModelGeometry:
    """Returns the geometry in the form asked for: its own, a built-in sibling's, or the same in every
    matrix.
    """
    quantisation = own.quantisation
    if form is None or _STORED_AS.get(form, "") == quantisation.weight_dtype:
        return own
    if form == "fp8" and quantisation.method == "mxfp4":
        return own  # gpt-oss is published in MXFP4 alone: "fp8" is the dtype of its activations
    if form == "plain":
        if quantisation.method is None:
            return own
        return replace(own, quantisation=Quantisation(source="the table says 16 bit"))
    if form in _GGUF:
        width = _GGUF[form]
        return replace(own, quantisation=_everywhere(form, form[:2], width))
    for name in (f"x/{base.rpartition('/')[2]}", f"x/{own.name.rpartition('/')[2]}"):
        stem = _FORM_IN_NAME.sub("", name)
        for ending in dict.fromkeys((_ENDING.get(form, ""), _ENDING.get(form, "").split("-INT4")[0])):
            found = _try(stem + ending) if ending else None
            if found is not None and found.quantisation.weight_dtype == _STORED_AS[form]:
                return found
    width = {"fp8": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.5195, "int8": 1.0}[form]
    return replace(own, quantisation=_everywhere(form, _STORED_AS[form], width, head=False))


def _everywhere(method: str, dtype: str, width: float, *, head: bool = True) -> Quantisation:
    parts = [Part.ATTENTION, Part.RECURRENT, Part.DENSE_FFN, Part.EXPERTS, Part.SHARED_EXPERTS]
    if head:
        parts += [Part.EMBEDDING, Part.HEAD]
    return Quantisation(
        method=method,
        weight_dtype=dtype,
        bytes_per_element=dict.fromkeys(parts, width),
        source="the table's dtype, in every matrix",
    )
