"""What kernels reach: constants, and measured operators where they are used."""

from __future__ import annotations

import csv
from importlib import resources

import pytest

from headrace.hardware.catalogue import resolve
from headrace.perf.efficiency import OperatorClass, efficiencies
from headrace.perf.operator_table import measured
from headrace.perf.options import StepOptions
from headrace.quantities import Origin


def options(engine: str, version: tuple[int, ...], tp: int = 1) -> StepOptions:
    return StepOptions(engine=engine, engine_version=version, tp=tp)


def test_experts_in_fp8_are_measured_on_every_architecture_that_has_fp8_units() -> None:
    for gpu in ("H100 SXM", "H200 SXM", "B200 SXM", "B300 SXM"):
        found = efficiencies(resolve(gpu), options("sglang", (0, 5, 14))).of(OperatorClass.MOE, "fp8")
        assert found.bandwidth_fraction.origin is Origin.MEASURED
        assert gpu in found.bandwidth_fraction.source
        assert 0.5 < found.bandwidth_fraction.value <= 1.0
        assert found.adds


def test_a_gpu_that_nobody_measured_takes_its_architectures_and_a_wider_range() -> None:
    own = efficiencies(resolve("H200 SXM"), options("vllm", (0, 24, 0))).of(OperatorClass.MOE, "fp8")
    other = efficiencies(resolve("H20"), options("vllm", (0, 24, 0))).of(OperatorClass.MOE, "fp8")
    assert other.floor_seconds.origin is Origin.MEASURED
    assert "H20," not in other.floor_seconds.source

    def width(each: object) -> float:
        low, high = own.floor_seconds.range if each is own else other.floor_seconds.range
        return high / low

    assert width(other) > width(own)


def test_an_architecture_without_measurements_has_the_constants() -> None:
    found = efficiencies(resolve("MI300X"), options("vllm", (0, 19, 0))).of(OperatorClass.MOE, "fp8")
    assert found.bandwidth_fraction.origin is Origin.ASSUMED
    assert found == efficiencies(resolve("MI300X"), options("vllm", (0, 19, 0))).of(OperatorClass.MOE, "bf16")


def test_an_all_reduce_over_pcie_is_that_of_the_engine_version() -> None:
    """Two RTX PRO 6000: vLLM 0.19's own kernel starts at 13 µs, 0.24's at 4.2 (aiconfigurator's tables)."""
    device = resolve("RTX PRO 6000 Blackwell Server")
    old = efficiencies(device, options("vllm", (0, 19, 0), 2)).of(OperatorClass.ALL_REDUCE, "bf16")
    new = efficiencies(device, options("vllm", (0, 24, 0), 2)).of(OperatorClass.ALL_REDUCE, "bf16")
    assert old.floor_seconds.value == pytest.approx(13.05e-6)
    assert new.floor_seconds.value == pytest.approx(4.22e-6)
    eight = efficiencies(device, options("vllm", (0, 24, 0), 8)).of(OperatorClass.ALL_REDUCE, "bf16")
    assert eight.floor_seconds.value > 3 * new.floor_seconds.value


def test_over_nvlink_the_constant_stands() -> None:
    found = efficiencies(resolve("H100 SXM"), options("vllm", (0, 24, 0), 8))
    assert found.of(OperatorClass.ALL_REDUCE, "bf16").floor_seconds.origin is Origin.ASSUMED


def test_no_share_exceeds_what_long_streams_were_seen_to_reach() -> None:
    """1.46 of 1.792 TB/s on RTX PRO 6000 Server (81 %), measured."""
    found = efficiencies(resolve("RTX PRO 6000 Blackwell Server"), options("vllm", (0, 19, 0)))
    assert found.of(OperatorClass.GEMM, "bf16").bandwidth_fraction.value <= 0.82


def test_the_nearest_version_is_the_newest_that_is_not_newer() -> None:
    device = resolve("H200 SXM")
    for asked, expected in (
        ((0, 15, 0), (0, 14, 0)),
        ((0, 18, 0), (0, 18, 0)),
        ((0, 1, 0), (0, 14, 0)),
        (None, (0, 24, 0)),
    ):
        found = measured(device, "vllm", asked, "all-reduce 2", "bf16")
        assert found is not None
        assert found[0].version == expected
    assert measured(device, "vllm", None, "no such operator", "bf16") is None


def test_every_row_of_the_table_is_a_plausible_measurement() -> None:
    text = resources.files("headrace.perf").joinpath("data/operators.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) > 300
    for row in rows:
        assert 0.1 < float(row["floor_us"]) < 1000, row
        for name in ("bandwidth_fraction", "flop_fraction"):
            assert row[name] == "" or 0.01 < float(row[name]) < 1.5, row
        resolve(row["gpu"])
