"""Phases, change points and drift on series whose answer is known: by hand, and 1 Hz series of real vLLM."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from headrace.observe.change_points import THRESHOLD, change_points
from headrace.observe.drift import drift
from headrace.observe.observation import Column
from headrace.observe.phases import find_phases

HOUR = 3600.0


def noisy(level: Column | float, seconds: Column, share: float, seed: int = 0) -> Column:
    return level * (1 + share * np.random.default_rng(seed).normal(size=len(seconds)))


def test_the_ages_mix_two_latencies_after_an_empty_start() -> None:
    # golden case: 2,600 tokens × 50 ms = 130 s; steady from 260 s on, not at 280 s with a full turn
    seconds = np.arange(0.0, 281.0)
    running = np.where(seconds < 3, 8.0, 32.0)
    phases = find_phases(seconds, running, latency_seconds=130.0, began_empty=True)
    assert phases is not None
    assert phases.steady_seconds is None
    assert phases.full_from_seconds == 3
    assert phases.ready_in_seconds == pytest.approx(260 + 130 - 280)
    later = np.arange(0.0, 601.0)
    phases = find_phases(later, np.full(601, 32.0), latency_seconds=130.0, began_empty=True)
    assert phases is not None
    assert phases.steady_seconds == (260.0, 600.0)


def test_a_stretch_within_a_job_is_steady_from_its_first_sample() -> None:
    seconds = np.arange(0.0, 300.0)
    phases = find_phases(seconds, np.full(300, 32.0), latency_seconds=130.0)
    assert phases is not None
    assert phases.steady_seconds == (0.0, 299.0)
    assert not phases.began_with_ramp


def test_without_a_latency_a_ramp_has_no_steady_window() -> None:
    seconds = np.arange(0.0, 300.0)
    phases = find_phases(seconds, np.minimum(seconds, 32.0), latency_seconds=None)
    assert phases is not None
    assert phases.steady_seconds is None
    assert "latency is not known" in phases.why
    assert find_phases(seconds, np.zeros(300), latency_seconds=10.0) is None


def test_a_drain_ends_the_window_and_no_waiting_brings_it_back() -> None:
    seconds = np.arange(0.0, 1000.0)
    running = np.where(seconds < 500, 32.0, np.maximum(0.0, 32 - (seconds - 500) / 10))
    phases = find_phases(seconds, running, latency_seconds=50.0)
    assert phases is not None
    assert phases.drained
    assert phases.full_until_seconds == pytest.approx(564, abs=1)  # 0.8 × 32 = 25.6 at 564 s
    short = find_phases(seconds, running, latency_seconds=700.0)
    assert short is not None
    assert short.steady_seconds is None
    assert short.ready_in_seconds is None


@pytest.mark.parametrize("seed", range(20))
def test_a_step_of_the_rate_moves_the_window_behind_it(seed: int) -> None:
    seconds = np.arange(0.0, 2 * HOUR, 5.0)
    rate = noisy(np.where(seconds < 5000, 1000.0, 750.0), seconds, 0.08, seed)
    phases = find_phases(seconds, np.full(len(seconds), 64.0), rate, latency_seconds=200.0)
    assert phases is not None
    (change,) = phases.changes
    assert change.seconds == pytest.approx(5000, abs=130)  # a block is 120 s
    assert (change.before, change.after) == (pytest.approx(1000, rel=0.02), pytest.approx(750, rel=0.02))
    assert phases.steady_seconds == (change.seconds, seconds[-1])


def test_noise_alone_has_no_change() -> None:
    seconds = np.arange(0.0, 3600.0)
    found = [
        change_points(seconds, noisy(1000.0, seconds, 0.5, seed), least_seconds=60.0) for seed in range(300)
    ]
    assert sum(bool(one) for one in found) <= 1
    # and the threshold itself: the largest standardised CUSUM of 60 independent blocks
    random, most = np.random.default_rng(1), []
    for _ in range(2000):
        block = random.normal(size=60)
        left = np.arange(1, 60)
        sums = np.cumsum(block)[:-1]
        noise = 1.4826 * np.median(np.abs(np.diff(block))) / np.sqrt(2)
        gap = np.abs(sums / left - (block.sum() - sums) / (60 - left))
        most.append((gap / (noise * np.sqrt(1 / left + 1 / (60 - left))))[2:57].max())
    assert np.mean(np.array(most) > THRESHOLD) < 0.002
    assert 3.7 < np.percentile(most, 99) < 4.2


def series(folder: Path) -> tuple[Column, Column, Column]:
    rows = list(csv.DictReader((folder / "timeseries.csv").read_text().splitlines()))
    t, running, rate = (
        np.array([float(row[key]) for row in rows]) for key in ("t", "running", "gen_throughput")
    )
    return t, running, rate


@pytest.mark.parametrize(
    ("name", "full_from", "full_until"),
    # read off the recorded tables: 103 running is 80 % of the 128 slots; the queue is empty at 50 s and 126 s
    [("Llama-3.1-8B", (10, 11), (51, 52)), ("Qwen3-32B", (16, 17), (127, 128))],
)
def test_a_recorded_run_of_vllm_falls_into_ramp_full_and_drain(
    shared: Path, name: str, full_from: tuple[float, float], full_until: tuple[float, float]
) -> None:
    folder = shared / "data" / "traces" / f"llmservingsim-RTXPRO6000-{name}"
    requests = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    latency = float(np.mean([one["last_token_ts"] - one["scheduled_ts"] for one in requests]))
    phases = find_phases(*series(folder), latency_seconds=latency)
    assert phases is not None
    assert phases.began_with_ramp
    assert phases.drained
    assert full_from[0] <= phases.full_from_seconds <= full_from[1]
    assert full_until[0] <= phases.full_until_seconds <= full_until[1]
    # 300 requests over 128 slots are 2.3 turns: no time for two latencies and one turn. None, for good.
    assert phases.steady_seconds is None
    assert phases.ready_in_seconds is None


def test_drift_against_the_jobs_own_first_hour() -> None:
    seconds = np.arange(0.0, 12 * HOUR, 10.0)
    rate = noisy(
        1000 - 10 * seconds / HOUR, seconds, 0.05
    )  # 1 % an hour: from 995 to 885 between the middles
    found = drift(seconds, rate, block_seconds=130.0)
    assert found is not None
    assert found.share == pytest.approx(-110 / 995, abs=0.01)
    assert found.certain
    assert drift(seconds[:600], rate[:600], block_seconds=130.0) is None  # under two hours


def test_no_drift_is_not_certain_more_often_than_its_level() -> None:
    seconds = np.arange(0.0, 4 * HOUR, 10.0)
    found = [drift(seconds, noisy(500.0, seconds, 0.1, seed), block_seconds=130.0) for seed in range(200)]
    assert sum(one.certain for one in found if one is not None) <= 19  # binomial(200, 0.05): 99 % below 19
