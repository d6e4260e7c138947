"""Step time against running batch on public traces of vLLM 0.19.0 on RTX PRO 6000 (LLMServingSim, MIT).

Seconds in which no prompt was computed, so that a step is a decode step. Targets: at most 15 % off before
calibration, 5 % on the second half after calibrating on the first (medians).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.hardware.catalogue import resolve
from headrace.models.catalogue import resolve_model
from headrace.perf.options import StepOptions
from headrace.perf.step_model import StepModel
from tests.unit.perf.machines import shared
from tests.unit.perf.traces import Second, seconds_of

FOLDER = shared()
TRACES = [
    pytest.param("llmservingsim-RTXPRO6000-Llama-3.1-8B", "meta-llama/Llama-3.1-8B", 1, id="8B"),
    pytest.param("llmservingsim-RTXPRO6000-Qwen3-32B", "Qwen/Qwen3-32B", 2, id="32B on two"),
]
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the public traces are not at hand")


def _step(model: str, tp: int) -> StepModel:
    options = StepOptions(
        "vllm", (0, 19, 0), tp=tp, overlap=True, chunk_tokens=2048, mixes_prefill=True, prefill_graphs=True
    )
    return StepModel(resolve_model(model), resolve("RTX PRO 6000 Blackwell Server"), options)


def _decoding(trace: str) -> list[Second]:
    assert FOLDER is not None
    return [
        second
        for second in seconds_of(Path(FOLDER, "data", "traces", trace))
        if not second.prompt_tokens_per_second
    ]


def _errors(step: StepModel, seconds: list[Second]) -> np.ndarray:
    return np.array(
        [step.decode_seconds(s.running, s.context_tokens) / s.step_seconds - 1.0 for s in seconds]
    )


@pytest.mark.parametrize(("trace", "model", "tp"), TRACES)
def test_before_calibration(trace: str, model: str, tp: int) -> None:
    seconds = _decoding(trace)
    assert len(seconds) >= 15
    step = _step(model, tp)
    assert np.median(np.abs(_errors(step, seconds))) <= 0.15
    inside = [
        (found := step.decode_estimate(s.running, s.context_tokens)).low <= s.step_seconds <= found.high
        for s in seconds
    ]
    assert np.mean(inside) >= 0.75


@pytest.mark.parametrize(("trace", "model", "tp"), TRACES)
def test_after_calibrating_on_the_first_half(trace: str, model: str, tp: int) -> None:
    assert FOLDER is not None
    whole = seconds_of(Path(FOLDER, "data", "traces", trace))
    middle = whole[-1].at / 2
    first = [s for s in whole if s.at <= middle and not s.prompt_tokens_per_second]
    second = [s for s in whole if s.at > middle and not s.prompt_tokens_per_second]
    step = _step(model, tp)
    found = step.calibrate([s.sample() for s in first])
    assert found.correction is not None, found.reason
    assert np.median(np.abs(_errors(step.corrected(found.correction), second))) <= 0.05
