"""The baseline, against arithmetic by hand."""

from __future__ import annotations

import pytest

from headrace.quantities import Origin
from tests.unit.diagnose.stories import DENSE, HYBRID, told, view


def test_rates_per_fleet_gpu_and_request() -> None:
    found = view(HYBRID).baseline
    assert found.value("output_tokens_per_s_fleet") == 4 * 430
    assert found.value("output_tokens_per_s_per_gpu") == 430
    assert found.value("output_tokens_per_s_per_running") == pytest.approx(21.5)
    assert found.value("step_seconds") == pytest.approx(20 / 430)
    assert found.value("in_flight_per_server") == 20


def test_running_by_littles_law() -> None:
    """900 tok/s at 20 ms a token are 18 running."""
    found = view(told(DENSE, observed={"running": None, "output_tokens_per_s": 900, "tpot_s": 0.02})).baseline
    running = found.numbers["running"]
    assert running.value == pytest.approx(18)
    assert running.origin is Origin.DERIVED


def test_output_from_a_total_rate() -> None:
    """6,000 tokens/s of 500 + 250: a third is output."""
    found = view(
        told(
            DENSE,
            observed={"output_tokens_per_s": None, "total_tokens_per_s": 6000},
            client={"mean_input_tokens": 500, "mean_output_tokens": 250},
        )
    ).baseline
    assert found.value("output_tokens_per_s") == pytest.approx(2000)


def test_drafts_make_a_step_longer_than_a_token() -> None:
    found = view(told(DENSE, observed={"accept_length": 2.5, "output_tokens_per_s": 4000})).baseline
    assert found.value("step_seconds") == pytest.approx(40 * 2.5 / 4000)


def test_finished_requests_only_is_a_lower_bound_without_a_pool_reading() -> None:
    facts = told(
        DENSE,
        observed={"output_tokens_per_s": None, "kv_usage": None},
        client={"completed": 300, "mean_output_tokens": 400, "elapsed_s": 60},
    )
    found = view(facts).baseline
    assert found.value("output_tokens_per_s") == 300 * 400 / 60
    assert "output_tokens_per_s" in found.lower_bounds


def test_tokens_in_flight_that_a_job_counts_go_before_what_a_pool_suggests() -> None:
    """Golden case: 438 answers of 2,473 in 280 s; 316 to 376 k tokens in flight make 5,000 to 5,200 tok/s."""
    facts = told(
        DENSE,
        observed={"output_tokens_per_s": None},
        client={
            "completed": 438,
            "mean_output_tokens": 2600,
            "mean_output_tokens_finished_only": 2473,
            "in_flight_tokens": 346_000,
            "elapsed_s": 280,
        },
    )
    found = view(facts).baseline
    servers = found.value("servers") or 0
    assert 5000 <= (found.value("output_tokens_per_s") or 0) * servers <= 5200
    assert found.value("mean_output_tokens") == 2600
    assert "output_tokens_per_s" not in found.lower_bounds


def test_a_long_window_needs_no_correction() -> None:
    """After 25 answers per place what is in flight is under 5 %: the rate stands, and is no lower bound."""
    facts = told(
        DENSE,
        observed={"output_tokens_per_s": None},
        client={"completed": 1000, "mean_output_tokens": 400, "mean_input_tokens": 300, "elapsed_s": 160},
    )
    found = view(facts).baseline
    assert found.value("output_tokens_per_s") == 2500
    assert not found.lower_bounds


def test_what_cannot_be_told_is_absent() -> None:
    found = view({"observed": {"kv_usage": 0.4}}).baseline
    assert found.value("output_tokens_per_s") is None
    assert found.value("running") is None
    assert found.value("step_seconds") is None
