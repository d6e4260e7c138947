"""Finding a GPU by any name: a person's, nvidia-smi's, a cloud's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UsageError
from headrace.hardware.catalogue import Ambiguous, find
from headrace.hardware.device import Device
from headrace.hardware.rows import devices

# nvidia-smi's and rocm-smi's own names, and what people type.
ONE = {
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "H100 SXM5": "H100 SXM",
    "h100-sxm5-80gb": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "H100 94GB": "H100 NVL",
    "NVIDIA H200": "H200 SXM",
    "H200 NVL": "H200 NVL",
    "NVIDIA B200": "B200 SXM",
    "NVIDIA B300 SXM6 AC": "B300 SXM",
    "NVIDIA GB200": "GB200",
    "NVIDIA GH200 480GB": "GH200 96GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
    "A100-SXM4-40GB": "A100 SXM 40GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
    "A100-PCIE-40GB": "A100 PCIe 40GB",
    "Tesla V100-SXM2-32GB": "V100 SXM2",
    "Tesla V100-SXM2-16GB": "V100 SXM2 16GB",
    "Tesla T4": "T4",
    "NVIDIA L40S": "L40S",
    "L40": "L40",
    "L4": "L4",
    "NVIDIA A10G": "A10G",
    "A10": "A10",
    "NVIDIA H20": "H20",
    "H20-3e": "H20-3e",
    "H20 141GB": "H20-3e",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "rtx4090": "RTX 4090",
    "4090": "RTX 4090",
    "RTX 5090 31.4 GiB": "RTX 5090",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "6000 ada": "RTX 6000 Ada",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Blackwell Server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Blackwell Workstation",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX PRO 6000 Blackwell Max-Q",
    "pro 6000 max-q": "RTX PRO 6000 Blackwell Max-Q",
    "RTX PRO 6000 Server, 96 GB GDDR7": "RTX PRO 6000 Blackwell Server",
    "8x H100 SXM": "H100 SXM",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI300X OAM": "MI300X",
    "MI300X": "MI300X",
    "NVIDIA GB10": "DGX Spark GB10",
    "DGX Spark": "DGX Spark GB10",
    "Gaudi2": "Gaudi 2",
    "Intel Arc Pro B60": "Arc Pro B60",
    "v6e": "TPU v6e",
}
PRO_6000 = {
    "RTX PRO 6000 Blackwell Workstation",
    "RTX PRO 6000 Blackwell Server",
    "RTX PRO 6000 Blackwell Max-Q",
}
SEVERAL = {
    "RTX PRO 6000": PRO_6000,
    "RTX PRO 6000 Blackwell": PRO_6000,
    "6000 pro": PRO_6000,
    "rtxpro6000": PRO_6000,
    "8 x RTX PRO 6000 96GB": PRO_6000,
    "RTX 6000": PRO_6000 | {"RTX 6000 Ada"},
    "H100": {"H100 SXM", "H100 PCIe", "H100 NVL"},
    "H100 80GB": {"H100 SXM", "H100 PCIe"},
    "A100": {"A100 SXM 40GB", "A100 SXM 80GB", "A100 PCIe 80GB", "A100 PCIe 40GB"},
    "A100 80GB": {"A100 SXM 80GB", "A100 PCIe 80GB"},
    "GH200": {"GH200 144GB", "GH200 96GB"},
}
OTHER_CARDS = [
    "RTX 4090 Laptop GPU",
    "RTX 4090 D",
    "RTX 3090 Ti",
    "RTX PRO 6000D",
    "GTX 1080",
    "Blackwell",
    "",
]


@pytest.mark.parametrize(("name", "expected"), ONE.items())
def test_a_name_that_means_one_card(name: str, expected: str) -> None:
    found = find(name)
    assert isinstance(found, Device), f"{name} fits several"
    assert found.name == expected


@pytest.mark.parametrize(("name", "expected"), SEVERAL.items())
def test_a_name_that_fits_several(name: str, expected: set[str]) -> None:
    found = find(name)
    assert isinstance(found, Ambiguous)
    assert {device.name for device in found.candidates} == expected


@pytest.mark.parametrize("name", OTHER_CARDS)
def test_another_card_is_not_taken_for_a_known_one(name: str) -> None:
    with pytest.raises(UsageError, match="YAML"):
        find(name)


def test_the_nearest_name_is_in_the_error() -> None:
    with pytest.raises(UsageError, match="Did you mean 'rtx 3090'"):
        find("RTX 3090 Ti")


@given(
    st.sampled_from(devices()),
    st.sampled_from(["{}", "NVIDIA {}", "  {} ", "{} GPU", "4 x {}"]),
    st.sampled_from([str.upper, str.lower, str.title, str]),
    st.sampled_from([" ", "-", "_", "  "]),
)
def test_a_devices_own_name_finds_it_however_it_is_written(
    device: Device, form: str, case: type[str], between: str
) -> None:
    found = find(form.format(case(device.name).replace(" ", between)))
    names = {found.name} if isinstance(found, Device) else {one.name for one in found.candidates}
    assert device.name in names


@given(st.text(max_size=300))
def test_any_text_is_a_device_several_or_a_usage_error(text: str) -> None:
    try:
        found = find(text)
    except UsageError:
        return
    assert isinstance(found, Device) or len(found.candidates) > 1
