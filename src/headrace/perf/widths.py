"""Bytes per element and the dtype of multiplication, by part of the model."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.hardware.device import Device
from headrace.models.geometry import ModelGeometry
from headrace.models.quantisation import Part

# Bytes per element, scales included: NVFP4 one fp8 scale per 16, MXFP4 one exponent byte per 32, int4 a
# 16-bit scale and a zero point per 128.
_WIDTHS = {
    "bf16": 2.0,
    "fp32": 4.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "int4": 0.5 + 2.5 / 128,
}
_NAMES = {
    "bfloat16": "bf16",
    "float16": "bf16",
    "fp16": "bf16",
    "half": "bf16",
    "auto": "",
    "float32": "fp32",
    "fp4": "nvfp4",
    "w4a16": "int4",
    "awq": "int4",
    "gptq": "int4",
    "w8a8": "int8",
    "float8": "fp8",
}
_QUANTISED = (Part.ATTENTION, Part.RECURRENT, Part.DENSE_FFN, Part.EXPERTS, Part.SHARED_EXPERTS)


def dtype_named(text: str | None) -> str | None:
    """Returns the short name of a weights' dtype ("bf16", "fp8", "nvfp4" …), None for one not known."""
    word = (text or "").lower().replace("-", "").replace("_", "").replace(" ", "")
    if word in _WIDTHS:
        return word
    for known in sorted((*_NAMES, *_WIDTHS), key=len, reverse=True):
        if known and word.startswith(known):
            return _NAMES.get(known, known) or None
    return None


@dataclass(frozen=True)
class Widths:
    """How the served weights are stored, part by part, and what multiplies them on this device."""

    model: ModelGeometry
    device: Device
    weights_dtype: str | None = None

    def dtype(self, part: Part) -> str:
        """Returns the dtype of a part's weights."""
        told = dtype_named(self.weights_dtype)
        own = self.model.quantisation
        if told is not None and not self._is_own(told):
            return told if part in _QUANTISED else "bf16"
        if part in own.bytes_per_element:
            return _own_dtype(own.method, own.weight_dtype)
        return "fp32" if own.plain_bytes == 4.0 else "bf16"

    def bytes_of(self, part: Part) -> float:
        """Returns bytes per element of a part, scales included."""
        told = dtype_named(self.weights_dtype)
        if told is not None and not self._is_own(told):
            return _WIDTHS[told] if part in _QUANTISED else 2.0
        return self.model.quantisation.bytes_of(part)

    def _is_own(self, told: str) -> bool:
        own = self.model.quantisation
        if own.method is None:
            return told == "bf16" and own.plain_bytes == 2.0
        return told == _own_dtype(own.method, own.weight_dtype)

    def compute(self, dtype: str) -> str:
        """Returns the dtype that multiplies weights of `dtype` on this device, where its rate is known.

        int4 weights are widened to bf16 on every GPU; fp8 and fp4 where the device has no unit for them.
        MXFP4 experts (gpt-oss) go through fp8 units from compute capability 10 on.
        """
        rates = self.device.dense_flops_per_second
        capability = self.device.compute_capability or 0.0
        wanted = {"fp8": ("fp8",), "int8": ("int8",), "nvfp4": ("fp4", "fp8"), "mxfp4": ("fp8",)}
        for name in wanted.get(dtype, ()):
            if name in rates and not (dtype in ("nvfp4", "mxfp4") and capability < 10.0):
                return name
        return "bf16" if "bf16" in rates else "fp16"


def _own_dtype(method: str | None, weight_dtype: str | None) -> str:
    if method in ("nvfp4", "mxfp4"):
        return method
    return dtype_named(weight_dtype) or dtype_named(method) or "bf16"
