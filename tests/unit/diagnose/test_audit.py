"""Assumptions are perturbed, and those that matter are told with what settles them."""

from __future__ import annotations

from tests.unit.diagnose.stories import HYBRID, judged, told


def test_an_unsaid_load_that_decides_is_told() -> None:
    found = judged(told(HYBRID, client={"load": None}))
    (text,) = (text for text in found.assumptions if text.startswith("if the load"))
    assert "the verdict becomes memory_bandwidth" in text
    assert "--load given settles it" in text


def test_a_stated_load_is_no_assumption() -> None:
    assert not any(text.startswith("if the load") for text in judged(HYBRID).assumptions)


def test_editions_of_a_gpu_are_told_only_where_they_matter() -> None:
    """Workstation and Server have the same memory and bandwidth: they change nothing."""
    found = judged(told(HYBRID, gpu="RTX PRO 6000 Blackwell"))
    assert not any("Server" in text and text.startswith("if ") for text in found.assumptions)
    ambiguous = judged(told(HYBRID, gpu="A100", model="Qwen/Qwen3-8B", flags="--context-length 4096"))
    assert any("fits" in text for text in ambiguous.assumptions)
