"""Stored forms: bytes per element by method, and what the exclusion lists leave plain."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.models.catalogue import built_in, resolve_model
from headrace.models.exclusions import excluded
from headrace.models.geometry import ModelGeometry
from headrace.models.parse import geometry_from_config
from headrace.models.quantisation import Part

MODEL = {
    "model_type": "qwen3_moe",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "vocab_size": 1000,
    "dtype": "bfloat16",
}


def parse(settings: dict[str, Any]) -> ModelGeometry:
    return geometry_from_config({**MODEL, "quantization_config": settings}, "test")


# bits of the element, and of the scales that come with it
@pytest.mark.parametrize(
    ("settings", "method", "width"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1 + 4 / 128**2),
        ({"quant_method": "fp8"}, "fp8", 1.0),
        ({"quant_algo": "FP8", "quant_method": "modelopt"}, "fp8", 1.0),
        ({"quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4", 0.5 + 1 / 16),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq", 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, "gptq", 1.0 + 3 / 32),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 1.0),
        ({"quant_method": "w8a8_int8"}, "int8", 1.0),
    ],
)
def test_bytes_per_element(settings: dict[str, Any], method: str, width: float) -> None:
    quantisation = parse(settings).quantisation
    assert quantisation.method == method
    assert quantisation.bytes_of(Part.EXPERTS) == pytest.approx(width)
    assert quantisation.bytes_of(Part.ATTENTION) == pytest.approx(width)
    for plain in (Part.EMBEDDING, Part.HEAD, Part.ROUTER, Part.NORMS):
        assert quantisation.bytes_of(plain) == 2.0


@pytest.mark.parametrize(
    ("weights", "layout", "method", "width"),
    [
        ({"num_bits": 4, "type": "int", "group_size": 32}, "pack-quantized", "int4", 0.5 + 2 / 32),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, "float-quantized", "fp8", 1.0),
        ({"num_bits": 4, "type": "float", "group_size": 16}, "nvfp4-pack-quantized", "nvfp4", 0.5625),
        ({"num_bits": 4, "type": "float", "group_size": 32}, "mxfp4-pack-quantized", "mxfp4", 0.53125),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, "int-quantized", "int8", 1.0),
    ],
)
def test_compressed_tensors(weights: dict[str, Any], layout: str, method: str, width: float) -> None:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    settings = {"quant_method": "compressed-tensors", "format": layout, "config_groups": groups}
    quantisation = parse(settings).quantisation
    assert quantisation.method == method
    assert quantisation.bytes_of(Part.EXPERTS) == pytest.approx(width)


def test_mxfp4_quantises_experts_only() -> None:
    quantisation = parse({"quant_method": "mxfp4"}).quantisation
    assert quantisation.bytes_of(Part.EXPERTS) == 0.53125
    assert quantisation.bytes_of(Part.ATTENTION) == 2.0


def test_an_exclusion_of_half_the_layers_gives_the_mean() -> None:
    settings = {
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "model.layers.0.self_attn*", "model.layers.1.self_attn*"],
    }
    quantisation = parse(settings).quantisation
    assert quantisation.bytes_of(Part.ATTENTION) == pytest.approx((2.0 + 0.5625) / 2)
    assert quantisation.bytes_of(Part.EXPERTS) == 0.5625


def test_mixed_precision_by_module() -> None:
    layers = {
        f"model.layers.{i}.mlp.experts.{e}.up_proj": {"quant_algo": "NVFP4"}
        for i in range(4)
        for e in range(8)
    }
    layers |= {f"model.layers.{i}.self_attn.q_proj": {"quant_algo": "FP8"} for i in range(4)}
    quantisation = parse({"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}).quantisation
    assert quantisation.bytes_of(Part.EXPERTS) == 0.5625
    assert quantisation.bytes_of(Part.ATTENTION) == 1.0


@pytest.mark.parametrize(
    "scheme",
    [
        {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        {"kv_cache_quant_algo": "FP8"},
        {"kv_cache_scheme": "FP8"},
    ],
)
def test_the_kv_dtype_that_a_checkpoint_asks_for(scheme: dict[str, Any]) -> None:
    assert parse({"quant_algo": "FP8", **scheme}).quantisation.kv_dtype == "fp8"
    assert parse({"quant_algo": "FP8"}).quantisation.kv_dtype is None


def test_an_unknown_method_is_said_and_not_guessed() -> None:
    model = parse({"quant_method": "magic_3bit"})
    assert model.quantisation.method is None
    assert "magic-3bit" in model.caveats[0]
    assert model.weight_bytes().value == 2 * model.total_parameters


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("lm_head", {"lm_head"}),
        ("model.layers.3.self_attn", {"model.layers.3.self_attn.q_proj"}),
        ("model.language_model.layers.3.self_attn*", {"model.layers.3.self_attn.q_proj"}),
        ("backbone.layers.3.mixer.q_proj", {"model.layers.3.self_attn.q_proj"}),
        ("re:.*self_attn.*", {"model.layers.3.self_attn.q_proj", "model.layers.30.self_attn.q_proj"}),
        ("re:.*mlp\\.(gate|up|gate_up|down)_proj.*", {"model.layers.3.mlp.up_proj"}),
        ("*.mlp.shared_expert.*", {"model.layers.3.mlp.shared_experts.up_proj"}),
    ],
)
def test_exclusion_patterns(pattern: str, names: set[str]) -> None:
    every = {
        "lm_head",
        "model.layers.3.self_attn.q_proj",
        "model.layers.30.self_attn.q_proj",
        "model.layers.3.mlp.up_proj",
        "model.layers.3.mlp.experts.0.up_proj",
        "model.layers.3.mlp.shared_experts.up_proj",
    }
    assert {name for name in every if excluded(name, [pattern])} == names


@pytest.mark.parametrize(
    "pattern", ["re:(a+)+$", "re:(x*)*y", "re:[", "re:" + "a*" * 60, "*" * 300, "re:.*.*.*.*z"]
)
def test_a_hostile_pattern_is_left_unread(pattern: str) -> None:
    assert not excluded("model.layers.0.mlp." + "a" * 60, [pattern])


def test_a_name_may_announce_the_stored_form() -> None:
    plain, stored = resolve_model("Qwen/Qwen3.6-27B"), resolve_model("Qwen/Qwen3.6-27B-FP8")
    assert stored.layers == plain.layers
    assert stored.quantisation.method == "fp8"
    assert stored.weight_bytes().value < 0.6 * plain.weight_bytes().value
    assert "as the name says" in stored.caveats[-1]


def test_built_in_exclusions_are_kept() -> None:
    # Kimi K2.5: int4 routed experts, everything else bf16 (its quantization_config's ignore list)
    widths = built_in("moonshotai/Kimi-K2.5").quantisation.bytes_per_element
    assert set(widths) == {Part.EXPERTS}
    # DeepSeek V3.1 NVFP4 leaves q and kv projections of the attention in bf16, o_proj is NVFP4
    attention = built_in("nvidia/DeepSeek-V3.1-NVFP4").quantisation.bytes_of(Part.ATTENTION)
    assert 0.5625 < attention < 2.0
