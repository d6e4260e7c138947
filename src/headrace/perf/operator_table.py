"""Measured operators: floor, bandwidth share and FLOP share by GPU, engine, operator and dtype.

The table is data/operators.csv, made by scripts/operator-tables from the wheel aiconfigurator-core 0.12.0
(Apache-2.0, NVIDIA; data/NOTICE.md). It is a fact sheet: `efficiency` decides which of it is used.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from headrace.hardware.device import Device

Version = tuple[int, ...]
_ENGINES = ("sglang", "vllm")


@dataclass(frozen=True, slots=True)
class Measured:
    """One operator on one GPU under one engine version. A share that the data does not show is None.

    `median_error` is that of the three numbers against the times they stand for; None where it is not known.
    """

    gpu: str
    engine: str
    version: Version
    floor_seconds: float
    bandwidth_fraction: float | None
    flop_fraction: float | None
    median_error: float | None

    @property
    def source(self) -> str:
        shown = ".".join(map(str, self.version))
        return f"aiconfigurator-core 0.12.0: {self.gpu}, {self.engine} {shown}"


def measured(
    device: Device, engine: str, version: Version | None, operator: str, dtype: str
) -> tuple[Measured, bool] | None:
    """Returns (the nearest measurement, whether it is of this very GPU), or None.

    Nearest: this GPU before another one of its compute capability; this engine before the other; of several
    versions the newest that is not newer than the one asked for, without one the newest.
    """
    engines = (engine, *(other for other in _ENGINES if other != engine))
    for gpu in (device.name, *_kin(device)):
        for name in engines:
            found = _table().get((gpu, name, operator, dtype))
            if found:
                older = [each for each in found if version is None or each.version <= version]
                return (older[-1] if older else found[0]), gpu == device.name
    return None


def _kin(device: Device) -> tuple[str, ...]:
    """Returns the measured GPUs with this device's compute capability."""
    from headrace.hardware.rows import devices

    capability = device.compute_capability
    if capability is None:
        return ()
    same = {each.name for each in devices() if each.compute_capability == capability}
    return tuple(gpu for gpu in _gpus() if gpu in same and gpu != device.name)


@lru_cache(maxsize=1)
def _gpus() -> tuple[str, ...]:
    return tuple(dict.fromkeys(gpu for gpu, *_ in _table()))


@lru_cache(maxsize=1)
def _table() -> Mapping[tuple[str, str, str, str], tuple[Measured, ...]]:
    text = resources.files("headrace.perf").joinpath("data/operators.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str, str, str], list[Measured]] = {}
    for row in csv.DictReader(text.splitlines()):
        version = tuple(int(number) for number in re.findall(r"\d+", row["engine_version"])[:3])
        bandwidth, flops, error = (
            float(row[name]) if row[name] else None
            for name in ("bandwidth_fraction", "flop_fraction", "median_error")
        )
        key = (row["gpu"], row["engine"], row["operator"], row["dtype"])
        floor = float(row["floor_us"]) * 1e-6
        found.setdefault(key, []).append(
            Measured(row["gpu"], row["engine"], version, floor, bandwidth, flops, error)
        )
    return {key: tuple(sorted(rows, key=lambda each: each.version)) for key, rows in found.items()}
