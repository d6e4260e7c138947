"""Metrics pages: families by version, ranks counted once, pages that are none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace.engines.llamacpp.metrics import read_metrics as read_llamacpp
from headrace.engines.metrics import samples
from headrace.engines.sglang.metrics import FAMILIES
from headrace.engines.sglang.metrics import read_metrics as read_sglang
from headrace.engines.vllm.metrics import read_metrics as read_vllm

RANKED = """
sglang:num_running_reqs{dp_rank="0",tp_rank="0",pp_rank="0",model_name="m"} 5
sglang:num_running_reqs{dp_rank="0",tp_rank="1",pp_rank="0",model_name="m"} 5
sglang:num_running_reqs{dp_rank="1",tp_rank="2",pp_rank="0",model_name="m"} 7
sglang:num_running_reqs{dp_rank="1",tp_rank="3",pp_rank="0",model_name="m"} 7
sglang:full_token_usage{dp_rank="0",tp_rank="0"} 0.2
sglang:full_token_usage{dp_rank="1",tp_rank="2"} 0.6
sglang:realtime_tokens_total{dp_rank="0",tp_rank="0",mode="decode"} 100
sglang:realtime_tokens_total{dp_rank="0",tp_rank="1",mode="decode"} 100
sglang:realtime_tokens_total{dp_rank="1",tp_rank="2",mode="decode"} 40
sglang:realtime_tokens_total{dp_rank="1",tp_rank="2",mode="prefill_compute"} 11
"""


def test_data_parallel_ranks_add_up_and_tensor_parallel_ranks_say_it_again() -> None:
    page = read_sglang(RANKED, "0.5.12")
    assert page.gauges["running"] == 12
    assert page.gauges["kv_usage"] == pytest.approx(0.4)
    assert page.counters["output_tokens"] == 140
    assert page.counters["prefill_tokens"] == 11
    assert page.by_rank["running"] == {"0": 5, "1": 7}
    assert (page.model, page.ranks) == ("m", 2)


@pytest.mark.parametrize(
    ("version", "extra", "usage"),
    [
        ("0.5.9", "", 0.7),  # the KV pool's own
        ("0.5.10", "", None),  # the fullest pool's: the state pool's here
        ("0.5.10", "sglang:full_token_usage 0.2\n", 0.2),
        (None, "", 0.7),
        (None, "sglang:full_token_usage 0.2\n", 0.2),
    ],
)
def test_token_usage_means_the_kv_pool_only_before_0_5_10(
    version: str | None, extra: str, usage: float | None
) -> None:
    page = read_sglang(f"sglang:token_usage 0.7\nsglang:mamba_usage 0.7\n{extra}", version)
    assert page.gauges.get("kv_usage") == usage
    assert page.gauges["state_usage"] == 0.7


def test_a_model_without_recurrent_state_has_no_state_pool() -> None:
    zeros = "\n".join(
        f"sglang:mamba_{name} 0.0"
        for name in ("usage", "used_tokens", "available_tokens", "evictable_tokens")
    )
    page = read_sglang(zeros + "\nsglang:swa_token_usage 0.0\nsglang:spec_accept_length 0.0")
    assert not page.gauges


def test_slots_are_those_held_kept_and_free() -> None:
    page = read_sglang(
        "sglang:mamba_usage 0.25\nsglang:mamba_used_tokens 10\nsglang:mamba_available_tokens 22\n"
        "sglang:mamba_evictable_tokens 8\n"
    )
    assert page.gauges["state_slots"] == 40
    assert page.gauges["state_used_slots"] == 10


def test_one_name_with_colon_or_underscore() -> None:
    assert read_sglang("sglang_num_queue_reqs 3").gauges["queued"] == 3


def test_priorities_are_not_added_to_their_own_sum() -> None:
    page = read_sglang(
        'sglang:num_queue_reqs{priority=""} 9\nsglang:num_queue_reqs{priority="1"} 4\n'
        'sglang:num_queue_reqs{priority="2"} 5\n'
    )
    assert page.gauges["queued"] == 9


def test_graph_passes_by_mode() -> None:
    page = read_sglang(
        'sglang:cuda_graph_passes_total{mode="decode_none"} 30\n'
        'sglang:cuda_graph_passes_total{mode="decode_cuda_graph"} 10\n'
        'sglang:cuda_graph_passes_total{mode="prefill_none"} 99\n'
    )
    assert (page.counters["decode_steps"], page.counters["decode_graph_steps"]) == (40, 10)


CONFIG = (
    'vllm:cache_config_info{{block_size="{block}",num_gpu_blocks="{blocks}",cache_dtype="fp8"{more}}} 1.0'
)


def test_vllm_tokens_of_a_plain_pool_and_none_of_a_hybrid_one() -> None:
    plain = read_vllm(CONFIG.format(block=16, blocks=1000, more=""))
    assert plain.gauges["kv_capacity_tokens"] == 16_000
    for block, more in ((784, ""), (16, ',kv_cache_size_tokens="9000"')):
        hybrid = read_vllm(CONFIG.format(block=block, blocks=1000, more=more))
        assert "kv_capacity_tokens" not in hybrid.gauges
        assert hybrid.gauges["pool_blocks"] == 1000
        assert hybrid.notes


def test_vllm_engines_add_up_and_old_names_are_read_once() -> None:
    page = read_vllm(
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
        'vllm:gpu_cache_usage_perc{engine="0"} 0.9\nvllm:kv_cache_usage_perc{engine="0"} 0.5\n'
        "vllm:gpu_prefix_cache_hits_total 7\nvllm:prefix_cache_hits_total 7\n"
        "vllm:prefix_cache_queries_total 10\n"
    )
    assert page.gauges["running"] == 7
    assert page.gauges["kv_usage"] == 0.5
    assert (page.counters["cached_tokens"], page.counters["queried_tokens"]) == (7, 10)


def test_llamacpp_running_slots_over_passes() -> None:
    page = read_llamacpp("llamacpp:n_decode_total 50\nllamacpp:n_busy_slots_per_decode 2.5\n")
    assert page.counters["busy_slots_steps"] == 125


HOSTILE = (
    "<!DOCTYPE html><html><body>sglang:num_running_reqs 5</body></html>",
    "sglang:num_running_reqs NaN\nsglang:token_usage +Inf\n",
    "sglang:num_running_reqs\nsglang:num_running_reqs{ 5\nsglang:num_running_reqs} 5\n",
    'sglang:num_running_reqs{dp_rank="0} 5 6 7 8',
    "sglang:num_running_reqs five",
    "sglang:num_running_reqs " + "9" * 20_000,
)


@pytest.mark.parametrize("page", HOSTILE)
def test_what_is_no_page_gives_no_number(page: str) -> None:
    assert read_sglang(page).gauges == {}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from((*FAMILIES, "{", "}", '"', "=", " ", "NaN", "1e999", "-5", "\n", "\\", "7"))))
def test_no_page_crashes_a_reader(parts: list[str]) -> None:
    page = "".join(parts)
    for read in (read_sglang, read_vllm, read_llamacpp):
        found = read(page)
        assert all(math.isfinite(value) for value in (*found.gauges.values(), *found.counters.values()))


def test_the_line_parser_reads_what_the_prometheus_library_reads(shared: Path) -> None:
    pages = [
        *(shared / "captures/sglang").glob("*/metrics_during_1.txt"),
        *(shared / "captures").glob("vllm*/metrics_during_1.txt"),
        *(shared / "captures").glob("llamacpp*/metrics_during_1.txt"),
    ]
    assert len(pages) >= 8
    for path in pages:
        text = path.read_text()
        if "# TYPE" not in text:
            continue
        theirs = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if f"\n{sample.name}" in text  # the library renames counters that lack _total
        }
        names = {name for name, _ in theirs}
        ours = {
            (name, tuple(sorted(labels.items()))): value
            for name, labels, value in samples(text, dict.fromkeys(names))
        }
        assert len(ours) == len(theirs), path
        for key, value in theirs.items():
            assert ours[key] == value or math.isnan(value), (path, key)
