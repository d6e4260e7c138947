"""The kernel against a plain reference that walks every pass: same events, same order, same times."""

from __future__ import annotations

import pytest

from headrace.engines.sglang import schedule
from headrace.engines.sglang.rules import MemoryRules
from tests.unit.simulate.random_fleets import differences, random_fleet, through_kernel


@pytest.mark.parametrize("start", range(0, 100, 50))
def test_random_fleets_are_walked_exactly(start: int) -> None:
    """Times to 1e-9, order of events, servers, retractions, outcomes. Many more are in tests/system."""
    found = {seed: wrong for seed in range(start, start + 50) if (wrong := differences(seed))}
    assert not found


@pytest.mark.parametrize(
    ("constant", "value", "seed"),
    [
        ("MIN_TOKEN_RATIO_FACTOR", 0.15, 22),
        ("TOKEN_RATIO_DECAY_STEPS", 650, 19),
        ("CLIP_TOKENS", 4000, 22),
        ("PREFILL_FIRST", False, 1),
        ("INIT_TOKEN_RATIO", 0.72, 1),
    ],
)
def test_a_changed_constant_shows(
    constant: str, value: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number of the scheduler matters: with another one the reference disagrees on this fleet."""
    assert not differences(seed)
    monkeypatch.setattr(schedule, constant, value)
    assert differences(seed)


def test_another_number_of_slots_per_request_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MemoryRules.slots_per_request
    monkeypatch.setattr(MemoryRules, "slots_per_request", lambda self, **how: whole(self, **how) + 1)
    assert differences(28)


@pytest.mark.parametrize("seed", range(0, 200, 4))
def test_no_token_appears_or_is_lost(seed: int) -> None:
    """What was generated is in finished answers or was thrown away, and nothing else."""
    found = through_kernel(random_fleet(seed))
    finished = sum(
        made for made, outcome in zip(found["made"], found["outcome"], strict=True) if outcome == 1
    )
    assert found["completed"] == finished
    if found["done"]:
        assert found["generated"] == found["completed"] + found["lost"]


def test_the_random_fleets_reach_what_they_are_for() -> None:
    """Retractions on both engines, and fleets that cannot finish, are among them."""
    fleets = [random_fleet(seed) for seed in range(120)]
    found = [through_kernel(fleet) for fleet in fleets]
    retracted = {fleet["engine"] for fleet, one in zip(fleets, found, strict=True) if sum(one["retractions"])}
    assert retracted == {"sglang", "vllm"}
    assert any(not one["done"] for one in found)
    assert any(fleet["incidents"] for fleet in fleets)
