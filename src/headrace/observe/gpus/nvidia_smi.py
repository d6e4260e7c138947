"""nvidia-smi's CSV, from the command or from a file that somebody saved, in headrace's words.

nvidia-smi --query-gpu=timestamp,index,name,power.draw,… --format=csv -l 1 > gpu.csv
"""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headrace.errors import InputError, UsageError
from headrace.observe.gpus.columns import throttles
from headrace.observe.recording.writer import RecordingWriter

COLUMNS = {
    "power.draw": ("gpu_power_w", 1.0),
    "power.draw.instant": ("gpu_power_w", 1.0),
    "power.limit": ("gpu_power_limit_w", 1.0),
    "enforced.power.limit": ("gpu_power_limit_w", 1.0),
    "clocks.sm": ("sm_clock_mhz", 1.0),
    "clocks.current.sm": ("sm_clock_mhz", 1.0),
    "temperature.gpu": ("gpu_temp_c", 1.0),
    "utilization.gpu": ("gpu_utilization", 0.01),
    "memory.used": ("gpu_memory_used_gib", 1 / 1024),
}
"""Column of nvidia-smi → word and factor."""
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
ASKED = (
    "timestamp,index,name,power.draw,power.limit,clocks.sm,temperature.gpu,utilization.gpu,memory.used,"
    "clocks_throttle_reasons.active"
)  # the older name of the reasons: newer drivers still take it
LEAST_SECONDS = 5.0  # between two runs of the command: each costs some 50 ms of a core
COMMAND_SECONDS = 10.0
_UNIT = re.compile(r"\s*\[[^\]]*\]\s*$")
_NUMBER = re.compile(r"\s*(-?\d+(?:\.\d+)?)\b")
MAX_ROWS = 5_000_000


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One line: which GPU, when (Unix seconds by the machine's clock, None where not told), and values."""

    index: str
    device: str
    wall: float | None
    values: dict[str, float]


def is_gpu_csv(begin: str) -> bool:
    """Whether a text begins with the head of nvidia-smi's CSV."""
    names = _names(next(csv.reader(begin.splitlines()[:1]), []))
    return "index" in names and any(name in COLUMNS for name in names)


def read_rows(lines: Iterable[str]) -> Iterator[GpuRow]:
    """Yields the rows under a head; what is `[N/A]` or no number is left out."""
    reader = csv.reader(lines)
    names: list[str] = []
    for row, _ in zip(reader, range(MAX_ROWS), strict=False):
        if not names or _names(row) == names:
            names = _names(row)
            continue
        if len(row) != len(names):
            continue
        told = dict(zip(names, (cell.strip() for cell in row), strict=True))
        values: dict[str, float] = {}
        for name, (word, factor) in COLUMNS.items():
            found = _NUMBER.match(told.get(name, ""))
            if found is not None and word not in values:
                values[word] = float(found[1]) * factor
        for name in _REASONS:
            try:
                values.update(throttles(int(told[name], 16)))
            except (KeyError, ValueError):
                continue
        yield GpuRow(
            told.get("index", "0")[:8], told.get("name", "")[:80], _wall(told.get("timestamp")), values
        )


class NvidiaSmi:
    """Runs the command, at most every 5 seconds."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._next = 0.0

    async def sample(self, writer: RecordingWriter) -> None:
        at = writer.at()
        if at < self._next:
            return
        self._next = at + LEAST_SECONDS
        for row in read_rows((await ask()).splitlines()):
            writer.add_gpu(f"{self._host}/{row.index}", row.device, at, row.values)


async def ask() -> str:
    """What the command says now. Raises UsageError where there is none, or it fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            "nvidia-smi",
            f"--query-gpu={ASKED}",
            "--format=csv",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise UsageError(
            f"nvidia-smi cannot be run here: {error.strerror}. Record on the machine of the GPUs, or give "
            "dcgm:URL."
        ) from None
    try:
        said, _ = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return ""
    return said.decode("utf-8", "replace")[:1_000_000]


def read_gpu_file(path: Path) -> list[GpuRow]:
    """The rows of a saved CSV. Raises InputError where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as lines:
            return list(read_rows(lines))
    except (OSError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as nvidia-smi's CSV: {error}.") from None


def _names(row: list[str]) -> list[str]:
    return [_UNIT.sub("", cell).strip().lower() for cell in row]


def _wall(text: str | None) -> float | None:
    """2026/11/30 10:43:41.123, of the machine's own clock."""
    try:
        return datetime.strptime(text or "", "%Y/%m/%d %H:%M:%S.%f").timestamp()
    except ValueError:
        return None
