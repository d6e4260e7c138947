"""Finding a device by name: `find` says what fits, `resolve` decides, asks, or goes on with a range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import UsageError, nearest
from headrace.hardware.device import Device
from headrace.hardware.names import MAX_NAME, matching, squeeze
from headrace.hardware.rows import devices
from headrace.quantities import Origin, Quantity

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A name that fits several devices."""

    name: str
    candidates: tuple[Device, ...]


Ask = Callable[[Ambiguous], Device | None]


def find(name: str) -> Device | Ambiguous:
    """Returns the device that a name means, or all that it fits.

    Raises UsageError for an unknown name; the message has the nearest known ones and how to describe a
    device.
    """
    found = matching(name, devices())
    if len(found) == 1:
        return found[0]
    if found:
        return Ambiguous(name, found)
    known = {device.name.lower(): device.name for device in devices()}
    near = nearest(squeeze(name, " "), known)
    raise UsageError(
        f"GPU {name[:MAX_NAME]!r} is not known; {len(known)} are, headrace gpus lists them.{near} Another "
        "one can be described in a YAML file, given in place of the name: docs/gpus.md has its fields"
    )


def resolve(name: str, ask: Ask | None = None) -> Device:
    """Returns one device for a name, or for the path of a YAML file that describes one.

    Args:
        name: any name that `find` takes, or a path ending in .yaml or .yml.
        ask: called for an ambiguous name, at a terminal; None as its answer means: go on with the range.
            Without it the device stands for all candidates: every figure has their range, `assumptions`
            says so.

    Raises UsageError for an unknown name, InputError for a file that describes no device.
    """
    if name.endswith((".yaml", ".yml")):
        from headrace.hardware.described import described_device

        return described_device(Path(name))
    found = find(name)
    if isinstance(found, Device):
        return found
    chosen = ask(found) if ask is not None else None
    return chosen if chosen is not None else spanning(found)


def spanning(ambiguous: Ambiguous) -> Device:
    """Returns one device that stands for several.

    Memory is the smallest of them, so that a plan fits all; other figures are midway; each has the whole
    range and the origin assumed. A figure that some of them lack keeps the range of the others.
    """
    candidates = ambiguous.candidates
    first = candidates[0]
    names = tuple(device.name for device in candidates)
    shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    told = (
        f"{ambiguous.name!r} fits {len(names)} devices ({shown}): figures are their range; name one of them"
    )

    def sure(pick: Callable[[Device], Quantity]) -> Quantity:
        return _span([pick(device) for device in candidates], smallest=True)

    def maybe(pick: Callable[[Device], Quantity | None]) -> Quantity | None:
        values = [value for device in candidates if (value := pick(device)) is not None]
        return _span(values) if values else None

    dtypes = {dtype for device in candidates for dtype in device.dense_flops_per_second}
    flops = {dtype: _dense(candidates, dtype) for dtype in sorted(dtypes)}
    capabilities = {device.compute_capability for device in candidates}
    links = {device.interconnect for device in candidates}
    return replace(
        first,
        name=f"{ambiguous.name} ({' or '.join(names[:3])}{' …' if len(names) > 3 else ''})",
        architecture=" or ".join(dict.fromkeys(device.architecture for device in candidates)),
        compute_capability=first.compute_capability if len(capabilities) == 1 else None,
        memory_bytes=sure(lambda device: device.memory_bytes),
        usable_bytes=sure(lambda device: device.usable_bytes),
        free_before_load_bytes=sure(lambda device: device.free_before_load_bytes),
        memory_bytes_per_second=maybe(lambda device: device.memory_bytes_per_second),
        dense_flops_per_second=flops,
        measured=_common(candidates),
        sm_count=maybe(lambda device: device.sm_count),
        l2_bytes=maybe(lambda device: device.l2_bytes),
        power_watts=maybe(lambda device: device.power_watts),
        interconnect=first.interconnect
        if len(links) == 1
        else " or ".join(sorted(link for link in links if link)),
        interconnect_bytes_per_second=maybe(lambda device: device.interconnect_bytes_per_second),
        source="; ".join(dict.fromkeys(device.source for device in candidates)),
        notes="",
        aliases=(),
        candidates=names,
        assumptions=(told,),
    )


def _dense(candidates: Sequence[Device], dtype: str) -> Quantity:
    """Returns the range of the dense figures of those that have one for this dtype."""
    return _span([d.dense_flops_per_second[dtype] for d in candidates if dtype in d.dense_flops_per_second])


def _common(candidates: Sequence[Device]) -> Mapping[str, Quantity]:
    """Returns the measured ceilings that all candidates have; one measured on another card is no evidence
    here."""
    shared = set(candidates[0].measured).intersection(*(device.measured for device in candidates))
    return {name: _span([device.measured[name] for device in candidates]) for name in sorted(shared)}


def _span(values: Sequence[Quantity], *, smallest: bool = False) -> Quantity:
    """Returns one quantity over several; the value itself, unchanged, where all agree."""
    low = min(value.range[0] for value in values)
    high = max(value.range[1] for value in values)
    middle = min(value.value for value in values) if smallest else (low + high) / 2
    if all(value.value == values[0].value and value.range == values[0].range for value in values):
        return values[0]
    return Quantity(middle, values[0].unit, Origin.ASSUMED, "range over the candidates", low=low, high=high)
