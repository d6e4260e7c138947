"""Predictions against bounds and relations worked by hand."""

from __future__ import annotations

import pytest

from headrace.forecast.prediction import Prediction
from headrace.forecast.row import read_row
from headrace.forecast.table import predict_row

# Llama 2 7B: 6.74 billion parameters, of which 0.13 are the input embedding that decoding does not read.
READ_BYTES = (6.738e9 - 0.131e9) * 2
A100_BYTES_PER_SECOND = 1.555e12  # data sheet, 40 GB

LLAMA = {
    "gpu": "A100 SXM 40GB",
    "n_gpus": "1",
    "model": "meta-llama/Llama-2-7b-hf",
    "weights_dtype": "fp16",
    "engine": "vLLM",
    "engine_version": "0.19.0",
    "load_kind": "closed_loop_concurrency",
    "concurrency": "1",
    "input_len": "128",
    "output_len": "128",
}


def said(**changes: str) -> Prediction:
    return predict_row(read_row({**LLAMA, **changes})).prediction


def test_one_request_takes_what_reading_the_weights_takes_and_a_little() -> None:
    tpot = said().tpot_ms
    assert tpot is not None
    floor = 1e3 * READ_BYTES / A100_BYTES_PER_SECOND  # 8.5 ms
    assert 1.05 * floor < tpot.mid < 1.6 * floor
    assert tpot.low < tpot.mid < tpot.high


def test_tokens_per_second_follow_from_time_per_token() -> None:
    found = said(concurrency="8", input_len="1024", output_len="1024")
    assert found.tpot_ms is not None
    assert found.output_tok_s is not None
    assert found.total_tok_s is not None
    # eight decode side by side; their prompts are in the time per token of the others, their own is not
    assert found.output_tok_s.mid == pytest.approx(8e3 / found.tpot_ms.mid, rel=0.05)
    assert found.total_tok_s.mid == pytest.approx(2 * found.output_tok_s.mid)


def test_a_batch_given_at_once_takes_its_prompts_and_its_steps() -> None:
    found = said(load_kind="offline_static_batch", batch_size="16", concurrency="", output_len="512")
    assert found.tpot_ms is not None
    assert found.output_tok_s is not None
    steps = 16 * 512 / (511 * found.tpot_ms.mid / 1e3)  # were the prompts free
    assert 0.85 * steps < found.output_tok_s.mid < steps


def test_what_does_not_fit_queues() -> None:
    """7B leaves some 20 GB: 4,096 + 4,096 tokens take 4.3 GB each, so of 64 a handful runs."""
    found = said(concurrency="64", input_len="4096", output_len="4096")
    assert found.running is not None
    assert 2 < found.running < 10


def test_an_open_loop_serves_what_arrives_until_it_cannot() -> None:
    slow = said(load_kind="open_loop_rate", request_rate="0.1")
    assert slow.output_tok_s is not None
    assert slow.output_tok_s.mid == pytest.approx(0.1 * 128, rel=0.05)
    fast = said(load_kind="open_loop_rate", request_rate="1000")
    assert fast.output_tok_s is not None
    assert fast.output_tok_s.mid < 20_000


def test_ranks_of_attention_data_parallel_share_the_load() -> None:
    moe = {"gpu": "H200 SXM", "model": "Qwen/Qwen3-235B-A22B", "weights_dtype": "fp8", "engine": "SGLang"}
    ranks = {"engine_version": "0.5.9", "n_gpus": "8", "tp": "2", "dp": "4", "concurrency": "64"}
    found = said(**moe, **ranks)
    assert found.reason == ""
    assert found.running == pytest.approx(64)


def test_weights_that_do_not_fit_are_a_reason() -> None:
    found = said(model="meta-llama/Llama-3.1-70B")
    assert "do not fit" in found.reason
    assert found.tpot_ms is None


@pytest.mark.parametrize("engine", ["TensorRT-LLM", "llama.cpp", "TGI"])
def test_an_engine_without_a_planner_is_judged_by_its_memory(engine: str) -> None:
    found = said(engine=engine, engine_version="")
    assert found.reason == ""
    assert any("no memory plan" in text for text in found.assumptions)


def test_an_engine_of_2024_pays_for_every_running_request() -> None:
    """vLLM 0.5.3 prepared each request on the host between two steps (blog.vllm.ai, 2024-09-05), so what an
    old engine costs more grows with the batch; how much is fitted to measured rows (docs/accuracy.md).
    """

    def dearer(concurrency: str) -> float:
        many = {"concurrency": concurrency, "input_len": "32"}
        old, new = said(**many, engine_version="0.5.3").tpot_ms, said(**many).tpot_ms
        assert old is not None
        assert new is not None
        return old.mid - new.mid

    few, many = dearer("8"), dearer("64")
    assert few > 0
    assert many > 2 * few
