"""The GPU of a row."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from headrace.errors import UsageError
from headrace.forecast.reason import CannotJudge
from headrace.hardware.catalogue import Ambiguous, find
from headrace.hardware.device import Device
from headrace.quantities import Quantity

# What a name without form or edition most often means in a server; of several sizes the smallest memory, so
# that what is predicted to fit fits all. The other devices it might be stay in `candidates`.
_USUAL = (" SXM", " Server")
# One "GPU" that software sees is half of the card (its two dies are separate devices).
_DIES = {"MI250": 2, "MI250X": 2}


@lru_cache(maxsize=256)
def device_of(name: str) -> Device:
    """Returns the device that a table's GPU cell means.

    A name without form factor or edition is taken as the usual server card, with an assumption that says so.

    Raises:
        CannotJudge: no such GPU is known.
    """
    plain = re.sub(r"\(.*?\)", " ", name).strip()
    if not plain:
        raise CannotJudge("GPU not stated")
    try:
        found = find(plain)
    except UsageError as error:
        raise CannotJudge(f"GPU {name[:60]!r} is not known") from error
    if isinstance(found, Ambiguous):
        devices = sorted(found.candidates, key=_rank)
        names = tuple(device.name for device in found.candidates)
        told = f"{name!r} does not say which: taken as {devices[0].name}"
        return replace(devices[0], candidates=names, assumptions=(*devices[0].assumptions, told))
    return _one_die(found, _DIES[found.name]) if found.name in _DIES else found


def _rank(device: Device) -> tuple[int, float]:
    form = next((rank for rank, word in enumerate(_USUAL) if word in device.name), len(_USUAL))
    return form, device.memory_bytes.value


def _one_die(device: Device, dies: int) -> Device:
    """Returns one die of a card with several: its share of every figure."""

    def share(quantity: Quantity) -> Quantity:
        low = None if quantity.low is None else quantity.low / dies
        high = None if quantity.high is None else quantity.high / dies
        return replace(quantity, value=quantity.value / dies, low=low, high=high)

    bandwidth = device.memory_bytes_per_second
    return replace(
        device,
        memory_bytes=share(device.memory_bytes),
        usable_bytes=share(device.usable_bytes),
        free_before_load_bytes=share(device.free_before_load_bytes),
        memory_bytes_per_second=None if bandwidth is None else share(bandwidth),
        dense_flops_per_second={key: share(value) for key, value in device.dense_flops_per_second.items()},
        assumptions=(*device.assumptions, f"one GPU of a table is one of {dies} dies of a {device.name}"),
    )
