"""Geometry from small configs, worked by hand: one per way of building layers."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.models.geometry import ModelGeometry
from headrace.models.layers import Attention, Experts, LatentAttention, LayerKind
from headrace.models.parse import geometry_from_config

BASE = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
GDN = {
    "linear_num_value_heads": 16,
    "linear_num_key_heads": 8,
    "linear_value_head_dim": 64,
    "linear_key_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
MAMBA2 = {
    "mamba_n_heads": 32,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 2,
    "mamba_d_conv": 4,
}
MLA = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}


def parse(model_type: str, **fields: Any) -> ModelGeometry:
    return geometry_from_config({"model_type": model_type, **BASE, **fields}, "test")


def kinds(model: ModelGeometry) -> list[LayerKind]:
    return [layer.kind for layer in model.layers]


def test_dense_parameters_by_hand() -> None:
    # embedding and head 2·1000·1024; a layer 4·1024² + 3·1024·4096 + 2·1024; final norm 1024
    model = parse("llama")
    assert model.total_parameters == 2 * 1_024_000 + 4 * (4 * 1024**2 + 3 * 1024 * 4096 + 2 * 1024) + 1024
    assert model.active_parameters == model.total_parameters


@pytest.mark.parametrize(("kv_heads", "elements"), [(8, 8), (2, 2), (1, 1)])
def test_many_few_and_one_kv_head(kv_heads: int, elements: int) -> None:
    model = parse("llama", num_key_value_heads=kv_heads)
    assert model.kv_bytes_per_token().value == elements * 2 * 128 * 4 * 2


def test_kv_heads_are_copied_where_ranks_outnumber_them() -> None:
    model = parse("llama", num_key_value_heads=2)
    assert [model.kv_bytes_per_token(2.0, tp).value for tp in (1, 2, 4, 8)] == [4096, 2048, 2048, 2048]


def test_a_pipeline_stage_has_its_own_layers_only() -> None:
    model = parse("llama", num_key_value_heads=2)
    assert model.kv_bytes_per_token(layers=slice(0, 1)).value == model.kv_bytes_per_token().value / 4


def test_tied_embeddings_are_read_as_the_head() -> None:
    model = parse("llama", tie_word_embeddings=True)
    assert model.weight_bytes_read_per_step().value == model.weight_bytes().value
    untied = parse("llama")
    assert untied.weight_bytes_read_per_step().value == untied.weight_bytes().value - 2 * 1_024_000


def test_sliding_windows() -> None:
    assert kinds(parse("mistral", sliding_window=256)) == [LayerKind.SLIDING] * 4
    assert kinds(parse("mistral", sliding_window=None)) == [LayerKind.FULL] * 4
    assert kinds(parse("qwen2", sliding_window=256, use_sliding_window=False)) == [LayerKind.FULL] * 4
    alternating = parse("gemma2", sliding_window=256)
    assert kinds(alternating) == [LayerKind.SLIDING, LayerKind.FULL] * 2
    assert alternating.window_tokens == 256
    half = alternating.kv_bytes_per_token(windowed=True).value
    assert half == alternating.kv_bytes_per_token(windowed=False).value
    assert alternating.kv_bytes_per_token().value == 2 * half


def test_flops_look_back_no_further_than_the_window() -> None:
    model = parse("mistral", sliding_window=256)
    assert (
        model.flops_per_token(10_000).value
        == model.flops_per_token(256).value
        > model.flops_per_token(0).value
    )


def test_windowed_layers_may_have_another_shape() -> None:
    model = parse(
        "mimo_v2_flash",
        sliding_window=128,
        hybrid_layer_pattern=[0, 1, 1, 1],
        head_dim=192,
        v_head_dim=128,
        num_key_value_heads=2,
        swa_num_key_value_heads=4,
    )
    assert model.kv_bytes_per_token(windowed=False).value == 2 * (192 + 128) * 1 * 2
    assert model.kv_bytes_per_token(windowed=True).value == 4 * (192 + 128) * 3 * 2


def test_latent_attention() -> None:
    model = parse("deepseek_v3", num_nextn_predict_layers=0, **MLA)
    assert kinds(model) == [LayerKind.LATENT] * 4
    assert model.is_latent
    # one latent of 512 + 64 for all heads, the same on every rank
    assert model.kv_bytes_per_token(2.0, tp=4).value == model.kv_bytes_per_token().value == 576 * 4 * 2
    attention = model.layers[0].attention
    assert isinstance(attention, LatentAttention)
    # q 1024·1536 + 1536·8·192, kv 1024·576 + 512·8·256, out 8·128·1024
    assert attention.matrix_parameters(1024) == 1_572_864 + 2_359_296 + 589_824 + 1_048_576 + 1_048_576


def test_experts_by_layer_and_by_token() -> None:
    model = parse(
        "deepseek_v3",
        n_routed_experts=16,
        num_experts_per_tok=2,
        moe_intermediate_size=256,
        n_shared_experts=1,
        first_k_dense_replace=1,
        **MLA,
    )
    assert [isinstance(layer.ffn, Experts) for layer in model.layers] == [False, True, True, True]
    one = 3 * 1024 * 256
    assert model.total_parameters - model.active_parameters == 3 * 14 * one
    # a step over one token reads 2 of 16; over very many, all
    few, many = model.weight_bytes_read_per_step(1).value, model.weight_bytes_read_per_step(10_000).value
    assert many - few == pytest.approx(3 * 14 * one * 2)
    # two tokens: 16·(1 − (14/16)²) = 3.75 experts
    two = model.weight_bytes_read_per_step(2).value
    assert two - few == pytest.approx(3 * 1.75 * one * 2)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"decoder_sparse_step": 2}, [False, True, False, True]),
        ({"mlp_only_layers": [0, 1]}, [False, False, True, True]),
        ({"moe_layer_freq": [0, 0, 0, 1]}, [False, False, False, True]),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, [False, True, False, True]),
        ({"interleave_moe_layer_step": 2}, [False, True, False, True]),
    ],
)
def test_every_way_to_say_which_layers_have_experts(fields: dict[str, Any], expected: list[bool]) -> None:
    model = parse("qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256, **fields)
    assert [isinstance(layer.ffn, Experts) for layer in model.layers] == expected


def test_gated_delta_net_by_interval_and_by_list() -> None:
    by_interval = parse("qwen3_next", full_attention_interval=2, **GDN)
    assert kinds(by_interval) == [LayerKind.GATED_DELTA, LayerKind.FULL] * 2
    listed = ["linear_attention", "full_attention"] * 2
    assert parse("qwen3_next", layer_types=listed, **GDN).layers == by_interval.layers
    # conv (16·64 + 2·8·32)·3 at 2 bytes, state 16·64·32 at 4 bytes, 2 layers
    assert by_interval.state_bytes_per_request(4.0).value == 2 * (1536 * 3 * 2 + 16 * 64 * 32 * 4)


def test_mamba2_beside_attention() -> None:
    model = parse("falcon_h1", **MAMBA2)
    assert model.layers_by_kind == {LayerKind.MAMBA2: 4, LayerKind.FULL: 4}
    # conv (32·64 + 2·2·128)·3 at 2 bytes, state 32·64·128 at 4 bytes
    assert model.state_bytes_per_request(4.0).value == 4 * (2560 * 3 * 2 + 32 * 64 * 128 * 4)
    assert model.kv_bytes_per_token().value == 8 * 2 * 128 * 4 * 2


def test_too_few_groups_for_the_ranks_are_copied() -> None:
    model = parse("falcon_h1", **MAMBA2)
    # 2 groups over 8 ranks become 8: (2048 + 2·8·128) ÷ 8 channels on each
    assert model.state_elements_per_request(tp=8) == (4 * 4 * 64 * 128, 4 * 512 * 3)


def test_one_part_per_layer() -> None:
    model = parse(
        "nemotron_h",
        hybrid_override_pattern="ME*-",
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=256,
        moe_shared_expert_intermediate_size=512,
        ssm_state_size=128,
        n_groups=2,
        mamba_num_heads=32,
        mamba_head_dim=64,
        conv_kernel=4,
    )
    assert kinds(model) == [LayerKind.MAMBA2, LayerKind.NONE, LayerKind.FULL, LayerKind.NONE]
    assert model.layers[0].ffn is None
    assert model.layers[3].ffn is not None
    assert not model.layers[3].ffn.gated  # relu², two matrices
    assert model.kv_bytes_per_token().value == 8 * 2 * 128 * 2


def test_mamba1_in_one_layer_of_eight() -> None:
    model = parse("jamba", num_hidden_layers=8, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2)
    assert kinds(model).count(LayerKind.FULL) == 1
    assert kinds(model)[4] is LayerKind.FULL
    # inner 2048: conv 2048·3 at 2 bytes, state 2048·16 at 4 bytes, 7 layers
    assert model.state_bytes_per_request(4.0).value == 7 * (2048 * 3 * 2 + 2048 * 16 * 4)


def test_kimi_delta_and_latent_layers_counted_from_one() -> None:
    config = {"full_attn_layers": [4], "kda_layers": [1, 2, 3], "num_heads": 8, "head_dim": 64}
    model = parse("kimi_linear", linear_attn_config={**config, "short_conv_kernel_size": 4}, **MLA)
    assert kinds(model) == [LayerKind.KIMI_DELTA] * 3 + [LayerKind.LATENT]
    assert model.state_bytes_per_request(4.0).value == 3 * (3 * 512 * 3 * 2 + 8 * 64 * 64 * 4)


def test_lightning_attention_has_no_convolution() -> None:
    model = parse(
        "minimax", head_dim=128, attn_type_list=[0, 0, 0, 1], num_local_experts=2, num_experts_per_tok=1
    )
    assert kinds(model) == [LayerKind.LIGHTNING] * 3 + [LayerKind.FULL]
    assert model.state_elements_per_request() == (3 * 8 * 128 * 128, 0)


def test_a_multimodal_wrapper() -> None:
    inner = {"model_type": "qwen3_vl_text", **BASE}
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "out_hidden_size": 1024,
    }
    config = {"model_type": "qwen3_vl", "text_config": inner, "vision_config": vision}
    model = geometry_from_config(config, "test")
    assert model.is_multimodal
    assert model.vision is not None
    assert model.vision.layers == 2
    assert model.weight_bytes(vision=False).value == 2 * model.text_parameters
    without = geometry_from_config({"model_type": "qwen3_vl", "text_config": inner}, "test")
    assert without.is_multimodal
    assert without.vision is None
    assert "vision tower" in without.caveats[0]


def test_mtp_layers_are_in_the_checkpoint_and_not_served() -> None:
    without = parse("qwen3_next", mtp_num_hidden_layers=0, **GDN)
    model = parse("qwen3_next", mtp_num_hidden_layers=2, **GDN)
    assert model.mtp_layers == 2
    assert model.weight_bytes().value == without.weight_bytes().value
    assert model.weight_bytes(mtp=True).value == model.weight_bytes().value + 2 * model.mtp_parameters


def test_both_wrapped_forms() -> None:
    config = {"model_type": "llama", **BASE}
    wrapped = geometry_from_config({"model_id": "me/mine", "source": "a page", "config": config})
    assert (wrapped.name, wrapped.source) == ("me/mine", "a page")
    assert geometry_from_config({"LlamaConfig": config}, "x").layers == wrapped.layers


def test_a_searched_architecture_has_its_own_width_per_block() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 1.5}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 3.0}},
        {"attention": {"n_heads_in_group": 8}, "ffn": {"no_op": True}},
        {"attention": {"no_op": True}, "ffn": {"no_op": True}},
    ]
    model = parse("nemotron-nas", intermediate_size=None, block_configs=blocks)
    assert kinds(model) == [LayerKind.FULL, LayerKind.NONE, LayerKind.FULL, LayerKind.NONE]
    first, last = model.layers[0].attention, model.layers[2].attention
    assert isinstance(first, Attention)
    assert isinstance(last, Attention)
    assert (first.kv_heads, last.kv_heads) == (2, 1)
    assert [layer.ffn.intermediate if layer.ffn else 0 for layer in model.layers] == [1024, 2048, 0, 0]
