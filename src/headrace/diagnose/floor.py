"""The floor of a decode step: bytes over achievable bandwidth, and FLOPs over the dense rate.

A small stand-in for a step-time model: it knows no operators, no overlap and no traffic between GPUs, so it
is a lower bound, and what is above it is a remainder to be explained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headrace.hardware.device import Device
from headrace.models.geometry import ModelGeometry
from headrace.quantities import Origin, Quantity, derived

# Share of the data sheet's bandwidth that long weight streams reach. 1.46 of 1.79 TB/s on RTX PRO 6000
# Blackwell (aiconfigurator's operator tables, 2026-08); the GEMM rows of the same tables reach 75.5 to 79.4
# %, hence the lower end; the data sheet itself bounds it above. Used where a device has no measured stream.
ACHIEVED_SHARE = Quantity(
    0.815,
    "fraction",
    Origin.ASSUMED,
    "1.46 of 1.79 TB/s on RTX PRO 6000 Blackwell (operator tables, 2026-08); GEMM rows 0.755",
    low=0.755,
    high=1.0,
)
# Share of the dense rate that a large matrix product reaches: 417 of 468 TFLOPS, bf16 8192³ on RTX PRO 6000
# Blackwell Server (public measurement); smaller ones reach less.
ACHIEVED_COMPUTE = Quantity(
    0.89,
    "fraction",
    Origin.ASSUMED,
    "417.3 of 467.8 TFLOPS, bf16 8192³ on RTX PRO 6000 Blackwell Server",
    low=0.5,
    high=1.0,
)
_WIDTHS = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "int8": 1.0, "int4": 0.53, "fp4": 0.56}
_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "w4a16": "int4",
    "awq": "int4",
}


def dtype_of(name: str | None) -> str | None:
    """Returns a dtype's short name (`bf16`, `fp8`, `fp4` …), None for one that is not known."""
    if not name:
        return None
    word = name.lower().replace("-", "").replace("_", "")
    word = _ALIASES.get(word, word)
    return next((known for known in _WIDTHS if word.startswith(known)), None)


def dtype_bytes(name: str | None) -> float | None:
    """Returns bytes per element of a dtype, scales included (4-bit forms), None for one that is not known."""
    known = dtype_of(name)
    return None if known is None else _WIDTHS[known]


