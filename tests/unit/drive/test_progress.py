"""Rates and time left, worked by hand."""

from __future__ import annotations

import pytest

from headrace.drive.progress import Progress, SourceCount


def test_the_rate_counts_what_is_in_flight() -> None:
    """4 requests always in flight, 10 tokens/s each, so 40 tokens/s from the first second; each answer
    has 100 tokens after 10 s. At 15 s four have finished and the next four are 5 s old."""
    progress = Progress(0.0, [SourceCount()])
    progress.sample(0.0, {"a": 0.0}, {"a": (0, 0)})
    assert progress.rates().tokens_per_second is None
    for _ in range(4):
        progress.answered(0, 100, 10.0, [])
    progress.sample(15.0, {"a": 4 * 5.0}, {"a": (4, 400)})
    rates = progress.rates()
    assert rates.tokens_per_second == pytest.approx(40.0)  # (400 + 4·5·10) ÷ 15
    assert rates.finished_tokens_per_second == pytest.approx(400 / 15)
    assert rates.requests_per_second == pytest.approx(4 / 15)
    assert rates.by_server == {"a": pytest.approx(40.0)}
    assert not progress.settled(20.9)
    assert progress.settled(21.0)  # two latencies, and a second for the last of them to land


def test_the_window_forgets_the_beginning() -> None:
    progress = Progress(0.0, [SourceCount()])
    for second in range(200):
        if second >= 100:
            progress.answered(0, 30, 1.0, [])
        progress.sample(float(second), {}, {"a": (progress.answers, progress.tokens)})
    assert progress.rates().finished_tokens_per_second == pytest.approx(30.0)


def test_time_left_goes_by_the_tokens_of_each_source() -> None:
    progress = Progress(0.0, [SourceCount(), SourceCount(), SourceCount()])
    progress.answered(0, 100, 1.0, [])
    progress.answered(1, 900, 9.0, ["truncated"])
    # 10·100 + 2·900 + 4·500 (the third source has not been seen: the mean of all stands in) − 800 = 4,000
    assert progress.eta_seconds([10, 2, 4], 800.0, 50.0) == pytest.approx(80.0)
    assert progress.eta_seconds([10, 2, 4], 800.0, None) is None
    assert progress.sources[1].truncated == 1
    assert progress.flags["truncated"] == 1


def test_nothing_is_known_before_the_first_answer() -> None:
    progress = Progress(0.0, [SourceCount()])
    assert progress.expected_tokens(0, 512.0) == 512.0
    assert progress.median_latency() is None
    assert progress.in_flight_tokens(10.0) is None
    assert progress.eta_seconds([5], 0.0, 10.0) is None
