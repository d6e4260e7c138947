"""GPU counters from the driver's own library (extra [gpu]): a look costs a millisecond or so per GPU."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

from headrace.errors import UsageError
from headrace.extras import missing
from headrace.observe.gpus.columns import throttles
from headrace.observe.recording.writer import RecordingWriter

_GIB = 1024.0**3


class Nvml:
    """All GPUs that the driver shows.

    Args:
        host: names them, with their index.
        library: pynvml, or what stands for it in tests.

    Raises:
        UsageError: the extra is not installed, or there is no driver.
    """

    def __init__(self, host: str, library: Any = None) -> None:
        self._host = host
        self._nvml = library if library is not None else _library()
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise UsageError(
                f"NVML says: {error}. Is the NVIDIA driver there, and are the GPUs in this container?"
            ) from None
        self._devices = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        self._names = [_text(self._nvml.nvmlDeviceGetName(device)) for device in self._devices]

    async def sample(self, writer: RecordingWriter) -> None:
        """One look at every GPU."""
        at = writer.at()
        values = await asyncio.to_thread(self.read)
        for index, (name, one) in enumerate(zip(self._names, values, strict=True)):
            if one:
                writer.add_gpu(f"{self._host}/{index}", name, at, one)

    def read(self) -> list[dict[str, float]]:
        """The words of each GPU; what a GPU does not have is left out."""
        return [self._one(device) for device in self._devices]

    def _one(self, device: Any) -> dict[str, float]:
        nvml = self._nvml
        found: dict[str, float] = {}
        asked: tuple[tuple[str, float, Callable[[], float]], ...] = (
            ("gpu_power_w", 1e-3, lambda: nvml.nvmlDeviceGetPowerUsage(device)),
            ("gpu_power_limit_w", 1e-3, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(device)),
            ("sm_clock_mhz", 1.0, lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)),
            ("gpu_temp_c", 1.0, lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)),
            ("gpu_utilization", 0.01, lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu),
            ("gpu_memory_used_gib", 1 / _GIB, lambda: nvml.nvmlDeviceGetMemoryInfo(device).used),
        )
        for word, factor, ask in asked:
            try:
                found[word] = float(ask()) * factor
            except nvml.NVMLError:  # not every GPU has every counter (MIG, virtual GPUs)
                continue
        try:
            found.update(throttles(int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))))
        except nvml.NVMLError:
            pass
        return found


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise missing("pynvml", "NVML") from None


def _text(name: str | bytes) -> str:
    return (name.decode("utf-8", "replace") if isinstance(name, bytes) else name)[:80]
