"""GPU counters from a DCGM exporter's page (`dcgm:http://host:9400/metrics`)."""

from __future__ import annotations

import math
from collections import defaultdict

from headrace.engines.load import Fetch
from headrace.engines.metrics import samples
from headrace.observe.gpus.columns import throttles
from headrace.observe.recording.writer import RecordingWriter

FAMILIES = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_utilization", 0.01),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_w", 1.0),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("gpu_power_limit_w", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temp_c", 1.0),
    "DCGM_FI_DEV_FB_USED": ("gpu_memory_used_gib", 1 / 1024),
}
"""Family → word and factor (units of the exporter's own HELP lines: %, W, MHz, °C, MiB)."""
REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
_NAMES = dict.fromkeys((*FAMILIES, *REASONS))


def read_page(page: bytes) -> dict[str, tuple[str, dict[str, float]]]:
    """Host/index → device name and words of each GPU of a page. MIG instances are left out."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    devices: dict[str, str] = {}
    for name, labels, value in samples(page, _NAMES):
        if not math.isfinite(value) or labels.get("GPU_I_ID"):
            continue
        gpu = f"{labels.get('Hostname', 'host')[:64]}/{labels.get('gpu', '0')[:8]}"
        devices[gpu] = labels.get("modelName", "")[:80]
        if name in FAMILIES:
            word, factor = FAMILIES[name]
            values[gpu][word] = value * factor
        else:
            values[gpu].update(throttles(int(value)))
    return {gpu: (devices[gpu], one) for gpu, one in sorted(values.items())}


class Dcgm:
    """One exporter.

    Args:
        fetch: asks its page.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def sample(self, writer: RecordingWriter) -> None:
        """One scrape."""
        at = writer.at()
        page = await self._fetch("")
        for gpu, (device, values) in read_page(page or b"").items():
            writer.add_gpu(gpu, device, at, values)
