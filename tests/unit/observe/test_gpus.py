"""GPU counters from NVML, nvidia-smi's CSV and a DCGM page; and whose they are.

The CSV is in the form that `nvidia-smi --format=csv` documents; bits of clocks' event reasons are those of
nvml.h (0x4 software power cap, 0x40 hardware thermal slowdown); the DCGM page is in the exporter's own form.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from headrace.clock import VirtualClock
from headrace.durable.disk import RealDisk
from headrace.errors import UsageError
from headrace.observe.gpus.beside import gpu_columns
from headrace.observe.gpus.dcgm import read_page
from headrace.observe.gpus.nvidia_smi import is_gpu_csv, read_rows
from headrace.observe.gpus.nvml import Nvml
from headrace.observe.recording.kept import record_targets
from headrace.observe.recording.observed import read_recorded
from headrace.observe.recording.writer import RecordingWriter
from headrace.observe.target import Options, read_targets

HEAD = (
    "timestamp, index, name, power.draw [W], power.limit [W], clocks.current.sm [MHz], temperature.gpu, "
    "utilization.gpu [%], memory.used [MiB], clocks_throttle_reasons.active"
)
CSV = f"""{HEAD}
2026/11/30 10:00:00.000, 0, NVIDIA RTX PRO 6000 Blackwell, 580.10 W, 600.00 W, 2400 MHz, 71, 100 %, 90112 MiB, 0x0000000000000004
2026/11/30 10:00:00.010, 1, NVIDIA RTX PRO 6000 Blackwell, 300.00 W, 600.00 W, 2600 MHz, 60, 50 %, 90112 MiB, 0x0000000000000000
2026/11/30 10:00:01.000, 0, NVIDIA RTX PRO 6000 Blackwell, 590.10 W, 600.00 W, 2300 MHz, 73, 100 %, 90112 MiB, 0x0000000000000040
2026/11/30 10:00:01.010, 1, NVIDIA RTX PRO 6000 Blackwell, [N/A], 600.00 W, 2600 MHz, 60, 50 %, 90112 MiB, 0x0000000000000000
"""  # noqa: E501


def test_the_csv_is_read_by_its_head() -> None:
    assert is_gpu_csv(CSV)
    assert not is_gpu_csv("question,answer\n1,2\n")
    rows = list(read_rows(CSV.splitlines()))
    assert [row.index for row in rows] == ["0", "1", "0", "1"]
    first = rows[0].values
    assert first["gpu_power_w"] == 580.1
    assert first["gpu_utilization"] == 1.0
    assert first["gpu_memory_used_gib"] == 88.0
    assert (first["throttle_power_percent"], first["throttle_thermal_percent"]) == (100, 0)
    assert (rows[2].values["throttle_power_percent"], rows[2].values["throttle_thermal_percent"]) == (0, 100)
    assert "gpu_power_w" not in rows[3].values
    assert gpu_columns(rows)["0"].seconds.tolist() == [0.0, 1.0]


def test_hostile_csv_is_no_crash() -> None:
    for text in (HEAD, f"{HEAD}\n,,,\n", f"{HEAD}\n" + "x," * 9 + "0xzz", "index\n\0\n"):
        list(read_rows(text.splitlines()))


def test_a_csv_beside_a_server_is_its_gpus(tmp_path: Path) -> None:
    gpu = tmp_path / "gpu.csv"
    gpu.write_text(CSV)
    facts = tmp_path / "facts.yaml"
    facts.write_text("schema_version: 1\nengine: sglang\n")
    (server,) = read_targets([str(facts), str(gpu)], Options(seconds=0)).servers
    assert server.value("gpu_power_w") == pytest.approx((585.1 + 300) / 2)
    assert server.value("throttle_power_percent") == 25  # half the time of one of two GPUs
    assert server.value("sm_clock_mhz_min") == 2300
    assert server.by_rank["gpu_power_w_by_rank"] == {"0": pytest.approx(585.1), "1": 300}


def test_a_dcgm_page_in_headraces_words() -> None:
    page = b"""# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",modelName="NVIDIA H200",Hostname="n1"} 512.3
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",modelName="NVIDIA H200",Hostname="n1"} 97
DCGM_FI_DEV_FB_USED{gpu="0",modelName="NVIDIA H200",Hostname="n1"} 131072
DCGM_FI_DEV_GPU_UTIL{gpu="1",GPU_I_ID="3",modelName="NVIDIA H200",Hostname="n1"} 5
DCGM_FI_DEV_SM_CLOCK{gpu="2",modelName="NVIDIA H200",Hostname="n1"} NaN
"""
    assert read_page(page) == {
        "n1/0": ("NVIDIA H200", {"gpu_power_w": 512.3, "gpu_utilization": 0.97, "gpu_memory_used_gib": 128.0})
    }


class Library:
    """pynvml's functions, of two GPUs: one in order, one that has no power counter."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def nvmlInit(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, device: int) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        if device:
            raise self.NVMLError("Not Supported")
        return 612_500

    def nvmlDeviceGetEnforcedPowerLimit(self, device: int) -> int:
        return 700_000

    def nvmlDeviceGetClockInfo(self, device: int, kind: int) -> int:
        return 1980

    def nvmlDeviceGetTemperature(self, device: int, kind: int) -> int:
        return 55

    def nvmlDeviceGetUtilizationRates(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=98)

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(used=64 * 2**30)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: int) -> int:
        return 0x24


def test_nvml_gives_the_same_words_and_a_recording_of_gpus_alone_is_read(tmp_path: Path) -> None:
    clock = VirtualClock()
    writer = RecordingWriter(tmp_path / "r", RealDisk(), clock, every_seconds=1.0)
    nvml = Nvml("n1", Library())
    for _ in range(3):
        asyncio.run(nvml.sample(writer))
        clock.advance(1.0)
    writer.close()
    (server,) = read_recorded(tmp_path / "r").servers
    assert server.gpu == "NVIDIA H200"
    assert server.value("gpu_power_w") == 612.5  # the other GPU has none
    assert server.value("gpu_utilization") == 0.98
    assert server.value("throttle_power_percent") == server.value("throttle_thermal_percent") == 100
    assert server.by_rank["gpu_utilization_by_rank"] == {"n1/0": 0.98, "n1/1": 0.98}
    assert np.isfinite(server.columns["sm_clock_mhz"]).all()


def test_what_cannot_be_recorded_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        record_targets(["server.log", "dcgm"], tmp_path / "r", for_seconds=1.0, every_seconds=0.01)
    assert len(refused.value.problems) == 3
    assert not (tmp_path / "r").exists()
