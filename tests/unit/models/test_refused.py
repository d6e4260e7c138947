"""Configs that are broken, unknown or hostile: an error that names the value and the way out, never a
guess."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import InputError, UsageError
from headrace.models.catalogue import geometry_from_document, resolve_model
from headrace.models.parse import geometry_from_config
from headrace.models.reading import MAX_CONFIG_BYTES

LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"model_type": "frobnicator"},
            "'frobnicator'.*not known.*Looked for one of.*copy of its config.json",
        ),
        ({"model_type": "qwen3_vll"}, "Did you mean 'qwen3_vl'"),
        ({"model_type": None}, "no model_type.*'llama'"),
        ({"hidden_size": None}, "hidden_size or n_embd or d_model"),
        ({"hidden_size": "wide"}, "'wide', an integer is needed"),
        ({"hidden_size": -3}, "-3, it must lie in 1…"),
        ({"hidden_size": 10**15}, "must lie in"),
        ({"num_hidden_layers": 10**6}, "1000000, it must lie in"),
        ({"num_hidden_layers": True}, "integer is needed"),
        ({"layer_types": ["full_attention"]}, "1 entries, num_hidden_layers is 4"),
        ({"layer_types": ["full_attention", "psychic", "x", "y"]}, "'psychic' is unknown.*known are"),
        ({"layer_types": ["full_attention"] * 20_000}, "20000 entries"),
        ({"num_local_experts": 4, "num_experts_per_tok": 9}, "9, it must lie in 1…4"),
        (
            {"hidden_size": 10**9, "intermediate_size": 10**9, "num_hidden_layers": 9000},
            "more than any model has",
        ),
    ],
)
def test_a_config_that_cannot_be_read(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=f"(?s){told}"):
        geometry_from_config({**LLAMA, **fields}, "test")


@pytest.mark.parametrize(
    "text", ["", "[]", "nonsense", "null", "1", '{"a": 1e', "[" * 100_000, '{"a":' * 40 + "1" + "}" * 40]
)
def test_a_file_that_is_no_config(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError):
        resolve_model(str(path))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as stream:
        stream.truncate(MAX_CONFIG_BYTES + 1)
    with pytest.raises(InputError, match="16 MiB"):
        resolve_model(str(path))


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json: not a file"):
        resolve_model(str(tmp_path))
    with pytest.raises(InputError, match="not a file"):
        resolve_model(str(tmp_path / "nowhere.json"))


def test_names_inside_a_config_are_never_paths(tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes(b"\xff" * 64)
    config = {
        **LLAMA,
        "_name_or_path": str(tmp_path / "secret.safetensors"),
        "auto_map": {"AutoConfig": "../../x.py"},
    }
    inner = tmp_path / "model"
    inner.mkdir()
    (inner / "config.json").write_text(json.dumps(config))
    model = resolve_model(str(inner))
    assert model.stored is None
    assert model.total_parameters > 0


def test_an_unknown_name_has_the_nearest_in_its_error() -> None:
    with pytest.raises(UsageError, match="fits"):
        resolve_model("qwen3.6-27")
    with pytest.raises(UsageError, match=r"Did you mean 'qwen3\.6-27b'"):
        resolve_model("Qwen/Qwen3.6-72B")


@pytest.mark.parametrize(
    "name", ["", "a" * 5000, "a\0b", "..", "/", "~no_such_user_here/x", "/etc/shadow/x.json", "é/ü"]
)
def test_a_name_that_no_model_has(name: str) -> None:
    with pytest.raises((UsageError, InputError)):
        resolve_model(name)


def test_an_ambiguous_name_lists_what_it_fits() -> None:
    with pytest.raises(
        UsageError, match=r"fits \d+ models: deepseek-ai/DeepSeek-V4-Flash, deepseek-ai/DeepSeek-V4-Pro"
    ):
        resolve_model("deepseek-v4")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(
    [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "layer_types",
        "sliding_window",
        "num_experts",
        "num_experts_per_tok",
        "moe_layer_freq",
        "kv_lora_rank",
        "linear_attn_config",
        "quantization_config",
        "text_config",
        "vision_config",
        "block_configs",
        "tie_word_embeddings",
        "torch_dtype",
        "architectures",
        "compress_ratios",
        "mlp_only_layers",
    ]
)
types = st.sampled_from(
    [
        "llama",
        "gemma3",
        "deepseek_v3",
        "qwen3_next",
        "kimi_linear",
        "nemotron_h",
        "falcon_h1",
        "deepseek_v4",
        "gpt_oss",
    ]
)


@settings(max_examples=40)
@given(types, st.dictionaries(keys, values, max_size=5))
def test_any_config_gives_a_geometry_or_an_input_error(model_type: str, fields: dict[str, Any]) -> None:
    try:
        model = geometry_from_document({**LLAMA, "model_type": model_type, **fields}, "fuzzed")
    except InputError:
        return
    assert model.total_parameters >= 0
    assert model.weight_bytes().value >= 0
    model.kv_bytes_per_token()
    model.state_bytes_per_request()
    model.flops_per_token(100)
