"""Every collected config parses; the built-in geometries agree with them and with their own rows."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from headrace.models.catalogue import built_in, find_model, geometry_from_document, model_ids
from headrace.models.layers import LayerKind
from headrace.models.parse import geometry_from_config


@pytest.mark.parametrize("model_id", model_ids())
def test_every_built_in_model_has_sane_numbers(model_id: str) -> None:
    model = built_in(model_id)
    assert model.vocabulary > 0
    assert model.context_tokens
    assert 0 < model.active_parameters <= model.text_parameters <= model.total_parameters
    assert 0 < model.weight_bytes_read_per_step().value <= model.weight_bytes().value
    assert model.weight_bytes_read_per_step(10**6).value <= model.weight_bytes().value
    assert model.kv_bytes_per_token().value > 0
    assert (model.state_bytes_per_request().value > 0) == model.is_hybrid
    assert model.flops_per_token(1000).value > model.flops_per_token(0).value > 0
    assert sum(model.layers_by_kind.values()) >= len(model.layers)
    for tp in (2, 4, 8):
        assert model.weight_bytes(tp).value >= model.weight_bytes().value / tp


@pytest.mark.parametrize("model_id", model_ids())
def test_a_built_in_model_is_found_by_its_names(model_id: str) -> None:
    assert find_model(model_id).name == model_id
    assert find_model(model_id.upper()).name == model_id
    assert find_model(model_id.partition("/")[2].lower()).name == model_id


def test_every_collected_config_parses(shared: Path) -> None:
    paths = sorted((shared / "data" / "configs").glob("*.json"))
    assert len(paths) >= 117
    for path in paths:
        document = json.loads(path.read_text())
        model = geometry_from_document(document)
        assert model.name == document["model_id"]
        assert model.total_parameters > 10**8, path.name
        assert model.kv_bytes_per_token().value or LayerKind.FULL not in model.layers_by_kind, path.name


def test_a_collected_config_has_the_shape_of_its_built_in_row(shared: Path) -> None:
    for path in sorted((shared / "data" / "configs").glob("*.json")):
        document = json.loads(path.read_text())
        if document["model_id"] in model_ids():
            ours, theirs = built_in(document["model_id"]), geometry_from_document(document)
            # one copy rounds gemma-3-4b's vocabulary down by 64 rows
            assert theirs.total_parameters == pytest.approx(ours.total_parameters, rel=1e-4), path.name
            assert theirs.layers == ours.layers, path.name
            assert theirs.weight_bytes().value == pytest.approx(ours.weight_bytes().value, rel=1e-4), (
                path.name
            )


def test_fields_taken_from_the_built_in_row_are_named() -> None:
    cut = {
        "model_id": "openai/gpt-oss-20b",
        "source": "a copy",
        "config": {"model_type": "gpt_oss", "hidden_size": 2880},
    }
    model = geometry_from_document(cut)
    assert model.total_parameters == 20_914_757_184
    assert "num_hidden_layers" in model.caveats[-1]


def test_an_estimate_takes_no_time() -> None:
    model = built_in("deepseek-ai/DeepSeek-V3")
    config = {"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 80}
    config |= {"num_attention_heads": 8, "vocab_size": 9}
    begin = time.perf_counter()
    for _ in range(10):
        model.kv_bytes_per_token()
        model.state_bytes_per_request()
        model.weight_bytes(8)
        model.weight_bytes_read_per_step(64, 8)
        model.flops_per_token(1000)
        geometry_from_config(config, "small")
    assert (time.perf_counter() - begin) / 10 < 0.010
