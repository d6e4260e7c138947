"""Throughput of a planned server by requests in flight, and the search over launch lines around it."""

from __future__ import annotations

import time
from functools import cache

import pytest

from headrace.engines import planner, search_axes, step_options
from headrace.engines.plan import MemoryPlan
from headrace.errors import UsageError
from headrace.forecast.lengths import Lengths, lengths_of
from headrace.forecast.search import Job, Search, search
from headrace.forecast.serving import KV_SHARE, running_cap, serving
from headrace.hardware.catalogue import resolve
from headrace.perf.step_model import StepModel
from tests.unit.engines.planning import GOLDEN, plan

LENGTHS = Lengths(220, 2700)


def _golden(flags: str = "--mamba-ssm-dtype bfloat16", **more: object) -> MemoryPlan:
    device = resolve("RTX PRO 6000 Blackwell Server")
    return plan(f"{GOLDEN} {flags}", device=device, context=LENGTHS.context_tokens, **more)  # type: ignore[arg-type]


@cache
def _searched(gpus: int = 1, flags: str = "--mamba-ssm-dtype bfloat16") -> Search:
    return search(_golden(flags), LENGTHS, gpus=gpus)


def test_the_curve_rises_to_the_cap_and_shows_every_rung() -> None:
    found = serving(_golden(), LENGTHS)
    assert found is not None
    rates = [point.served.output_tokens_per_second.mid for point in found.points]
    assert rates == sorted(rates)
    assert max(point.served.running for point in found.points) == 37
    rungs = {point.in_flight: str(point.rung.constraint) for point in found.points if point.rung}
    assert rungs[37] == "state_pool"
    assert rungs[64] == "max_running_requests"
    above = [point for point in found.points if point.in_flight > 37]
    for point in above:
        assert point.lifted.output_tokens_per_second.mid > point.served.output_tokens_per_second.mid
    assert found.step.batch == 37


def test_golden_throughput_holds_what_was_seen() -> None:
    """625 to 650 tok/s per GPU with 32 running (corrected for the tokens in flight)."""
    found = serving(_golden(), LENGTHS)
    assert found is not None
    at = next(point.served.output_tokens_per_second for point in found.points if point.in_flight == 32)
    assert at.low < 625
    assert at.high > 650


def test_where_kv_bounds_fewer_run_than_the_mean_would_let() -> None:
    refused = _golden("--mamba-ssm-dtype bfloat16 --disable-radix-cache")
    radix_off = plan(
        "--context-length 8192 --mamba-scheduler-strategy no_buffer --disable-radix-cache "
        "--max-running-requests 256 --mem-fraction-static 0.85 --mamba-ssm-dtype bfloat16",
        context=1570,
    )
    assert not refused.would_start  # extra_buffer with the radix cache off
    with pytest.raises(ValueError, match="no cap"):
        running_cap(refused)
    assert serving(refused, LENGTHS) is None
    lowest = radix_off.lowest
    assert lowest is not None
    assert str(lowest.constraint) == "kv_pool"
    assert running_cap(radix_off) == pytest.approx(KV_SHARE * lowest.running.value)


def test_lengths_as_told_and_what_is_said_where_they_are_not() -> None:
    assert lengths_of(None, 100, 400) == (Lengths(100, 400), "")
    known, note = lengths_of(1500, None, None)
    assert known.context_tokens == 1500
    assert "prompts are left out" in note
    assert "2,048" in lengths_of(None, None, None)[1]
    with pytest.raises(UsageError, match="go together"):
        lengths_of(None, 100, None)


def test_the_search_finds_the_better_answer_of_the_golden_case() -> None:
    """Radix cache off frees more than any other single setting and keeps the overlap; the flag goes up."""
    found = _searched()
    assert found.now is not None
    assert found.now.change == ""
    assert found.best is not None
    assert "--disable-radix-cache" in found.best.change
    assert "no_buffer" in found.best.change
    assert "bfloat16" not in found.best.change
    assert "fp8" not in found.best.change
    assert step_options(found.best.plan).overlap
    assert found.best.tokens_per_second_per_gpu.mid > 1.8 * found.now.tokens_per_second_per_gpu.mid
    assert "prefix reuse" in found.best.gives_up


