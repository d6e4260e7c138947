"""The floor of a step, against arithmetic by hand."""

from __future__ import annotations

import pytest

from headrace.diagnose.floor import dtype_bytes, step_floor
from headrace.hardware.catalogue import resolve
from headrace.models.catalogue import resolve_model
from headrace.quantities import Origin, Quantity


def told(value: float, unit: str = "requests") -> Quantity:
    return Quantity(value, unit, Origin.REPORTED)


def test_a_dense_8b_on_an_h100() -> None:
    """Qwen3-8B: 36 layers, 8 kv heads of 128: 147,456 bytes per token in bf16.

    Parameters less the input embedding (8.19 B − 0.62 B) × 2 bytes = 15.1 GB; 16 × 1,000 tokens = 2.36 GB
    of KV.
    """
    floor = step_floor(
        resolve_model("Qwen/Qwen3-8B"),
        resolve("H100 SXM"),
        batch=told(16),
        context_tokens=told(1000, "tokens/request"),
    )
    assert floor is not None
    assert floor.parts["weights"].value == pytest.approx(15.1e9, rel=0.01)
    assert floor.parts["kv"].value == 16 * 1000 * 147_456
    assert floor.datasheet.value == pytest.approx((15.1e9 + 2.36e9) / 3350e9, rel=0.01)
    assert floor.achievable.value == pytest.approx(floor.datasheet.value / 0.815)
    assert floor.achievable.range[0] == pytest.approx(floor.datasheet.value)
    assert not floor.bound_by_compute


def test_at_a_thousand_requests_of_short_context_flops_bind() -> None:
    """1,024 × 2 × 7.6 GFLOP = 15.5 TFLOP: 17.6 ms at 0.89 of 989 TFLOPS; bytes take 5.7 ms."""
    floor = step_floor(
        resolve_model("Qwen/Qwen3-8B"),
        resolve("H100 SXM"),
        batch=told(1024),
        context_tokens=told(1, "tokens/request"),
    )
    assert floor is not None
    assert floor.bound_by_compute
    assert floor.seconds.value == pytest.approx(17.6e-3, rel=0.05)


def test_two_ranks_read_half_each() -> None:
    one, two = (
        step_floor(
            resolve_model("Qwen/Qwen3-8B"),
            resolve("H100 SXM"),
            batch=told(8),
            context_tokens=told(2000, "tokens/request"),
            tensor_parallel=ranks,
        )
        for ranks in (1, 2)
    )
    assert one is not None
    assert two is not None
    assert two.bytes.value == pytest.approx(one.bytes.value / 2, rel=0.001)


def test_the_floor_is_affine_in_the_batch() -> None:
    floors = [
        step_floor(
            resolve_model("Qwen/Qwen3.6-27B"),
            resolve("RTX PRO 6000 Blackwell Server"),
            batch=told(batch),
            context_tokens=told(1500, "tokens/request"),
        )
        for batch in (8, 32)
    ]
    small, large = floors
    assert small is not None
    assert large is not None
    assert small.at(32) == pytest.approx(large.achievable.value, rel=1e-6)


def test_a_device_without_a_known_bandwidth_has_no_floor() -> None:
    from dataclasses import replace

    device = replace(resolve("H100 SXM"), memory_bytes_per_second=None)
    assert step_floor(resolve_model("Qwen/Qwen3-8B"), device, batch=told(8), context_tokens=None) is None


@pytest.mark.parametrize(
    ("name", "width"),
    [("bf16", 2), ("BF16", 2), ("fp8_e4m3", 1), ("float16", 2), ("odd", None), (None, None)],
)
def test_widths(name: str | None, width: float | None) -> None:
    assert dtype_bytes(name) == width


def test_a_rough_floor_from_a_name() -> None:
    """70 B × 0.53 bytes = 37 GB over 936 GB/s is 39.6 ms at the data sheet."""
    from headrace.diagnose.floor import rough_floor

    card = resolve("RTX 3090")
    dense = rough_floor("someone/Great-70B-AWQ", card, batch=told(1))
    assert dense is not None
    assert dense.datasheet.value == pytest.approx(70e9 * 0.53 / 936.2e9)
    assert dense.bytes.origin is Origin.ASSUMED
    sparse = rough_floor("new/Thing-30B-A3B", card, batch=told(1), weights_dtype="bf16")
    assert sparse is not None
    assert sparse.bytes.value == 6e9
    assert rough_floor("new/Thing-30B-A3B", card, batch=told(8), weights_dtype="bf16") is None
    assert rough_floor("nameless", card, batch=told(1), weights_dtype="bf16") is None


@pytest.mark.parametrize(
    ("name", "width"),
    [("m-Q4_K_M.gguf", 0.5625), ("Qwen3-8B-FP8", 1), ("x-NVFP4", 0.56), ("Llama-3.1-8B", None), (None, None)],
)
def test_widths_by_name(name: str | None, width: float | None) -> None:
    from headrace.diagnose.floor import dtype_in

    assert dtype_in(name) == width
