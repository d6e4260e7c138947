"""Exact bytes of a checkpoint, from the headers of its safetensors files.

A safetensors file begins with 8 bytes, the header's length, little endian, and then the header: a JSON
object of {name: {"dtype", "shape", "data_offsets": [begin, end]}}. Only headers are read; the tensors are
never touched.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import InputError
from headrace.models.reading import parse_json

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_FILES = 10_000
_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I8": 8,
    "U8": 8, "BOOL": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
_VISION = ("visual", "vision_tower", "vision_model", "mm_projector", "multi_modal_projector", "embed_vision")


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """What a checkpoint's headers add up to, in bytes of tensors."""

    total: int
    vision: int  # of them in the vision tower and its projector
    mtp: int  # of them in multi-token-prediction layers
    tensors: int
    files: int


def stored_bytes(paths: Iterable[Path], *, text_layers: int | None = None) -> StoredBytes:
    """Returns the bytes that the safetensors files hold.

    Args:
        paths: the files of one checkpoint.
        text_layers: layers of the language model; tensors of layers beyond are MTP (DeepSeek and GLM store
        them so).

    Raises InputError for a file that is not safetensors, or whose header does not fit its size.
    """
    known = list(paths)
    if len(known) > MAX_FILES:
        raise InputError(
            f"{known[0].parent}: {len(known)} safetensors files, at most {MAX_FILES} make a checkpoint"
        )
    return add_up([read_header(path) for path in known], text_layers=text_layers)


def add_up(headers: Sequence[Mapping[str, int]], *, text_layers: int | None = None) -> StoredBytes:
    """Returns the sums over {tensor name: bytes} of each file of one checkpoint."""
    total = vision = mtp = tensors = 0
    for header in headers:
        for name, size in header.items():
            tensors += 1
            total += size
            if name.startswith("mtp.") or ".mtp." in name or _beyond(name, text_layers):
                mtp += size
            elif any(word in name for word in _VISION):
                vision += size
    return StoredBytes(total, vision, mtp, tensors, len(headers))


def read_header(path: Path) -> Mapping[str, int]:
    """Returns {tensor name: bytes} of one safetensors file. Raises InputError where it is not one."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            raw = stream.read(8)
            if len(raw) < 8:
                raise InputError(
                    f"{path}: {len(raw)} bytes, a safetensors file has at least 8; fetch it again"
                )
            length = struct.unpack("<Q", raw)[0]
            if length > min(MAX_HEADER_BYTES, size - 8):
                raise InputError(
                    f"{path}: says its header has {length} bytes, the file has {size} and the format allows "
                    f"{MAX_HEADER_BYTES}; it is cut short or no safetensors file, fetch it again"
                )
            header = parse_json(stream.read(length), f"{path} header")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; check the path and its permissions"
        ) from error
    return sizes(header, size - 8 - length, str(path))


def sizes(header: Mapping[str, Any], data_bytes: int, name: str) -> Mapping[str, int]:
    """Returns {tensor name: bytes} of a parsed header; `data_bytes` is the room its tensors have in the file.

    Raises InputError where an entry is malformed, disagrees with its shape, or reaches beyond the file.
    """
    found: dict[str, int] = {}
    for tensor, entry in header.items():
        if tensor == "__metadata__":
            continue
        try:
            begin, end = entry["data_offsets"]
            bits = _BITS[entry["dtype"]]
            elements = 1
            for extent in entry["shape"]:
                elements *= extent
            right = 0 <= begin <= end <= data_bytes and (elements * bits + 7) // 8 == end - begin
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{name}: tensor {tensor[:80]!r} has a malformed entry; fetch the file again"
            ) from error
        if not right:
            raise InputError(
                f"{name}: tensor {tensor[:80]!r} lies at {begin}…{end} of {data_bytes} bytes with shape "
                f"{str(entry['shape'])[:80]}; that does not fit, fetch the file again"
            )
        found[tensor] = end - begin
    return found


def _beyond(name: str, text_layers: int | None) -> bool:
    """Returns whether the tensor belongs to a layer after the language model's last."""
    if text_layers is None:
        return False
    _, found, rest = name.partition("layers.")
    number = rest.split(".", 1)[0]
    is_text = found and not any(word in name for word in _VISION)
    return bool(is_text) and number.isascii() and number.isdigit() and int(number[:9]) >= text_layers
