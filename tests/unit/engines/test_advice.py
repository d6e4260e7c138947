"""Next changes, the inverse, and which untold setting explains reported numbers."""

from __future__ import annotations

import time

import pytest

from headrace.engines import planner
from headrace.engines.advice import explain, next_changes, parse_reported, solutions
from headrace.engines.launch_line import LaunchLine
from headrace.engines.plan import MemoryPlan
from headrace.engines.sglang.planner import PLANNER
from headrace.errors import UsageError
from tests.unit.engines.planning import GOLDEN, plan

BF16 = f"{GOLDEN} --mamba-ssm-dtype bfloat16"
NEWER = GOLDEN.replace("scheduler-strategy", "radix-cache-strategy")


def test_a_bf16_state_explains_cap_37() -> None:
    found = explain(PLANNER, plan(GOLDEN), {"cap": 37})
    assert [part.change for part in found[0].untold] == ["--mamba-ssm-dtype bfloat16"]


def test_reported_sizes_leave_one_explanation() -> None:
    found = explain(PLANNER, plan(GOLDEN), parse_reported("cap=37,slots=188,kv=250905,weights=51.1"))
    assert [e.text for e in found] == ["bfloat16 recurrent state"]


def test_a_line_that_agrees_needs_nothing() -> None:
    found = explain(PLANNER, plan(BF16), {"cap": 37, "slots": 188})
    assert [e.untold for e in found] == [()]


def test_two_settings_where_one_is_not_enough() -> None:
    flags = "--mem-fraction-static 0.85 --context-length 8192"
    # 0.5.12, bf16 state, no_buffer: cap 62; nobody said either the dtype or the strategy
    found = explain(PLANNER, plan(flags), {"cap": 37, "slots": 188})
    changes = {frozenset(part.change for part in e.untold) for e in found}
    assert frozenset({"--mamba-ssm-dtype bfloat16", "--mamba-scheduler-strategy extra_buffer"}) in changes


def test_numbers_that_nothing_explains() -> None:
    assert explain(PLANNER, plan(GOLDEN), {"cap": 37, "slots": 400, "kv": 12}) == []


@pytest.mark.parametrize("text", ["cap", "caps=3", "cap=many"])
def test_what_is_reported_is_read_strictly(text: str) -> None:
    with pytest.raises(UsageError):
        parse_reported(text)


def test_changes_come_by_cost_and_each_lifts_the_cap() -> None:
    before = plan(GOLDEN, context=1568)
    found = next_changes(PLANNER, before)
    assert [change.candidate.cost_rank for change in found] == sorted(c.candidate.cost_rank for c in found)
    assert all(change.cap > 19 for change in found)
    # a bf16 state is an accuracy choice, never the first proposal
    assert found[0].candidate.lever != "state_dtype"
    assert found[-1].candidate.lever == "state_dtype"
    by_lever = {change.candidate.lever: change for change in found}
    assert by_lever["radix_cache_off"].cap == max(change.cap for change in found) == 96
    assert not by_lever["radix_cache_off"].plan.settings["disable_overlap_schedule"]
    assert by_lever["fewer_buffers"].plan.settings["disable_overlap_schedule"]


def test_radix_off_for_one_shot_prompts_with_a_bf16_state() -> None:
    by_lever = {change.candidate.lever: change for change in next_changes(PLANNER, plan(BF16, context=1568))}
    assert by_lever["radix_cache_off"].cap == 128


@pytest.mark.parametrize("version", ["0.5.14", "0.5.19", "0.5.23"])
def test_changes_speak_the_versions_flags(version: str) -> None:
    for change in next_changes(PLANNER, plan(NEWER, version=version, context=1568)):
        assert change.plan.would_start
        assert "--mamba-scheduler-strategy" not in change.line
    assert "lazy_buffers" in {c.candidate.lever for c in next_changes(PLANNER, plan(NEWER, version=version))}


def test_the_running_flag_is_the_change_where_it_binds() -> None:
    found = next_changes(PLANNER, plan(f"{BF16} --disable-radix-cache --mamba-scheduler-strategy no_buffer"))
    assert found[0].candidate.lever in {"running_flag", "memory_fraction"}


def test_the_inverse_finds_each_knob_and_says_which_cannot() -> None:
    before = plan(BF16, context=1568)
    ways = {way.knob: way for way in solutions(PLANNER, before, 60)}
    assert ways["slots"].change == "--max-mamba-cache-size 300"
    assert ways["strategy no_buffer"].change == "--mamba-scheduler-strategy no_buffer"
    assert ways["radix cache off"].change is not None
    assert ways["memory fraction"].change is None
    for way in ways.values():
        if way.change is not None:
            line = before.inputs.line.changed(way.change, PLANNER.table, before.inputs.rules.version)
            after = PLANNER.plan(before.inputs.with_line(line))
            assert after.cap is not None
            assert after.cap.value >= 60


def test_the_inverse_fraction_is_the_least() -> None:
    before = plan(BF16)
    way = next(way for way in solutions(PLANNER, before, 46) if way.knob == "memory fraction")
    assert way.change is not None
    fraction = float(way.change.rsplit(" ", 1)[1])

    def cap(at: float) -> float:
        line = before.inputs.line.changed(
            f"--mem-fraction-static {at:.3f}", PLANNER.table, before.inputs.rules.version
        )
        found: MemoryPlan = PLANNER.plan(before.inputs.with_line(line))
        return found.cap.value if found.cap else 0

    assert cap(fraction) >= 46 > cap(fraction - 0.001)


def test_vllm_changes() -> None:
    vllm = planner("vllm")
    flags = "--kv-cache-memory-bytes 20GiB --max-model-len 8192"
    refused = plan(flags, engine="vllm", version="0.33.0", context=1568)
    assert next_changes(vllm, refused)[0].candidate.change == "--max-num-seqs 417"
    small = plan(f"{flags} --max-num-seqs 16", engine="vllm", version="0.33.0", context=1568)
    changes = {change.candidate.lever: change for change in next_changes(vllm, small)}
    assert changes["running_flag"].cap == 416 // 8


def test_a_plan_takes_less_than_ten_milliseconds() -> None:
    before = plan(BF16, context=1568)
    start = time.perf_counter()
    for _ in range(20):
        PLANNER.plan(before.inputs)
    assert (time.perf_counter() - start) / 20 < 0.010


def test_lines_are_edited_not_rebuilt() -> None:
    line = LaunchLine.parse(
        "A=1 python -m sglang.launch_server --model-path m --port 30001", PLANNER.table, PLANNER.newest
    )
    assert line.changed("--tp 2", PLANNER.table, PLANNER.newest).text() == (
        "A=1 python -m sglang.launch_server --model-path m --port 30001 --tp 2"
    )
