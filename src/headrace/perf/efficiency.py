"""What share of a device's roofs kernels reach, what a launch costs, and what the host takes per step.

Few global constants with their spread; tables per GPU replace them where they predict better. Everything is
keyed by device, engine and version, and every figure says where it is from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.hardware.device import Device
from headrace.perf.operator_table import measured
from headrace.perf.options import StepOptions
from headrace.quantities import Origin, Quantity


class OperatorClass(StrEnum):
    """Kinds of kernels whose efficiencies differ."""

    GEMM = "gemm"  # a projection with dense weights
    MOE = "moe"  # routed experts, grouped
    ATTENTION_DECODE = "attention decode"
    ATTENTION_PREFILL = "attention prefill"
    RECURRENT = "recurrent"  # state update, one token per request
    RECURRENT_PREFILL = "recurrent prefill"  # the scan over a chunk
    HEAD = "head"
    ELEMENTWISE = "elementwise"  # norms, residuals, rotary, activation, quantisation of activations
    SAMPLING = "sampling"
    ALL_REDUCE = "all-reduce"
    ALL_TO_ALL = "all-to-all"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How near a kind of kernel comes to its roofs.

    A kernel takes `floor + max(bytes ÷ (bandwidth × bandwidth_fraction), FLOPs ÷ (peak × flop_fraction))`;
    with `adds` the sum in place of the max, and between them with a finite `sharpness` p:
    (bytes^p + FLOPs^p)^(1/p), for kernels that do not hide one behind the other entirely. For collectives
    the bandwidth is that of the link.
    """

    bandwidth_fraction: Quantity
    flop_fraction: Quantity
    floor_seconds: Quantity
    adds: bool = False
    sharpness: float = math.inf

    @property
    def exponent(self) -> float:
        """The p of the sum of bytes' and FLOPs' seconds: 1 adds, infinity takes the larger."""
        return 1.0 if self.adds else self.sharpness


@dataclass(frozen=True, slots=True)
class HostTime:
    """What the host costs per step.

    gap: the GPU idles between any two steps, whatever overlaps.
    sequential: scheduling and handling of results, exposed where nothing overlaps it.
    per_sequence: the same per running request.
    launch: one kernel launched by itself, in eager mode.
    """

    gap_seconds: Quantity
    sequential_seconds: Quantity
    per_sequence_seconds: Quantity
    launch_seconds: Quantity


@dataclass(frozen=True)
class Efficiencies:
    """The efficiencies of one device under one engine; `by_dtype` goes before `by_class`.

    `level` is the factor that what is not modelled puts on a whole step (kernels of another engine version);
    its value is 1, its range what the estimate widens by.
    """

    by_class: Mapping[OperatorClass, Efficiency]
    host: HostTime
    level: Quantity
    by_dtype: Mapping[tuple[OperatorClass, str], Efficiency] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, kind: OperatorClass, dtype: str) -> Efficiency:
        """Returns the efficiency of a kind of kernel at a dtype of its weights."""
        return self.by_dtype.get((kind, dtype)) or self.by_class[kind]


# Global constants, fitted to 1,203 public end-to-end rows of SGLang and vLLM (the fair rows of a public
# benchmark table) by scripts/fit-efficiencies, 2026-11: least absolute log error, every source × GPU × model
# group weighing by the root of its rows, pulled towards the accuracy prototype's values. Median error on
# groups left out of the fit 9.1 %, on the rows themselves 8.6 %. Ranges: over the folds, and the prototype's.
_FITTED = "fitted to public end-to-end rows (scripts/fit-efficiencies)"


def _assumed(value: float, low: float, high: float, unit: str, source: str = _FITTED) -> Quantity:
    return Quantity(value, unit, Origin.ASSUMED, source, low=low, high=high)