def test_every_line_found_would_start_and_says_what_it_runs() -> None:
    found = _searched(4)
    engine = planner("sglang")
    for each in (*found.frontier, found.best, found.best_any):
        assert each is not None
        again = engine.plan(each.plan.inputs)
        assert again.would_start
        assert each.served.running <= running_cap(again)
        assert each.gpus * each.replicas <= 4


def test_no_line_beats_another_of_the_frontier_both_ways() -> None:
    frontier = _searched(4).frontier
    rates = [each.tokens_per_second_per_gpu.mid for each in frontier]
    times = [each.token_seconds for each in frontier]
    assert rates == sorted(rates, reverse=True)
    assert times == sorted(times, reverse=True)
    assert len(frontier) >= 4


def test_accuracy_is_never_given_up_for_the_best_line() -> None:
    found = _searched(1, "")
    assert found.best is not None
    assert "bfloat16" not in found.best.change
    assert found.best_any is not None
    assert {"accuracy of the recurrent state", "accuracy of attention"} & set(found.best_any.gives_up)


def test_a_shared_prefix_counts_against_switching_the_cache_off() -> None:
    """With 6,000 of 6,200 prompt tokens cached, a line without the cache computes them all again."""
    prefix = Lengths(6200, 300, cached_tokens=6000)
    base = plan(
        f"{GOLDEN} --mamba-ssm-dtype bfloat16",
        device=resolve("RTX PRO 6000 Blackwell Server"),
        context=prefix.context_tokens,
    )
    found = search(base, prefix)
    assert found.best is not None
    assert "--disable-radix-cache" not in found.best.change


def test_a_job_is_priced() -> None:
    """1.6e9 tokens at R tokens per second and GPU are 1.6e9 ÷ R ÷ 3600 GPU hours; 8 GPUs share them."""
    found = search(_golden(), LENGTHS, gpus=8, job=Job(1.6e9, gpu_hour_price=2.0))
    assert found.best is not None
    cost = found.cost_of(found.best)
    assert cost is not None
    hours = 1.6e9 / found.best.tokens_per_second_per_gpu.mid / 3600
    assert cost.gpu_hours.mid == pytest.approx(hours)
    assert cost.seconds.mid == pytest.approx(hours * 3600 / 8)
    assert cost.price is not None
    assert cost.price.mid == pytest.approx(2 * hours)


def test_a_thousand_lines_take_less_than_five_seconds_of_cpu() -> None:
    base = plan(
        "--mem-fraction-static 0.8",
        device=resolve("B200 SXM"),
        context=LENGTHS.context_tokens,
        free_gib=None,
        weights_gib=None,
    )
    start = time.process_time()
    found = search(base, LENGTHS, gpus=8, most=1000)
    took = time.process_time() - start
    assert found.tried == 1000
    assert took < 5.0


def test_axes_of_vllm_are_read_by_vllm() -> None:
    base = plan(
        "--max-num-seqs 64",
        engine="vllm",
        version="0.33.0",
        model="Qwen/Qwen3-30B-A3B",
        device=resolve("H100 SXM"),
        context=1250,
        free_gib=None,
        weights_gib=None,
    )
    names = {axis.name for axis in search_axes(base, 4)}
    assert {"ranks", "memory", "running", "tokens per step", "KV dtype"} <= names
    found = search(base, Lengths(1000, 500), gpus=4)
    assert found.best is not None
    assert found.best.tokens_per_second_per_gpu.mid > found.now.tokens_per_second_per_gpu.mid  # type: ignore[union-attr]
    assert found.refused < found.tried / 2


def test_a_search_of_no_lines_is_refused() -> None:
    with pytest.raises(UsageError, match="can be tried"):
        search(_golden(), LENGTHS, most=0)


def test_the_step_of_the_curve_is_the_step_model() -> None:
    base = _golden()
    found = serving(base, LENGTHS)
    assert found is not None
    model = StepModel(base.inputs.model, base.inputs.device, step_options(base))
    assert found.step.seconds.mid == pytest.approx(model.decode_seconds(37, 37 * LENGTHS.context_tokens))
