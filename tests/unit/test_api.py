"""The commands as Python functions, worked against figures of the story and of data sheets."""

from __future__ import annotations

import pytest

import headrace
from headrace.errors import UsageError
from headrace.words import Constraint

GOLDEN = (
    "--context-length 8192 --mamba-scheduler-strategy extra_buffer --max-running-requests 64 "
    "--mem-fraction-static 0.85"
)


def test_plan_gives_the_golden_cap() -> None:
    """94.3 GiB free, 51.1 GiB of weights, a bf16 state of 74.8 MiB: 188 slots ÷ 5 = 37."""
    found = headrace.plan(
        model="Qwen/Qwen3.6-27B",
        gpu="RTX PRO 6000 Blackwell Server",
        engine_version="0.5.12",
        flags=GOLDEN + " --mamba-ssm-dtype bfloat16",
        free_gib=94.3,
        weights_gib=51.1,
    )
    assert found.plan.cap is not None
    assert int(found.plan.cap) == 37
    assert found.plan.cap_bound_by is Constraint.STATE_POOL
    assert found.explanations is None
    assert found.changes


def test_plan_says_which_untold_setting_explains_what_is_reported() -> None:
    found = headrace.plan(
        model="qwen3.6-27b",
        gpu="RTX PRO 6000 Blackwell Server",
        engine_version="0.5.12",
        flags=GOLDEN,
        free_gib=94.3,
        weights_gib=51.1,
        reported="cap=37,slots=188,kv=250905",
    )
    assert found.explanations is not None
    assert "bfloat16" in str(found.explanations[0])


def test_gpus_by_any_name() -> None:
    assert [device.name for device in headrace.gpus("NVIDIA H200")] == ["H200 SXM"]
    assert len(headrace.gpus("RTX PRO 6000 Blackwell")) == 3
    assert len(headrace.gpus()) >= 50
    with pytest.raises(UsageError):
        headrace.gpus("GeForce 9999")


def test_model() -> None:
    assert int(headrace.model("Qwen/Qwen3.6-27B").kv_bytes_per_token(2)) == 65_536


def test_emulate() -> None:
    with headrace.emulate() as fleet:
        assert fleet.urls


def test_all_public_names_are_there() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
