"""What share of a device's roofs kernels reach, what a launch costs, and what the host takes per step.

Few global constants with their spread; tables per GPU replace them where they predict better. Everything is
keyed by device, engine and version, and every figure says where it is from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.hardware.device import Device
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


# Global constants fitted to public end-to-end rows (accuracy prototype, 2026: 2,754 + 1,010 rows, halves
# against each other): bandwidth 0.79–0.86, floor 7–8 µs, all-reduce 10–13 µs, step 0.9–1.4 ms; FLOPs
# 0.63–0.65 on engines of 2025–26, 0.31–0.34 where half of the rows are of 2024. Spreads: first guess to
# fitted.
_FITTED = "fitted to public end-to-end rows, halves against each other (2026)"


def _assumed(value: float, low: float, high: float, unit: str, source: str = _FITTED) -> Quantity:
    return Quantity(value, unit, Origin.ASSUMED, source, low=low, high=high)


_BANDWIDTH = _assumed(0.83, 0.75, 0.90, "fraction")
_FLOPS_NEW = _assumed(0.62, 0.50, 0.75, "fraction")
_FLOPS_OLD = _assumed(0.34, 0.25, 0.60, "fraction", _FITTED + ", half of them of 2024")
_FLOOR = _assumed(7.0e-6, 4.0e-6, 9.0e-6, "s")
# The operator tables of aiconfigurator have 20–50 µs for grouped experts (accuracy prototype §5.7).
_MOE_FLOOR = _assumed(20.0e-6, 10.0e-6, 50.0e-6, "s", "operator tables: 20–50 µs for grouped experts")
# Bytes and FLOPs of a projection hide each other only partly: with p = 2 the steps of vLLM 0.19 on RTX PRO
# 6000 (LLMServingSim traces, 8B and 32B, 1 to 128 running) are 3–6 % off, with the larger alone 5–10 %.
_GEMM_SHARPNESS = 2.0
_LINK_LATENCY = _assumed(11.0e-6, 8.0e-6, 15.0e-6, "s")
# Without NVLink a small all-reduce goes over PCIe through pinned host memory or peer to peer.
_PCIE_LATENCY = _assumed(25.0e-6, 15.0e-6, 60.0e-6, "s", "no NVLink: two to three times the fitted 11 µs")
_LINK_BANDWIDTH = _assumed(0.70, 0.5, 0.85, "fraction", "ring of large messages")
_GAP = _assumed(1.0e-3, 0.5e-3, 2.0e-3, "s")
# vLLM 0.5.3, Llama 3 8B on one H100: API server 33 %, scheduling 29 %, GPU 38 % of the time (blog.vllm.ai,
# 2024-09-05): host 1.6 × the GPU's share. At 7–8 ms of GPU that is 12 ms at some 100 running requests.
_OLD_PER_SEQUENCE = _assumed(1.0e-4, 5.0e-5, 2.0e-4, "s", "vLLM 0.5.3 profile, blog.vllm.ai 2024-09-05")
_NEW_PER_SEQUENCE = _assumed(1.0e-5, 2.0e-6, 4.0e-5, "s", "a tenth of vLLM 0.5.3's")
_SEQUENTIAL = _assumed(2.5e-3, 1.0e-3, 6.0e-3, "s", "Python scheduling and result handling of one step")
# One launch from PyTorch in eager mode: 5–10 µs of host time; 1.5 unlisted small kernels for each counted.
_LAUNCH = _assumed(1.5e-5, 0.8e-5, 2.5e-5, "s", "eager launches, 5–10 µs each, small ones included")
# Same configuration, other engine version: 14.5 % median apart (132 pairs); residuals 0.17–0.21 in log.
_LEVEL_KNOWN = Quantity(1.0, "factor", Origin.ASSUMED, "engine versions differ", low=0.85, high=1.18)
_LEVEL_UNKNOWN = Quantity(1.0, "factor", Origin.ASSUMED, "engine version not known", low=0.75, high=1.35)


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
    bandwidth = _bandwidth(device)
    plain = Efficiency(bandwidth, flops, _FLOOR)
    latency = _LINK_LATENCY if has_nvlink(device) else _PCIE_LATENCY
    link = Efficiency(_LINK_BANDWIDTH, flops, latency)
    by_class = dict.fromkeys(OperatorClass, plain)
    gemm = Efficiency(bandwidth, flops, _FLOOR, sharpness=_GEMM_SHARPNESS)
    by_class[OperatorClass.GEMM] = by_class[OperatorClass.HEAD] = gemm
    by_class[OperatorClass.MOE] = Efficiency(bandwidth, flops, _MOE_FLOOR, adds=True)
    by_class[OperatorClass.ALL_REDUCE] = link
    by_class[OperatorClass.ALL_TO_ALL] = link
    host = HostTime(_GAP, _SEQUENTIAL, _OLD_PER_SEQUENCE if old else _NEW_PER_SEQUENCE, _LAUNCH)
    level = _LEVEL_KNOWN if options.engine_version else _LEVEL_UNKNOWN
    return Efficiencies(by_class, host, level)


def _bandwidth(device: Device) -> Quantity:
    """Returns the share of the data sheet's bandwidth that long streams reach: measured, else the
    constant."""
    measured, sheet = device.measured.get("stream_bytes_per_second"), device.memory_bytes_per_second
    if measured is None or sheet is None:
        return _BANDWIDTH
    share = measured.value / sheet.value
    return Quantity(
        share, "fraction", Origin.MEASURED, measured.source, low=0.93 * share, high=min(1.0, 1.07 * share)
    )


def has_nvlink(device: Device) -> bool:
    """Returns whether GPUs of this kind are joined by NVLink or the like, not by PCIe alone."""
    text = device.interconnect.lower()
    return ("nvlink" in text and "no nvlink" not in text and "pcie" not in text) or "fabric" in text
