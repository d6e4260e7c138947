"""The device table: one CSV row per accelerator, read into `Device`.

A cell is a number, `~number` (derived by us, the notes say how) or empty (nobody published it), and may be
followed by a range `[low..high]` where sources conflict. Figures are dense.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources

from headrace.hardware.device import Device
from headrace.quantities import Origin, Quantity, derived

GIB = 2**30
MIB = 2**20
# What the runtime calls total lies below what nvidia-smi shows: by 0.27 GiB (V100) … 0.75 (A100 80GB) in the
# rows that have both, read from out-of-memory messages in public logs, 2024–2026; taken off in the others.
_HIDDEN_GIB = (0.27, 0.55, 0.75)
# From there to what is free before weights are loaded: CUDA context and communicator. RTX PRO 6000: 94.97 GiB
# total, 94.0…94.5 free in SGLang boot logs ("Load weight begin. avail mem"), 94.3 taken; a 24 GB card at tp 2
# whose total is 23.5 had 22.93.
_CONTEXT_GIB = (0.40, 0.67, 1.00)
_CELL = re.compile(r"(~?)([\d.]+)(?: \[([\d.]+)\.\.([\d.]+)\])?")
_MEASURED = re.compile(r"(\w+)=([\d.e]+) \(([^)]*)\)")
_TFLOPS = {
    "bf16": "bf16_tflops",
    "fp16": "fp16_tflops",
    "fp8": "fp8_tflops",
    "fp4": "fp4_tflops",
    "int8": "int8_tops",
}


@lru_cache(maxsize=1)
def devices() -> tuple[Device, ...]:
    """Returns every device of the table, in its order."""
    text = resources.files("headrace.hardware").joinpath("data/devices.csv").read_text(encoding="utf-8")
    return tuple(_device(row) for row in csv.DictReader(text.splitlines()))


def _device(row: Mapping[str, str]) -> Device:
    source = row["source"]
    memory = _cell(row["memory_mib"], "bytes", source, MIB) or _marketed(row["memory_gb"], source)
    usable = _cell(row["usable_gib"], "bytes", "total in out-of-memory messages of public logs", GIB)
    usable = usable or usable_from(memory, hidden=row["vendor"] == "NVIDIA")
    flops = {dtype: _cell(row[column], "FLOP/s", source, 1e12) for dtype, column in _TFLOPS.items()}
    return Device(
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        compute_capability=float(row["compute_capability"]) if row["compute_capability"] else None,
        memory_bytes=memory,
        usable_bytes=usable,
        free_before_load_bytes=free_from(usable),
        memory_bytes_per_second=_cell(row["bandwidth_gb_s"], "bytes/s", source, 1e9),
        dense_flops_per_second={dtype: quantity for dtype, quantity in flops.items() if quantity is not None},
        measured=dict(_measured(row["measured"])),
        sm_count=_cell(row["sms"], "units", source),
        l2_bytes=_cell(row["l2_mb"], "bytes", source, MIB),
        power_watts=_cell(row["power_w"], "W", source),
        interconnect=row["interconnect"],
        interconnect_bytes_per_second=_cell(row["link_gb_s"], "bytes/s", source, 1e9),
        source=source,
        notes=row["notes"],
        aliases=tuple(alias for alias in row["aliases"].split("|") if alias),
        marketed_gb=float(row["memory_gb"]),
    )


def _cell(cell: str, unit: str, source: str, factor: float = 1.0) -> Quantity | None:
    """Returns the cell as a quantity, None for an empty one. Raises ValueError for one that is neither."""
    if not cell:
        return None
    match = _CELL.fullmatch(cell)
    if match is None:
        raise ValueError(f"device table: {cell!r} is not a number with an optional [low..high]")
    ours, value, low, high = match.groups()
    return Quantity(
        float(value) * factor,
        unit,
        Origin.DERIVED if ours else Origin.DATASHEET,
        source,
        low=float(low) * factor if low else None,
        high=float(high) * factor if high else None,
    )


def _marketed(cell: str, source: str) -> Quantity:
    """Returns a memory of which only the marketed size is known: DRAM comes in GiB, some of it may be
    switched off."""
    size = float(cell)
    return Quantity(size * GIB, "bytes", Origin.DATASHEET, source, low=size * 1e9, high=size * GIB)


def _measured(cell: str) -> Iterator[tuple[str, Quantity]]:
    for name, value, how in _MEASURED.findall(cell):
        unit = "FLOP/s" if "flops" in name else "bytes/s"
        yield name, Quantity(float(value), unit, Origin.MEASURED, how)


def usable_from(memory: Quantity, *, hidden: bool = True) -> Quantity:
    """Returns what the runtime will call total, where only the whole memory is known; origin assumed, with
    a range."""
    least, usual, most = _HIDDEN_GIB if hidden else (0.0, 0.02, 0.5)
    return Quantity(
        memory.value - usual * GIB,
        "bytes",
        Origin.ASSUMED,
        f"{usual:g} GiB less than the whole memory, as other cards have it",
        {"memory": memory},
        low=memory.range[0] - most * GIB,
        high=memory.range[1] - least * GIB,
    )


def free_from(usable: Quantity) -> Quantity:
    """Returns what is free before weights are loaded: less the context and the communicator; origin
    assumed."""
    least, usual, most = _CONTEXT_GIB
    free = derived(usable.value - usual * GIB, "bytes", f"usable − {usual:g} GiB of context", usable=usable)
    return Quantity(
        free.value,
        "bytes",
        Origin.ASSUMED,
        f"{usual:g} GiB less than the runtime's total, for CUDA context and communicator",
        free.inputs,
        low=usable.range[0] - most * GIB,
        high=usable.range[1] - least * GIB,
    )
