"""Devices in the terminal: the table of all, and one in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.hardware.device import Device
from headrace.quantities import Quantity
from headrace.report.amounts import amount, digits, origin
from headrace.report.figures import UNKNOWN, printable

_DTYPES = ("bf16", "fp8", "fp4")
_READ = (
    "Dense figures only, never 'with sparsity'. A dash: nobody published it. * sources conflict, the range "
    "is in `headrace gpus NAME`."
)


def devices_view(devices: Sequence[Device], note: str = "") -> RenderableType:
    """Returns the table of devices, 80 columns wide."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("GPU", no_wrap=True)
    for heading in ("GiB", "GB/s", *(f"{dtype}" for dtype in _DTYPES), "units", "W"):
        table.add_column(heading, justify="right", no_wrap=True)
    for device in devices:
        table.add_row(*device_cells(device))
    title = Text(f"{len(devices)} devices; bf16, fp8, fp4 in TFLOPS", style="bold")
    parts: list[RenderableType] = [title, table, Text(_READ, style="dim")]
    if note:
        parts.insert(0, Text(printable(note), style="yellow"))
    return Group(*parts)


def device_cells(device: Device) -> list[str]:
    """Returns one row of the table: name, memory, bandwidth, compute by dtype, units, power."""
    return [
        printable(device.name),
        f"{device.memory_bytes.value / 2**30:.1f}",
        _cell(device.memory_bytes_per_second, 1e9),
        *(_cell(device.dense_flops_per_second.get(dtype), 1e12) for dtype in _DTYPES),
        _cell(device.sm_count),
        _cell(device.power_watts),
    ]


def _cell(quantity: Quantity | None, unit: float = 1.0) -> str:
    if quantity is None:
        return UNKNOWN
    low, high = quantity.range
    value = quantity.value / unit
    return f"{value:.0f}" + ("*" if low != high else "") if value >= 10 else digits(value)


def device_view(device: Device) -> RenderableType:
    """Returns one device in full: every figure with range, origin and source."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, style="dim")
    for label, quantity in figures(device):
        table.add_row(label, amount(quantity), origin(quantity))
    parts: list[RenderableType] = [
        Text(printable(f"{device.name} · {device.vendor} {device.architecture}"), style="bold"),
        table,
        Text(printable(f"Link: {device.interconnect or UNKNOWN}")),
    ]
    parts += [Text(printable(f"Assumed: {told}"), style="yellow") for told in device.assumptions]
    parts.append(Text(printable(f"Source: {device.source}"), style="dim"))
    if device.notes:
        parts.append(Text(printable(f"Notes: {device.notes}"), style="dim"))
    parts.append(Text(_READ.partition(" * ")[0], style="dim"))
    return Group(*parts)


def figures(device: Device) -> Iterable[tuple[str, Quantity | None]]:
    """Yields (label, quantity) for every figure of a device, in the order that views show them."""
    yield "Memory", device.memory_bytes
    yield "Total for the runtime", device.usable_bytes
    yield "Free before weights", device.free_before_load_bytes
    yield "Memory bandwidth", device.memory_bytes_per_second
    for dtype in ("bf16", "fp16", "fp8", "fp4", "int8"):
        if dtype in device.dense_flops_per_second:
            yield f"Dense {dtype}", device.dense_flops_per_second[dtype]
    for name, quantity in device.measured.items():
        yield f"Seen: {name.removesuffix('_per_second').replace('_', ' ')}", quantity
    yield "SMs or compute units", device.sm_count
    yield "L2 cache", device.l2_bytes
    yield "Power", device.power_watts
    yield "Link, one direction", device.interconnect_bytes_per_second
