"""Engine time against the clock."""

from __future__ import annotations

import pytest

from headrace.simulate.emulate.pace import Pace


def test_a_change_of_speed_keeps_the_engine_time_continuous() -> None:
    pace = Pace(2.0, 100.0)
    assert pace.engine_time(103.0) == 6.0
    pace.set_speed(0.5, 103.0)
    assert pace.engine_time(103.0) == 6.0
    assert pace.engine_time(107.0) == 8.0
    assert pace.clock_time(8.0) == 107.0
    with pytest.raises(ValueError, match="above 0"):
        pace.set_speed(0, 108.0)
