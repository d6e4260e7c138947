"""The golden case's table, every row: a 27B hybrid on a 96 GB card under SGLang 0.5.12.

Expected values are those worked by hand from the engine's formulas (94.3 GiB free, 51.1 GiB weights): slots
within one, caps exact, KV tokens within 2 %.
"""

from __future__ import annotations

import pytest

from headrace.words import Constraint
from tests.unit.engines.planning import GOLDEN, plan, sizes

EXTRA, NONE = "--mamba-scheduler-strategy extra_buffer", "--mamba-scheduler-strategy no_buffer"
OFF = f"{NONE} --disable-radix-cache"
# flags beside context and attention back end → (slots, cap, KV thousands) with a bf16 and with a float32
# state
TABLE = [
    (f"{EXTRA} --mem-fraction-static 0.85 --max-running-requests 64", (188, 37, 251), (95, 19, 253)),
    (f"{EXTRA} --mem-fraction-static 0.92 --max-running-requests 64", (231, 46, 308), (117, 23, 309)),
    (f"{NONE} --mem-fraction-static 0.85 --max-running-requests 64", (188, 62, 251), (95, 31, 253)),
    (f"{NONE} --mem-fraction-static 0.92 --max-running-requests 64", (231, 64, 308), (117, 39, 309)),
    (f"{OFF} --mem-fraction-static 0.85 --max-running-requests 64", (64, 64, 399), (64, 64, 326)),
    (f"{OFF} --mem-fraction-static 0.85 --max-running-requests 96", (96, 96, 361), (96, 96, 250)),
    (f"{OFF} --mem-fraction-static 0.85 --max-running-requests 128", (128, 128, 323), (128, 128, 175)),
    (f"{OFF} --mem-fraction-static 0.92 --max-running-requests 128", (128, 128, 431), (128, 128, 283)),
]
CASES = [
    (flags + f" --mamba-ssm-dtype {dtype}", expected)
    for flags, *both in TABLE
    for dtype, expected in zip(("bfloat16", "float32"), both, strict=True)
]


@pytest.mark.parametrize(("flags", "expected"), CASES)
def test_the_table(flags: str, expected: tuple[int, int, int]) -> None:
    slots, cap, thousands = expected
    found = plan(f"--context-length 8192 --attention-backend flashinfer {flags}")
    got_slots, got_cap, got_tokens = sizes(found)
    assert got_cap == cap
    assert got_slots is not None
    assert abs(got_slots - slots) <= 1
    assert got_tokens == pytest.approx(thousands * 1000, rel=0.02)


def test_the_golden_flags_with_a_bf16_state_are_bound_by_the_state_pool() -> None:
    found = plan(f"{GOLDEN} --mamba-ssm-dtype bfloat16")
    assert found.cap is not None
    assert (found.cap.value, found.cap_bound_by) == (37, Constraint.STATE_POOL)
    assert found.figure("slots_per_request") == 5
    assert found.figure("kv_bytes_per_token") == 65_536


def test_no_buffer_at_a_higher_fraction_is_bound_by_the_flag() -> None:
    found = plan(
        GOLDEN.replace("extra_buffer", "no_buffer").replace("0.85", "0.92 --mamba-ssm-dtype bfloat16")
    )
    assert found.cap_bound_by is Constraint.MAX_RUNNING_REQUESTS
    rungs = [(rung.constraint, rung.running.value) for rung in found.ladder]
    assert rungs[:2] == [(Constraint.MAX_RUNNING_REQUESTS, 64), (Constraint.STATE_POOL, 77)]


def test_the_ladder_has_the_kv_pool_where_the_context_is_known() -> None:
    # 160 with the 188 slots kept: 250,905 ÷ 1,568
    found = plan(f"{GOLDEN} --mamba-ssm-dtype bfloat16", context=1568)
    ladder = [(str(rung.constraint), rung.running.value) for rung in found.ladder]
    assert ladder[:3] == [("state_pool", 37), ("max_running_requests", 64), ("kv_pool", 160)]


@pytest.mark.parametrize(("dtype", "running"), [("bfloat16", 172), ("float32", 121)])
def test_with_the_radix_cache_off_state_and_kv_share_one_rung(dtype: str, running: int) -> None:
    flags = GOLDEN.replace("extra_buffer", "no_buffer --disable-radix-cache")
    found = plan(f"{flags} --mamba-ssm-dtype {dtype}", context=1568)
    assert [str(r.constraint) for r in found.ladder][:2] == ["max_running_requests", "kv_pool"]
    assert found.ladder[1].running.value == running


def test_every_figure_unfolds_to_what_was_told_and_to_defaults() -> None:
    found = plan(f"{GOLDEN} --mamba-ssm-dtype bfloat16")
    leaves = {name.rsplit(".", 1)[-1]: leaf.origin for name, leaf in found.figures["state_slots"].leaves()}
    assert leaves["ratio"] == "default"
    assert leaves["free"] == "user"
    assert leaves["ssm_bytes"] == "configured"


def test_newer_rules_pay_for_the_padding_slot_and_the_vision_cache() -> None:
    # SGLang's own code on these inputs, 0.5.23: 186 / 94 slots, caps 37 / 18 and 45 / 23
    flags = GOLDEN.replace("scheduler-strategy", "radix-cache-strategy")
    for dtype, fraction, expected in (
        ("bfloat16", "0.85", (186, 37)),
        ("float32", "0.85", (94, 18)),
        ("bfloat16", "0.92", (229, 45)),
        ("float32", "0.92", (116, 23)),
    ):
        line = flags.replace("0.85", fraction) + f" --mamba-ssm-dtype {dtype}"
        assert sizes(plan(line, version="0.5.23"))[:2] == expected
