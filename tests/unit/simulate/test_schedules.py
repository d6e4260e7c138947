"""What a launch line makes of the scheduler: numbers of `facts/engines.md` §1.4, §1.5, §1.7, §2, §4."""

from __future__ import annotations

import pytest

from headrace.engines.sglang.schedule import SglangSchedule
from headrace.engines.vllm.schedule import VllmSchedule
from headrace.errors import InputError
from headrace.hardware.catalogue import resolve
from headrace.models.catalogue import resolve_model
from headrace.simulate.question import ServerAsked
from headrace.simulate.scheduling import Schedule, schedule_of

GOLDEN = (
    "--max-running-requests 64 --mem-fraction-static 0.85 --mamba-ssm-dtype bfloat16 --context-length 8192"
)


def scheduled(
    flags: str, engine: str = "sglang", version: str = "0.5.12", model: str = "Qwen3.6-27B"
) -> Schedule:
    server = ServerAsked(
        resolve_model(model), resolve("RTX PRO 6000 Blackwell Server"), engine, version, flags, 94.3, 51.1
    )
    return schedule_of(server.plan())


@pytest.mark.parametrize(
    ("strategy", "slots", "held", "checkpoint", "reuse", "overlap"),
    [
        ("--mamba-scheduler-strategy extra_buffer", 5, 3, 64, 64, True),
        ("--mamba-scheduler-strategy extra_buffer --disable-overlap-schedule", 4, 2, 64, 64, False),
        ("--mamba-scheduler-strategy no_buffer", 3, 1, 1, 0, False),
        ("--mamba-scheduler-strategy no_buffer --disable-radix-cache", 1, 1, 0, 0, True),
    ],
)
def test_states_by_strategy(
    strategy: str, slots: int, held: int, checkpoint: int, reuse: int, overlap: bool
) -> None:
    """§1.5: reserved 5, 4, 3, 1; held while decoding 3–4, 2–3, 1–2, 1. §2.3: no_buffer has no reuse."""
    found = scheduled(f"{GOLDEN} {strategy}")
    assert isinstance(found, SglangSchedule)
    assert found.slots_per_request == slots
    assert (found.states_held, found.checkpoint_tokens) == (held, checkpoint)
    assert (found.prefix_tokens, found.overlap) == (reuse, overlap)


def test_golden_cap_comes_from_188_slots() -> None:
    found = scheduled(f"{GOLDEN} --mamba-scheduler-strategy extra_buffer")
    assert isinstance(found, SglangSchedule)
    assert (found.state_slots, found.cap) == (188, 37)
    assert found.chunk_tokens == 8192  # §1.1: a card below 160 GiB
    assert found.prefill_tokens == 16384


def test_new_token_ratio_by_conservativeness() -> None:
    """§2.2: init = min(0.7 × conservativeness, 1), floor init × 0.14."""
    plain = scheduled(f"{GOLDEN} --mamba-scheduler-strategy extra_buffer")
    bold = scheduled(f"{GOLDEN} --mamba-scheduler-strategy extra_buffer --schedule-conservativeness 0.3")
    timid = scheduled(f"{GOLDEN} --mamba-scheduler-strategy extra_buffer --schedule-conservativeness 2")
    assert isinstance(plain, SglangSchedule)
    assert isinstance(bold, SglangSchedule)
    assert isinstance(timid, SglangSchedule)
    assert plain.init_ratio == pytest.approx(0.7)
    assert plain.min_ratio == pytest.approx(0.098)
    assert bold.init_ratio == pytest.approx(0.21)
    assert timid.init_ratio == 1.0


def test_a_plain_model_has_no_states_and_reuses_pages() -> None:
    found = scheduled("--context-length 8192", model="Qwen3-8B")
    assert isinstance(found, SglangSchedule)
    assert (found.state_slots, found.states_held, found.prefix_tokens) == (None, 0, found.page_tokens)


def test_vllm_hybrid_blocks() -> None:
    """§4.1: fp32 states make blocks of 784 tokens; one block of each of 3 groups, 2 with align."""
    old = scheduled("--max-num-seqs 128 --max-model-len 8192", "vllm", "0.20.2")
    assert isinstance(old, VllmSchedule)
    assert (old.block_tokens, old.full_groups, old.state_blocks) == (784, 1, 3)
    assert (old.prefix_tokens, old.align_tokens) == (0, 0)
    new = scheduled("--max-num-seqs 128 --max-model-len 8192", "vllm", "0.33.0")
    assert isinstance(new, VllmSchedule)
    assert (new.state_blocks, new.prefix_tokens, new.align_tokens) == (6, 784, 784)
    assert new.cap == 128
    assert new.budget_tokens == 8192


def test_a_line_that_would_not_start_is_not_simulated() -> None:
    with pytest.raises(InputError, match="would not start"):
        scheduled("--mamba-scheduler-strategy extra_buffer --disable-radix-cache")
