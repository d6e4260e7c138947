"""Qwen3.6-27B by hand: 64 layers, 48 of them gated delta nets and 16 full attention, one MTP layer, a ViT.

hidden 5120, FFN 17408, 24 query and 4 kv heads of 256, gate on the query projection; delta net 48 value and
16 key heads of 128, convolution 4; vocabulary 248,320, untied. The checkpoint's published size is
55,562,855,904 bytes in bf16 and a few float32 vectors: 27,781,427,952 parameters.
"""

from __future__ import annotations

import pytest

from headrace.models.catalogue import resolve_model
from headrace.models.geometry import ModelGeometry
from headrace.models.layers import LayerKind

MIB = 2**20


@pytest.fixture(scope="module")
def model() -> ModelGeometry:
    return resolve_model("qwen3.6-27b")


def test_parameters_are_those_of_the_checkpoint(model: ModelGeometry) -> None:
    assert model.total_parameters == 27_781_427_952
    assert model.text_parameters == pytest.approx(26.896e9, rel=1e-4)
    assert model.vision is not None
    assert model.vision.parameters == 460_730_096  # 27 blocks of 15,239,504, patches, positions, merger
    # one full-attention layer, [embedding; hidden] → hidden, norms:
    # 5120·(24·256·2 + 2·4·256) + 24·256·5120 + 3·5120·17408 + 2·5120² + 2·256 + 5·5120
    assert model.mtp_parameters == 424_699_392


def test_layers_by_kind(model: ModelGeometry) -> None:
    assert model.layers_by_kind == {LayerKind.GATED_DELTA: 48, LayerKind.FULL: 16}
    assert [layer.kind for layer in model.layers[:4]] == [LayerKind.GATED_DELTA] * 3 + [LayerKind.FULL]
    assert model.is_hybrid
    assert model.is_multimodal


def test_kv_bytes_per_token(model: ModelGeometry) -> None:
    assert model.kv_bytes_per_token().value == 4 * (256 + 256) * 16 * 2 == 65_536
    assert model.kv_bytes_per_token(1.0).value == 32_768  # fp8
    assert model.kv_bytes_per_token(2.0, tp=2).value == 32_768
    assert model.kv_bytes_per_token(2.0, tp=8).value == 16_384  # 4 heads over 8 ranks: one each, copied


def test_state_bytes_per_request(model: ModelGeometry) -> None:
    conv = (48 * 128 + 2 * 16 * 128) * 3 * 2  # 61,440
    assert model.state_bytes_per_request(4.0).value == 48 * (conv + 48 * 128 * 128 * 4)
    assert model.state_bytes_per_request(4.0).value / MIB == pytest.approx(146.8, abs=0.05)
    assert model.state_bytes_per_request(2.0).value / MIB == pytest.approx(74.8, abs=0.05)
    assert model.state_bytes_per_request(4.0, tp=2).value == model.state_bytes_per_request(4.0).value / 2
    assert model.state_dtype == "float32"


def test_weight_bytes_served_and_read(model: ModelGeometry) -> None:
    assert model.weight_bytes().value == pytest.approx(54.7e9, rel=1e-3)
    assert model.weight_bytes(mtp=True).value == 55_562_855_904
    assert model.weight_bytes(vision=False).value == 2 * model.text_parameters
    assert model.weight_bytes_read_per_step().value == pytest.approx(51.2e9, rel=2e-3)
    assert model.weight_bytes_read_per_step(64).value == model.weight_bytes_read_per_step(1).value  # dense


def test_two_ranks_hold_all_weights_and_copies_of_norms(model: ModelGeometry) -> None:
    both = 2 * model.weight_bytes(tp=2).value
    assert both == pytest.approx(model.weight_bytes().value, rel=1e-3)
    assert both > model.weight_bytes().value


def test_flops_per_token(model: ModelGeometry) -> None:
    # twice the matrices (text less embedding and vectors), and 16 layers looking back at 24 heads × 512 × 2
    at_nothing = model.flops_per_token(0).value
    assert at_nothing == pytest.approx(2 * (26.896e9 - 248_320 * 5120), rel=0.01)
    assert model.flops_per_token(1000).value - at_nothing == 16 * 2 * 24 * 512 * 1000


def test_every_answer_says_where_it_comes_from(model: ModelGeometry) -> None:
    for quantity in (model.kv_bytes_per_token(), model.state_bytes_per_request(), model.weight_bytes()):
        assert quantity.inputs
        assert quantity.source
