"""An ambiguous name asks, or goes on with the range; an unknown GPU can be described in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import InputError, UsageError
from headrace.hardware.catalogue import Ambiguous, resolve
from headrace.hardware.device import Device
from headrace.quantities import Origin

DESCRIBED = """
name: Prototype 9000
memory_gib: 128
free_before_load_gib: 126.5
bandwidth_gb_per_second: 4000
dense_tflops: {bf16: 1200, fp8: 2400}
power_watts: 800
source: vendor's sheet
"""


def test_an_ambiguous_name_goes_on_with_the_range_and_says_so() -> None:
    device = resolve("RTX PRO 6000 Blackwell")
    assert len(device.candidates) == 3
    assert "name one" in device.assumptions[0]
    assert device.power_watts is not None
    assert device.power_watts.range == (300, 600)
    assert device.power_watts.origin is Origin.ASSUMED
    bf16 = device.dense_flops_per_second["bf16"]
    assert bf16.range == (440e12, 503.8e12)
    assert device.memory_bytes.origin is Origin.DATASHEET  # the same on all three
    assert not device.measured  # measured on one of them only


def test_memory_of_several_is_the_smallest() -> None:
    device = resolve("A100")
    assert device.memory_bytes.value == 40_960 * 2**20
    assert device.memory_bytes.range == (40_960 * 2**20, 81_920 * 2**20)


def test_a_terminal_is_asked() -> None:
    asked: list[Ambiguous] = []

    def ask(ambiguous: Ambiguous) -> Device:
        asked.append(ambiguous)
        return ambiguous.candidates[1]

    assert resolve("RTX PRO 6000", ask).name == "RTX PRO 6000 Blackwell Server"
    assert resolve("H200", ask).name == "H200 SXM"
    assert len(asked) == 1


def test_an_answer_of_nothing_means_the_range() -> None:
    assert resolve("H100", lambda _: None).candidates


def test_an_unknown_gpu_is_described_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prototype.yaml"
    path.write_text(DESCRIBED)
    device = resolve(str(path))
    assert device.name == "Prototype 9000"
    assert device.free_before_load_bytes.value == 126.5 * 2**30
    assert device.memory_bytes_per_second is not None
    assert device.memory_bytes_per_second.value == 4e12
    assert device.memory_bytes_per_second.origin is Origin.USER
    assert device.dense_flops_per_second["fp8"].value == 2.4e15
    assert device.l2_bytes is None


def test_a_described_gpu_without_free_memory_gets_an_assumed_one(tmp_path: Path) -> None:
    path = tmp_path / "small.yml"
    path.write_text("name: Small\nmemory_gib: 24\n")
    device = resolve(str(path))
    assert device.free_before_load_bytes.origin is Origin.ASSUMED
    assert 22 < device.free_before_load_bytes.value / 2**30 < 23


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: X\n", "memory_gib"),
        ("name: X\nmemory_gib: -4\n", "greater than 0"),
        ("name: X\nmemory_gib: 24\nspeed: 9\n", "speed"),
        ("name: X\nmemory_gib: 24\ndense_tflops: {fp12: 3}\n", "fp12"),
        ("- just\n- a list\n", "mapping"),
        ("name: [unclosed\n", "not YAML"),
        ("name: !!python/object/apply:os.system ['true']\n", "not YAML"),
    ],
)
def test_a_file_that_describes_nothing_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        resolve(str(path))


def test_a_missing_file_and_a_huge_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        resolve(str(tmp_path / "nowhere.yaml"))
    huge = tmp_path / "huge.yaml"
    huge.write_text("#" * 70_000)
    with pytest.raises(InputError, match="64 KiB"):
        resolve(str(huge))


def test_an_unknown_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="headrace gpus lists them"):
        resolve("Voodoo 2")
