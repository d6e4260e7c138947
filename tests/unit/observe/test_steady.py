"""Windows without ramp and drain; counters that step, stand still and go back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.observe.steady import growth, steady_window, typical

NAN = float("nan")


def test_ramp_and_drain_are_left_out() -> None:
    running = np.array([0, 4, 12, 30, 32, 31, 32, 30, 9, 1, 0], dtype=float)
    first, last, window = steady_window(np.arange(11.0) * 10, running)
    assert (first, last) == (3, 7)
    assert (window.start_seconds, window.end_seconds, window.samples) == (30, 70, 5)
    assert (window.seconds, window.whole_seconds) == (40, 100)


@pytest.mark.parametrize("running", [None, np.zeros(3), np.full(3, NAN)])
def test_without_running_requests_it_is_all_there_is(running: np.ndarray | None) -> None:
    assert steady_window(np.arange(3.0), running)[:2] == (0, 2)


def test_a_dip_inside_stays_in() -> None:
    assert steady_window(np.arange(5.0), np.array([10.0, 10, 1, 10, 10]))[:2] == (0, 4)


def test_growth_of_a_smooth_counter() -> None:
    grown = growth(np.arange(5.0), np.array([10.0, 20, 30, 40, 50]))
    assert grown is not None
    assert (grown.per_second, grown.resets) == (10, 0)


def test_growth_of_a_counter_that_steps_is_taken_from_step_to_step() -> None:
    # 70 tokens each 7 s, seen each second over 40 s that begin 3 s after a step: exactly 10 a second
    seconds = np.arange(41.0)
    values = np.floor((seconds + 3) / 7) * 70
    grown = growth(seconds, values)
    assert grown is not None
    assert grown.per_second == pytest.approx(10)
    plain = (values[-1] - values[0]) / 40
    assert abs(plain - 10) > 0.4  # what the cut of the window would have made of it


def test_a_counter_that_stops_is_not_stretched() -> None:
    seconds = np.arange(41.0)
    grown = growth(seconds, np.minimum(seconds * 10, 100))
    assert grown is not None
    assert grown.per_second == 2.5


def test_a_restart_costs_its_interval_only() -> None:
    grown = growth(np.arange(6.0), np.array([100.0, 110, 120, 4, 14, 24]))
    assert grown is not None
    assert (grown.amount, grown.seconds, grown.resets) == (40, 4, 1)


@pytest.mark.parametrize("values", [[1.0], [NAN, 1.0, NAN], []])
def test_too_few_samples_say_nothing(values: list[float]) -> None:
    assert growth(np.arange(float(len(values))), np.array(values)) is None


def test_typical() -> None:
    assert typical(np.array([3.0, NAN, 1.0, 9.0])) == (3, 1, 9, 3)
    assert typical(np.array([NAN])) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e12) | st.just(NAN), min_size=1, max_size=30))
def test_growth_is_never_negative(values: list[float]) -> None:
    seconds = np.arange(float(len(values)))
    grown = growth(seconds, np.array(values))
    if grown is not None:
        assert grown.amount >= 0
        assert grown.seconds > 0
    first, last, window = steady_window(seconds, np.array(values))
    assert 0 <= first <= last < len(values)
    assert window.samples == last - first + 1