_GEMM_BANDWIDTH = _assumed(0.90, 0.83, 0.93, "fraction")
_MOE_BANDWIDTH = _assumed(0.85, 0.78, 0.92, "fraction")
_CACHE_BANDWIDTH = _assumed(0.80, 0.72, 0.88, "fraction")  # KV, states, activations
_FLOPS_NEW = _assumed(0.65, 0.52, 0.75, "fraction")
_MOE_FLOPS_NEW = _assumed(0.62, 0.45, 0.75, "fraction")
_FLOPS_OLD = _assumed(0.41, 0.30, 0.60, "fraction", _FITTED + ", engines of 2024")
_FLOOR = _assumed(8.1e-6, 6.5e-6, 9.0e-6, "s")
_MOE_FLOOR = _assumed(16.7e-6, 12.0e-6, 30.0e-6, "s")
# Bytes and FLOPs of a projection hide each other only partly: with p = 2 the steps of vLLM 0.19 on RTX PRO
# 6000 (LLMServingSim traces, 8B and 32B, 1 to 128 running) are 3–6 % off, with the larger alone 5–10 %.
_GEMM_SHARPNESS = 2.0
_LINK_LATENCY = _assumed(12.4e-6, 9.0e-6, 15.0e-6, "s")
# Without NVLink a small all-reduce goes over PCIe through pinned host memory or peer to peer.
_PCIE_LATENCY = _assumed(25.0e-6, 13.0e-6, 50.0e-6, "s", "no NVLink: two to three times the fitted 11 µs")
_LINK_BANDWIDTH = _assumed(0.68, 0.5, 0.83, "fraction")
_GAP = _assumed(0.86e-3, 0.6e-3, 1.2e-3, "s")
# Runtimes in C++ leave smaller gaps: 377 public rows of TensorRT-LLM are 24 % off (median) with the gap of
# the engines in Python, 18 % with this one.
_COMPILED = ("tensorrt-llm", "llama.cpp")
_COMPILED_GAP = _assumed(0.30e-3, 0.1e-3, 0.6e-3, "s", _FITTED + ", TensorRT-LLM")
# vLLM 0.5.3, Llama 3 8B on one H100: API server 33 %, scheduling 29 %, GPU 38 % of the time
# (blog.vllm.ai, 2024-09-05); fitted to rows of engines of 2024 it comes to 0.055 ms per running request.
_OLD_PER_SEQUENCE = _assumed(5.5e-5, 3.0e-5, 1.0e-4, "s", _FITTED + ", engines of 2024")
_NEW_PER_SEQUENCE = _assumed(1.0e-5, 2.0e-6, 4.0e-5, "s", "a fifth of that of the engines of 2024")
_SEQUENTIAL = _assumed(1.2e-3, 0.8e-3, 2.5e-3, "s", _FITTED + ", steps that nothing overlaps")
# One launch from PyTorch in eager mode: 5–10 µs of host time; 1.5 unlisted small kernels for each counted.
_LAUNCH = _assumed(1.5e-5, 0.8e-5, 2.5e-5, "s", "eager launches, 5–10 µs each, small ones included")
# Same configuration, other engine version: 14.5 % median apart (132 pairs). The range makes low to high cover
# eight to nine of ten rows of groups left out of the fit.
_LEVEL_KNOWN = Quantity(1.0, "factor", Origin.ASSUMED, "engine versions differ", low=0.85, high=1.18)
# Of a device that a person described nobody measured a kernel, and it may be a CPU: a range of two and a half
# either way says so, and calibration starts from it.
# An engine on a CPU goes through the requests one by one; SGLang's plain attention took up to some ms each.
_CPU_PER_SEQUENCE = 2.0e-2
_LEVEL_DESCRIBED = Quantity(1.0, "factor", Origin.ASSUMED, "a device described by hand", low=0.4, high=2.5)
_LEVEL_UNKNOWN = Quantity(1.0, "factor", Origin.ASSUMED, "engine version not known", low=0.75, high=1.35)

# Which measured operators replace the constants: classes with which the rows of groups left out of the fit
# are predicted better (or, all-reduce over PCIe, as well, and step traces of engines better). Not used, as
# they lose or change nothing there: GEMM in bf16 and fp8, attention, heads, NVLink all-reduce, experts in
# bf16, int4, MXFP4 and NVFP4, GEMM in NVFP4 on compute capability 12.
_TABLED_EXPERTS = {"fp8": "fp8_block"}  # dtype here: that of the table
_TABLED_GEMM = {"nvfp4": "nvfp4"}
_GEMM_CAPABILITY = (10.0, 11.0)
# A stand-in of the same architecture widens what was measured by this factor either way.
_STAND_IN = 1.15


def is_old(engine: str, version: tuple[int, ...] | None) -> bool:
    """Returns whether an engine's version is of the generation before its rewritten scheduler (2024)."""
    if version is None:
        return False
    first = {"vllm": (0, 8), "sglang": (0, 4)}.get(engine)
    return first is not None and tuple(version) < first


