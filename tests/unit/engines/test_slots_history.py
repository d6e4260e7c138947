"""S, the state slots per request, through SGLang's history; and how a version nobody read is answered."""

from __future__ import annotations

import pytest

from tests.unit.engines.planning import plan

BASE = "--mem-fraction-static 0.85 --max-running-requests 64"
NEXTN = "--speculative-algorithm NEXTN"
# facts on engines §1.5: the table and its version history
HISTORY = [
    ("0.5.3", "", 1),  # slots themselves, no ratio
    ("0.5.5", "", 3),
    ("0.5.6", "--disable-radix-cache", 1),
    ("0.5.7", "--mamba-scheduler-strategy extra_buffer", 5),
    ("0.5.9", f"--mamba-scheduler-strategy extra_buffer {NEXTN}", 4),
    ("0.5.9", "--mamba-scheduler-strategy extra_buffer", 5),
    ("0.5.12", "", 3),  # auto is no_buffer
    ("0.5.12", "--disable-radix-cache", 1),
    ("0.5.12", "--mamba-scheduler-strategy extra_buffer", 5),
    ("0.5.12", "--mamba-scheduler-strategy extra_buffer --disable-overlap-schedule", 4),
    ("0.5.12", "--mamba-scheduler-strategy extra_buffer --pp-size 2", 4),
    ("0.5.13", "--mamba-scheduler-strategy extra_buffer_lazy", 4),
    ("0.5.14", "", 5),  # auto is extra_buffer
    ("0.5.23", "", 5),
    ("0.5.23", "--mamba-radix-cache-strategy extra_buffer_lazy", 4),
    ("0.5.23", "--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule", 3),
    ("0.5.23", "--disable-overlap-schedule", 3),  # auto without overlap
    ("0.5.23", "--disable-radix-cache --mamba-radix-cache-strategy extra_buffer", 1),
]


@pytest.mark.parametrize(("version", "flags", "slots"), HISTORY)
def test_slots_per_request(version: str, flags: str, slots: int) -> None:
    assert plan(f"{BASE} {flags}", version=version).figure("slots_per_request") == slots


def test_the_decode_lock_skipped_saves_a_slot_of_the_buffered_strategies_only() -> None:
    skip = "SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1 python -m sglang.launch_server"
    assert plan(f"{skip} {BASE}", version="0.5.17").figure("slots_per_request") == 4
    assert plan(f"{skip} {BASE}", version="0.5.16").figure("slots_per_request") == 5
    off = "--mamba-radix-cache-strategy no_buffer --disable-overlap-schedule"
    assert plan(f"{skip} {BASE} {off}", version="0.5.17").figure("slots_per_request") == 3


@pytest.mark.parametrize(
    ("told", "used"), [("0.5.2", "0.5.3"), ("0.6.1", "0.5.23"), ("", "0.5.23"), ("main", "0.5.23")]
)
def test_versions_outside_take_the_nearest_rules_and_say_so(told: str, used: str) -> None:
    found = plan(BASE, version=told)
    assert str(found.settings.rules.version) == used
    assert any(used in notice.text for notice in found.settings.notices)


def test_a_post_release_is_its_release() -> None:
    found = plan(BASE, version="0.5.12.post1")
    assert found.settings.notices == plan(BASE).settings.notices


def test_fixed_slots_before_the_ratio() -> None:
    assert (
        plan("--mem-fraction-static 0.95 --mamba-ssm-dtype bfloat16", version="0.5.3").figure("state_slots")
        == 512
    )
    assert plan(f"{BASE} --mamba-ssm-dtype bfloat16", version="0.5.3").figure("state_slots") == 64
    off = "--mem-fraction-static 0.95 --mamba-ssm-dtype bfloat16 --disable-radix-cache"
    assert plan(off, version="0.5.8").figure("state_slots") == 512
    assert plan(off, version="0.5.9").figure("state_slots") != 512


def test_drafts_take_their_states_before_the_split_then_with_it() -> None:
    # 0.5.12: 64 requests × 4 drafts × 74.8 MiB = 18.7 GiB, and the float32 state does not fit at all
    flags = f"{BASE} {NEXTN} --mamba-scheduler-strategy extra_buffer --mamba-ssm-dtype"
    found = plan(f"{flags} bfloat16")
    assert found.figure("draft_state_bytes") == pytest.approx(18.7 * 2**30, rel=0.002)
    assert not plan(f"{flags} float32").would_start
    # 0.5.13 solves both from one budget: it starts
    assert plan(f"{flags} float32", version="0.5.13").would_start
