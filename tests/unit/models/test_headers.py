"""Exact bytes from safetensors headers, and files that lie about themselves."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InputError
from headrace.models.catalogue import resolve_model
from headrace.models.headers import read_header, stored_bytes

CONFIG = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 32,
}


def write(
    path: Path, tensors: dict[str, tuple[str, list[int], int]], *, extra: dict[str, Any] | None = None
) -> None:
    """Writes a safetensors file: the 8-byte length, the header, zeros."""
    header: dict[str, Any] = dict(extra or {})
    at = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"\0" * at)


def test_bytes_of_the_parts(tmp_path: Path) -> None:
    write(
        tmp_path / "model-00001-of-00002.safetensors",
        {
            "model.layers.0.mlp.up_proj.weight": ("BF16", [16, 8], 256),
            "model.visual.blocks.0.w": ("F32", [4], 16),
        },
        extra={"__metadata__": {"format": "pt"}},
    )
    write(
        tmp_path / "model-00002-of-00002.safetensors",
        {
            "mtp.fc.weight": ("BF16", [8, 8], 128),
            "model.layers.2.w": ("F8_E4M3", [7], 7),
            "x": ("F4", [6], 3),
        },
    )
    stored = stored_bytes(sorted(tmp_path.glob("*.safetensors")), text_layers=2)
    assert (stored.total, stored.vision, stored.mtp) == (410, 16, 135)
    assert (stored.tensors, stored.files) == (5, 2)


def test_a_folder_with_files_is_served_at_their_exact_size(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write(tmp_path / "model.safetensors", {"w": ("F32", [1000], 4000), "mtp.w": ("F32", [10], 40)})
    model = resolve_model(str(tmp_path))
    assert model.weight_bytes().value == 4000
    assert model.weight_bytes(mtp=True).value == 4040
    assert (
        model.weight_bytes(dtype_bytes=1.0).value == model.total_parameters
    )  # asked for another form: by count
    assert model.weight_bytes().inputs["headers"].origin == "measured"
    assert 2000 < model.weight_bytes(tp=2).value < 2200  # norms are copied


def test_the_same_header_as_the_safetensors_library_reads(tmp_path: Path) -> None:
    safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    import numpy as np

    tensors = {"a": np.zeros((3, 5), np.float16), "b": np.zeros(7, np.int32)}
    safetensors_numpy.save_file(tensors, tmp_path / "x.safetensors")
    assert read_header(tmp_path / "x.safetensors") == {"a": 3 * 5 * 2, "b": 7 * 4}


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "at least 8"),
        (b"\x08\0\0", "at least 8"),
        (struct.pack("<Q", 2**63) + b"{}", "cut short"),
        (struct.pack("<Q", 100) + b"{}", "cut short"),
        (struct.pack("<Q", 2) + b"[]", "object is needed"),
        (struct.pack("<Q", 4) + b"nope", "not JSON"),
        (struct.pack("<Q", 9) + b'{"a": {}}', "malformed"),
        (b"version https://git-lfs.github.com/spec/v1\n", "cut short"),
    ],
)
def test_what_is_no_safetensors_file(tmp_path: Path, raw: bytes, told: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw)
    with pytest.raises(InputError, match=told):
        read_header(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "BF16", "shape": [4], "data_offsets": [0, 9000]},  # beyond the file
        {"dtype": "BF16", "shape": [4], "data_offsets": [-8, 0]},
        {"dtype": "BF16", "shape": [10**30], "data_offsets": [0, 8]},
        {"dtype": "BF16", "shape": [5], "data_offsets": [0, 8]},  # disagrees with its shape
        {"dtype": "X99", "shape": [4], "data_offsets": [0, 8]},
        {"dtype": "BF16", "shape": "four", "data_offsets": [0, 8]},
        {"dtype": "BF16", "shape": [4], "data_offsets": None},
    ],
)
def test_an_entry_that_does_not_fit(tmp_path: Path, entry: dict[str, Any]) -> None:
    raw = json.dumps({"w": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"\0" * 8)
    with pytest.raises(InputError, match="'w'"):
        read_header(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_an_input_error(raw: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".safetensors") as stream:
        stream.write(raw)
        stream.flush()
        try:
            read_header(Path(stream.name))
        except InputError:
            return
