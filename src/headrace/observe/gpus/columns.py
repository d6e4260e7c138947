"""GPU counters in headrace's words, and how those of several GPUs become a server's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headrace.observe.observation import Column
from headrace.observe.readings import READINGS
from headrace.observe.recording.reading import Columns
from headrace.quantities import Origin, Quantity

GPU_WORDS = (
    "gpu_utilization",
    "gpu_power_w",
    "gpu_power_limit_w",
    "gpu_temp_c",
    "sm_clock_mhz",
    "gpu_memory_used_gib",
    "throttle_power_percent",
    "throttle_thermal_percent",
)
# Why a clock is held down, bits of nvmlClocksEventReasons (nvml.h; the same in nvidia-smi and DCGM)
POWER_BITS = 0x4 | 0x80  # software power cap, external power brake
THERMAL_BITS = 0x20 | 0x40  # software and hardware thermal slowdown
RANKED = {"gpu_utilization": "gpu_utilization_by_rank", "gpu_power_w": "gpu_power_w_by_rank"}


def throttles(reasons: int) -> dict[str, float]:
    """Percent of this sample throttled by power and by heat: 0 or 100."""
    return {
        "throttle_power_percent": 100.0 if reasons & POWER_BITS else 0.0,
        "throttle_thermal_percent": 100.0 if reasons & THERMAL_BITS else 0.0,
    }


def over_server(
    gpus: Mapping[str, Columns], seconds: Column, window: tuple[float, float], *, by_gpu: bool
) -> tuple[dict[str, Column], dict[str, Quantity], dict[str, Mapping[str, float]]]:
    """Columns at a server's times (the mean over GPUs), steady readings, and readings by GPU.

    Args:
        gpus: name → its columns.
        seconds: the server's times; of a GPU the sample before each is taken.
        window: of the steady readings.
        by_gpu: whether all these GPUs are this server's, so that they may be told apart.
    """
    columns: dict[str, Column] = {}
    readings: dict[str, Quantity] = {}
    ranks: dict[str, Mapping[str, float]] = {}
    for word in GPU_WORDS:
        held = {name: one for name, one in gpus.items() if word in one.columns}
        if not held:
            continue
        at = np.array([_before(one.seconds, one.columns[word], seconds) for one in held.values()])
        with_any = np.isfinite(at).any(axis=0)
        mean = np.full(len(seconds), np.nan)
        mean[with_any] = np.nanmean(at[:, with_any], axis=0)
        columns[word] = mean
        medians: dict[str, float] = {}
        inside: list[Column] = []
        for name, one in held.items():
            part = one.columns[word][(one.seconds >= window[0]) & (one.seconds <= window[1])]
            part = part[np.isfinite(part)]
            if len(part):
                inside.append(part)
                medians[name] = float(np.mean(part) if word.startswith("throttle") else np.median(part))
        if not medians:
            continue
        source = f"GPU counters, {len(medians)} GPUs, {sum(len(part) for part in inside):,} samples"
        low, high = min(medians.values()), max(medians.values())
        value = Quantity(float(np.mean(list(medians.values()))), READINGS[word].unit, Origin.MEASURED, source)
        readings[word] = value.with_range(low, high) if low < high else value
        if word == "sm_clock_mhz":
            least = float(min(part.min() for part in inside))
            readings["sm_clock_mhz_min"] = Quantity(least, "MHz", Origin.MEASURED, source)
        if by_gpu and word in RANKED and len(medians) > 1:
            ranks[RANKED[word]] = medians
    return columns, readings, ranks


def _before(times: Column, values: Column, seconds: Column) -> Column:
    place = np.searchsorted(times, seconds, side="right") - 1
    return np.where(place >= 0, values[np.maximum(place, 0)], np.nan)
