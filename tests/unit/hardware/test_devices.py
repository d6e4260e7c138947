"""The device table: figures as published, ranges where sources conflict, nothing sparse."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from headrace.hardware.catalogue import find
from headrace.hardware.device import Device
from headrace.hardware.rows import devices
from headrace.quantities import Origin

GIB = 2**30


def device(name: str) -> Device:
    found = find(name)
    assert isinstance(found, Device)
    return found


def test_there_are_at_least_fifty_and_every_one_has_a_source() -> None:
    assert len(devices()) >= 50
    assert len({one.name for one in devices()}) == len(devices())
    assert all(one.source for one in devices())


# NVIDIA data sheets, dense: H100 SXM 989.4 bf16, 3,350 GB/s; A100 312; H200 4,800 GB/s; B200 2,250 bf16.
@pytest.mark.parametrize(
    ("name", "bandwidth", "bf16", "fp8"),
    [
        ("H100 SXM", 3350e9, 989e12, 1978e12),
        ("A100 SXM 80GB", 2039e9, 312e12, None),
        ("H200 SXM", 4800e9, 989e12, 1978e12),
        ("B200 SXM", 7700e9, 2250e12, 4500e12),
        ("RTX PRO 6000 Blackwell Server", 1792e9, 467.8e12, 935.6e12),
        ("MI300X", 5300e9, 1307.4e12, 2614.9e12),
    ],
)
def test_published_figures(name: str, bandwidth: float, bf16: float, fp8: float | None) -> None:
    one = device(name)
    assert one.memory_bytes_per_second is not None
    assert one.memory_bytes_per_second.value == bandwidth
    assert one.dense_flops_per_second["bf16"].value == bf16
    assert (one.dense_flops_per_second["fp8"].value if fp8 else None) == fp8


def test_conflicting_sources_give_a_range() -> None:
    bandwidth = device("RTX PRO 6000 Max-Q").memory_bytes_per_second
    assert bandwidth is not None
    assert bandwidth.range == (1597e9, 1792e9)
    assert device("B200").memory_bytes_per_second.range == (7700e9, 8000e9)  # type: ignore[union-attr]


def test_editions_stay_apart() -> None:
    watts = {one.name: one.power_watts for one in devices() if "PRO 6000" in one.name}
    assert {name.rsplit(" ", 1)[1]: quantity.value for name, quantity in watts.items() if quantity} == {
        "Workstation": 600,
        "Server": 600,
        "Max-Q": 300,
    }


def test_what_is_free_before_weights_on_an_rtx_pro_6000() -> None:
    # SGLang boot logs on this card: 94.0 … 94.5 GiB; torch calls 94.97 GiB its total.
    one = device("RTX PRO 6000 Blackwell Server")
    assert one.memory_bytes.value == 97_887 * 2**20
    assert one.usable_bytes.value / GIB == pytest.approx(94.97)
    assert one.free_before_load_bytes.value / GIB == pytest.approx(94.3, abs=0.01)
    assert one.free_before_load_bytes.origin is Origin.ASSUMED
    low, high = one.free_before_load_bytes.range
    assert low / GIB < 94.0
    assert high / GIB > 94.5


@pytest.mark.parametrize("one", devices(), ids=lambda one: one.name)
def test_every_row_is_sane(one: Device) -> None:
    assert 0 < one.free_before_load_bytes.value < one.usable_bytes.value <= one.memory_bytes.value
    for quantity in (one.memory_bytes, one.memory_bytes_per_second, *one.dense_flops_per_second.values()):
        assert quantity is not None
        low, high = quantity.range
        assert 0 < low <= quantity.value <= high
    dense = one.dense_flops_per_second
    for narrow, wide in (("fp8", "bf16"), ("fp4", "fp8")):
        if narrow in dense and wide in dense:
            # a sparse figure would be 4 times or more
            assert 0.99 <= dense[narrow].value / dense[wide].range[1] <= 3.2


def test_every_accelerator_of_the_collected_table_is_there(shared: Path) -> None:
    known = {one.name for one in devices()}
    with (shared / "data" / "hardware.csv").open(newline="") as stream:
        assert {row["gpu"] for row in csv.DictReader(stream)} <= known
