"""Workloads: laws, traces, several sources, seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import InputError, UsageError
from headrace.simulate.lengths import Length, drawn, joined
from headrace.simulate.traces import read_workload


@pytest.mark.parametrize("law", ["gamma", "lognormal"])
def test_laws_have_their_mean_and_spread(law: str) -> None:
    """20,000 draws: the mean to 1 %, the standard deviation ÷ mean to 3 %."""
    lengths = Length(2600, law, 0.3).draw(20_000, np.random.default_rng(5)).astype(float)
    assert lengths.mean() == pytest.approx(2600, rel=0.01)
    assert lengths.std() / lengths.mean() == pytest.approx(0.3, rel=0.03)


def test_the_same_seed_is_the_same_job_and_longer_answers_end_at_max_tokens() -> None:
    one, two = (drawn(500, Length(150), Length(900, "gamma", 1.0), max_tokens=1000, seed=3) for _ in range(2))
    other = drawn(500, Length(150), Length(900, "gamma", 1.0), max_tokens=1000, seed=4)
    assert np.array_equal(one.output_tokens, two.output_tokens)
    assert not np.array_equal(one.output_tokens, other.output_tokens)
    assert one.output_tokens.max() == 1000
    assert np.count_nonzero(one.output_tokens == 1000) > 100  # e^-1.1 = a third of an exponential's tail


def test_without_max_tokens_a_request_asks_for_what_its_prompt_leaves() -> None:
    load = drawn(100, Length(500, "fixed"), Length(900, "fixed"), context_tokens=1200)
    assert set(load.asked_tokens) == {700}
    assert set(load.output_tokens) == {700}


def test_open_loop_arrives_at_the_rate() -> None:
    """10,000 arrivals at 5 per second take 2,000 s ± 3 %."""
    load = drawn(10_000, Length(10), Length(10), max_tokens=50, requests_per_second=5.0, seed=1)
    assert load.arrival is not None
    assert load.arrival[-1] == pytest.approx(2000, rel=0.03)


def test_azure_trace(shared: Path) -> None:
    """Counts, sums and span as `wc` and `awk` give them for the published file."""
    path = shared / "data/traces/AzureLLMInferenceTrace_code.csv"
    load = read_workload(path)
    lines = path.read_text().split()[1:]
    assert len(load) == len(path.read_text().strip().splitlines()) - 1
    assert load.arrival is not None
    assert load.arrival[0] == 0.0
    # the first two: 18:17:03.97996 and 18:17:04.03196
    assert load.arrival[1] == pytest.approx(0.052, abs=1e-6)
    assert (load.input_tokens[0], load.output_tokens[0]) == (4808, 10)
    assert lines


def test_llmservingsim_trace(shared: Path) -> None:
    load = read_workload(shared / "data/traces/llmservingsim-RTXPRO6000-Llama-3.1-8B/requests.jsonl")
    assert len(load) == 300
    assert (load.input_tokens[0], load.output_tokens[0]) == (2358, 531)
    assert load.arrival is not None
    assert load.arrival[1] == pytest.approx(0.285, abs=1e-3)


def test_rows_without_lengths_are_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [{"prompt_tokens": 5, "completion_tokens": 7}, {"prompt_tokens": None}, {"prompt_tokens": 3}]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    load = read_workload(path, max_tokens=6)
    assert (len(load), int(load.output_tokens[0])) == (1, 6)
    assert "2 without lengths" in load.source


def test_what_is_no_trace_is_said(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("name,age\nx,3\n")
    with pytest.raises(InputError, match="no row with lengths"):
        read_workload(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_workload(tmp_path / "missing.csv")


def test_sources_in_a_row_or_mixed() -> None:
    first = drawn(50, Length(10, "fixed"), Length(20, "fixed"), max_tokens=99)
    second = drawn(50, Length(30, "fixed"), Length(40, "fixed"), max_tokens=99, shared_tokens=5)
    row = joined([first, second])
    assert list(row.output_tokens[row.order][:50]) == [20] * 50
    mixed = joined([first, second], mixed_by=1)
    assert sorted(mixed.order) == list(range(100))
    assert set(mixed.output_tokens[mixed.order][:50]) == {20, 40}
    assert row.group_tokens == (5,)
    assert row.longest_first().output_tokens[row.longest_first().order][0] == 40


def test_senseless_workloads_are_refused() -> None:
    with pytest.raises(UsageError, match="law"):
        drawn(5, Length(10, "normal"), Length(10), max_tokens=5)
    with pytest.raises(UsageError, match="mean"):
        drawn(5, Length(0.2), Length(10), max_tokens=5)
    with pytest.raises(UsageError, match="never arrive"):
        drawn(5, Length(3), Length(10), max_tokens=5, requests_per_second=0.0)