@dataclass(frozen=True)
class Floor:
    """The least time of a decode step at this batch and context, in seconds, per GPU.

    Attributes:
        parts: bytes per step by part: weights, KV, states.
        datasheet: at the data sheet's bandwidth: nothing is faster.
        achievable: at the bandwidth that long streams reach, with its range.
        compute: FLOPs over the dense rate, None where the rate is not known.
    """

    parts: dict[str, Quantity]
    bytes: Quantity
    datasheet: Quantity
    achievable: Quantity
    compute: Quantity | None
    batch: float
    context_tokens: float
    fixed_seconds: float  # of `achievable`: what does not depend on the batch
    per_request_seconds: float

    @property
    def bound_by_compute(self) -> bool:
        return self.compute is not None and self.compute.value > self.achievable.value

    @property
    def seconds(self) -> Quantity:
        """The higher of both roofs, achievable."""
        return self.compute if self.bound_by_compute and self.compute is not None else self.achievable

    def at(self, batch: float) -> float:
        """Returns the achievable floor at another batch of the same context, seconds."""
        memory = self.fixed_seconds + batch * self.per_request_seconds
        if self.compute is None or self.batch <= 0:
            return memory
        return max(memory, self.compute.value * batch / self.batch)

    @property
    def part_seconds(self) -> dict[str, Quantity]:
        """Seconds that each part's bytes take at the achievable bandwidth; they add up to `achievable`."""
        bandwidth = self.achievable.inputs["bandwidth"]
        return {
            name: derived(
                part.value / bandwidth.value,
                "s",
                "bytes ÷ achievable bandwidth",
                bytes=part,
                bandwidth=bandwidth,
            )
            for name, part in self.parts.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Returns bytes by part, the seconds of each part, and the three times."""
        return {
            "batch": self.batch,
            "context_tokens": self.context_tokens,
            "bytes": self.bytes.to_json(),
            "part_seconds": {name: part.to_json() for name, part in self.part_seconds.items()},
            "datasheet_seconds": self.datasheet.to_json(),
            "achievable_seconds": self.achievable.to_json(),
            "compute_seconds": self.compute.to_json() if self.compute else None,
        }


def step_floor(
    model: ModelGeometry,
    device: Device,
    *,
    batch: Quantity,
    context_tokens: Quantity | None,
    tensor_parallel: int = 1,
    weights_dtype: str | None = None,
    kv_bytes_per_token: Quantity | None = None,
    state_bytes_per_request: Quantity | None = None,
    tokens_per_request: float = 1.0,
) -> Floor | None:
    """Returns the floor of a decode step, None where the device's bandwidth is not known.

    Args:
        batch: running requests of one server (of one data-parallel rank).
        context_tokens: mean tokens resident per request; None leaves the KV out, which lowers the floor.
        weights_dtype: as told, where the weights are served in another form than the checkpoint's.
        kv_bytes_per_token, state_bytes_per_request: of one GPU, from the memory plan where there is one.
        tokens_per_request: tokens computed per request and step: drafts are verified together.
    """
    bandwidth = device.memory_bytes_per_second
    if bandwidth is None or batch.value <= 0:
        return None
    tp = max(1, tensor_parallel)
    tokens = batch.value * tokens_per_request
    weights = model.weight_bytes_read_per_step(tokens, tp, dtype_bytes=_served_width(model, weights_dtype))
    parts = {"weights": weights}
    per_request = 0.0
    if context_tokens is not None:
        price = kv_bytes_per_token or model.kv_bytes_per_token(2.0, tp)
        parts["kv"] = derived(
            batch.value * context_tokens.value * price.value,
            "bytes",
            "running × context × bytes per token",
            running=batch,
            context=context_tokens,
            bytes_per_token=price,
        )
        per_request += context_tokens.value * price.value
    if model.is_hybrid:
        state = state_bytes_per_request or model.state_bytes_per_request(tp=tp)
        parts["states"] = derived(
            2 * batch.value * state.value,
            "bytes",
            "running × state × 2 (read and written)",
            running=batch,
            state=state,
        )
        per_request += 2 * state.value
    total = derived(sum(part.value for part in parts.values()), "bytes", "weights + KV + states", **parts)
    peak = Quantity(bandwidth.range[1], bandwidth.unit, bandwidth.origin, bandwidth.source)
    stream = _stream(device, peak)
    low, high = stream.range
    achievable = derived(
        total.value / stream.value, "s", "bytes ÷ achievable bandwidth", bytes=total, bandwidth=stream
    ).with_range(total.value / high, total.value / low)
    return Floor(
        parts,
        total,
        derived(total.value / peak.value, "s", "bytes ÷ data sheet's bandwidth", bytes=total, bandwidth=peak),
        achievable,
        _compute(model, device, tokens, context_tokens, tp, weights_dtype),
        batch.value,
        context_tokens.value if context_tokens else 0.0,
        weights.value / stream.value,
        per_request / stream.value,
    )


_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)B(?![a-z])(?:-?A(\d+(?:\.\d+)?)B)?", re.IGNORECASE)


def rough_floor(
    name: str | None,
    device: Device,
    *,
    batch: Quantity,
    tensor_parallel: int = 1,
    weights_dtype: str | None = None,
) -> Floor | None:
    """Returns a floor from the parameters in a model's name ("70B", "30B-A3B"), where its shape is not known.

    Weights alone: no KV, no states. Of a mixture only what one token wakes, so it holds for a batch of one or
    two; for a larger batch of a mixture it is None, as it is where the name has no size or the dtype is
    unknown.
    """
    found = _SIZE.search(name or "")
    bandwidth = device.memory_bytes_per_second
    width = dtype_bytes(weights_dtype) or dtype_in(name)
    if found is None or bandwidth is None or width is None or batch.value <= 0:
        return None
    if found[2] and batch.value > 2:
        return None
    billions = float(found[2] or found[1])
    weights = Quantity(
        billions * 1e9 * width / max(1, tensor_parallel),
        "bytes",
        Origin.ASSUMED,
        f"{billions:g} B parameters by the model's name × {width:g} bytes ÷ ranks",
    )
    peak = Quantity(bandwidth.range[1], bandwidth.unit, bandwidth.origin, bandwidth.source)
    stream = _stream(device, peak)
    low, high = stream.range
    achievable = derived(
        weights.value / stream.value, "s", "bytes ÷ achievable bandwidth", bytes=weights, bandwidth=stream
    ).with_range(weights.value / high, weights.value / low)
    datasheet = derived(
        weights.value / peak.value, "s", "bytes ÷ data sheet's bandwidth", bytes=weights, bandwidth=peak
    )
    return Floor(
        {"weights": weights}, weights, datasheet, achievable, None, batch.value, 0.0, achievable.value, 0.0
    )


def dtype_in(name: str | None) -> float | None:
    """Returns bytes per parameter by a model's name ("…-FP8", "…Q4_K_M.gguf"), None where it does not say."""
    words = re.split(r"[-_./ ]", (name or "").lower())
    for word in words:
        if (width := dtype_bytes(word)) is not None:
            return width
        if (bits := re.fullmatch(r"i?q([2-8])", word)) is not None:
            return (int(bits[1]) + 0.5) / 8  # llama.cpp's k-quants: about half a bit of scales a weight
    return None


def _served_width(model: ModelGeometry, told: str | None) -> float | None:
    """Bytes per element where the weights are told in a narrower form than the checkpoint's, else None."""
    width = dtype_bytes(told)
    if width is None:
        return None
    own = model.weight_bytes(1).value / max(1.0, float(model.total_parameters - model.mtp_parameters))
    return width if width < 0.7 * own else None


def _stream(device: Device, peak: Quantity) -> Quantity:
    measured = device.measured.get("stream_bytes_per_second")
    if measured is not None:
        return measured.with_range(ACHIEVED_SHARE.range[0] * peak.value, peak.value)
    low, high = ACHIEVED_SHARE.range
    return derived(
        peak.value * ACHIEVED_SHARE.value,
        "bytes/s",
        "data sheet × achieved share",
        datasheet=peak,
        share=ACHIEVED_SHARE,
    ).with_range(peak.value * low, peak.value * high)


def dense_rate(device: Device, dtype: str | None) -> Quantity | None:
    """Returns the dense FLOP/s for a dtype, bf16 where that one is not known."""
    rates = device.dense_flops_per_second
    known = dtype_of(dtype) or "bf16"
    return rates.get(known) or rates.get("bf16") or rates.get("fp16")


def _compute(
    model: ModelGeometry,
    device: Device,
    tokens: float,
    context_tokens: Quantity | None,
    tp: int,
    dtype: str | None,
) -> Quantity | None:
    rate = dense_rate(device, dtype)
    if rate is None:
        return None
    work = model.flops_per_token(context_tokens.value if context_tokens else 0.0)
    reached = rate.value * ACHIEVED_COMPUTE.value
    return derived(
        tokens * work.value / tp / reached,
        "s",
        "tokens × FLOPs per token ÷ ranks ÷ (dense rate × achieved share)",
        work=work,
        rate=rate,
        share=ACHIEVED_COMPUTE,
    )