def efficiencies(device: Device, options: StepOptions) -> Efficiencies:
    """Returns what kernels reach on this device under this engine version."""
    old = is_old(options.engine, options.engine_version)
    flops = _FLOPS_OLD if old else _FLOPS_NEW
    streams = Efficiency(_bandwidth(device, _CACHE_BANDWIDTH), flops, _FLOOR)
    by_class = dict.fromkeys(OperatorClass, streams)
    gemm = Efficiency(_bandwidth(device, _GEMM_BANDWIDTH), flops, _FLOOR, sharpness=_GEMM_SHARPNESS)
    by_class[OperatorClass.GEMM] = by_class[OperatorClass.HEAD] = gemm
    experts = Efficiency(
        _bandwidth(device, _MOE_BANDWIDTH), flops if old else _MOE_FLOPS_NEW, _MOE_FLOOR, adds=True
    )
    by_class[OperatorClass.MOE] = experts
    by_class[OperatorClass.ALL_REDUCE] = _all_reduce(device, options, flops)
    by_class[OperatorClass.ALL_TO_ALL] = _link(device, flops)
    by_dtype: dict[tuple[OperatorClass, str], Efficiency] = {}
    for dtype, key in _TABLED_EXPERTS.items():
        if found := _tabled(device, options, "moe", key, experts):
            by_dtype[OperatorClass.MOE, dtype] = found
    low, high = _GEMM_CAPABILITY
    if device.compute_capability is not None and low <= device.compute_capability < high:
        for dtype, key in _TABLED_GEMM.items():
            if found := _tabled(device, options, "gemm", key, gemm):
                by_dtype[OperatorClass.GEMM, dtype] = found
    each = _OLD_PER_SEQUENCE if old else _NEW_PER_SEQUENCE
    if _is_described(device):
        each = each.with_range(each.range[0], _CPU_PER_SEQUENCE)
    gap = _COMPILED_GAP if options.engine in _COMPILED else _GAP
    host = HostTime(gap, _SEQUENTIAL, each, _LAUNCH)
    return Efficiencies(by_class, host, _level(device, options), by_dtype)


def _is_described(device: Device) -> bool:
    """Returns whether a person described the device, so that it may be a CPU as well."""
    bandwidth = device.memory_bytes_per_second
    return bandwidth is not None and bandwidth.origin is Origin.USER


def _level(device: Device, options: StepOptions) -> Quantity:
    """Returns how far off a whole step may be: more where nobody measured such a device or the version is
    untold.
    """
    if _is_described(device):
        return _LEVEL_DESCRIBED
    return _LEVEL_KNOWN if options.engine_version else _LEVEL_UNKNOWN


def _tabled(
    device: Device, options: StepOptions, operator: str, dtype: str, otherwise: Efficiency
) -> Efficiency | None:
    """Returns `otherwise` with what was measured of an operator in its place, None where nothing was."""
    found = measured(device, options.engine, options.engine_version, operator, dtype)
    if found is None:
        return None
    row, same = found
    spread = (1.0 + (row.median_error or 0.15)) * (1.0 if same else _STAND_IN)

    def quantity(value: float, unit: str, most: float) -> Quantity:
        low, high = value / spread, min(max(value, most), value * spread)
        return Quantity(value, unit, Origin.MEASURED, row.source, low=low, high=high)

    bandwidth, flops = otherwise.bandwidth_fraction, otherwise.flop_fraction
    if row.bandwidth_fraction is not None:
        bandwidth = quantity(min(row.bandwidth_fraction, 1.0), "fraction", 1.0)
    if row.flop_fraction is not None:
        flops = quantity(row.flop_fraction, "fraction", 1.0)
    floor = quantity(row.floor_seconds, "s", row.floor_seconds * spread)
    return replace(otherwise, bandwidth_fraction=bandwidth, flop_fraction=flops, floor_seconds=floor)


def _link(device: Device, flops: Quantity) -> Efficiency:
    latency = _LINK_LATENCY if has_nvlink(device) else _PCIE_LATENCY
    return Efficiency(_LINK_BANDWIDTH, flops, latency)


def _all_reduce(device: Device, options: StepOptions, flops: Quantity) -> Efficiency:
    """Returns the all-reduce among the ranks: measured where it goes over PCIe, else the constants."""
    plain = _link(device, flops)
    ranks = next((size for size in (2, 4, 8) if options.tp <= size), 8)
    if has_nvlink(device) or options.tp == 1:
        return plain
    return _tabled(device, options, f"all-reduce {ranks}", "bf16", plain) or plain


def _bandwidth(device: Device, fraction: Quantity) -> Quantity:
    """Returns the share of the data sheet's bandwidth: the constant, but no more than long streams reached
    where somebody measured that on this device.
    """
    ceiling, sheet = device.measured.get("stream_bytes_per_second"), device.memory_bytes_per_second
    if ceiling is None or sheet is None or ceiling.value / sheet.value > fraction.value:
        return fraction
    share = ceiling.value / sheet.value
    low, high = 0.93 * share, min(1.0, 1.07 * share)
    return Quantity(share, "fraction", Origin.MEASURED, ceiling.source, low=low, high=high)


def has_nvlink(device: Device) -> bool:
    """Returns whether GPUs of this kind are joined by NVLink or the like, not by PCIe alone."""
    text = device.interconnect.lower()
    return ("nvlink" in text and "no nvlink" not in text and "pcie" not in text) or "fabric" in text
