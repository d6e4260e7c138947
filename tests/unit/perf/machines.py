"""A device with round figures and efficiencies without overheads, so that expected times are hand-worked."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.hardware.device import Device
from headrace.perf.efficiency import Efficiencies, Efficiency, HostTime, OperatorClass
from headrace.quantities import Origin, Quantity

GIB = 2**30


def told(value: float, unit: str = "") -> Quantity:
    return Quantity(value, unit, Origin.USER, "the test")


def card(
    *,
    bandwidth: float | None = 1e12,
    bf16: float = 100e12,
    link: float | None = 10e9,
    capability: float = 9.0,
    others: dict[str, float] | None = None,
    interconnect: str = "PCIe",
) -> Device:
    """1 TB/s, 100 TFLOPS of bf16, 10 GB/s between GPUs."""
    return Device(
        "test card",
        "nvidia",
        "",
        capability,
        told(80 * GIB),
        told(80 * GIB),
        told(79 * GIB),
        None if bandwidth is None else told(bandwidth, "bytes/s"),
        {"bf16": told(bf16), **{name: told(value) for name, value in (others or {}).items()}},
        {},
        None,
        None,
        None,
        interconnect,
        None if link is None else told(link, "bytes/s"),
        "the test",
    )


def ideal(
    *, floor: float = 0.0, adds: bool = False, per_sequence: float = 0.0, gap: float = 0.0
) -> Efficiencies:
    """Every kernel at its roof, no gap, nothing for the host."""
    each = Efficiency(told(1.0), told(1.0), told(floor), adds=adds)
    host = HostTime(told(gap), told(0.002), told(per_sequence), told(1e-5))
    return Efficiencies(dict.fromkeys(OperatorClass, each), host, told(1.0))


def shared() -> Path | None:
    """The folder with public traces, where it is at hand."""
    candidates = [os.environ.get("HEADRACE_SHARED"), str(Path(__file__).resolve().parents[4] / "shared")]
    return next((Path(found) for found in candidates if found and Path(found, "data").is_dir()), None)
