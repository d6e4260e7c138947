"""What makes a row fair: what it says of itself."""

from __future__ import annotations

from headrace.forecast.fairness import dated_version, unfair
from headrace.forecast.row import read_row
from headrace.forecast.table import known

FAIR = {
    "gpu": "H200 SXM",
    "n_gpus": "4",
    "tp": "4",
    "model": "Qwen/Qwen3-235B-A22B",
    "weights_dtype": "fp8",
    "engine": "vLLM",
    "engine_version": "0.19.0",
    "load_kind": "closed_loop_concurrency",
    "concurrency": "16",
    "input_len": "1024",
    "output_len": "1024",
}


def why(**changes: str) -> tuple[str, ...]:
    row = read_row({**FAIR, **changes})
    return unfair(row, *known(row))


def test_a_row_that_says_all_is_fair() -> None:
    assert why() == ()
    assert why(weights_dtype="", model="Qwen/Qwen3-235B-A22B-FP8") == ()
    assert why(spec_decode="none") == ()


def test_each_exclusion_alone() -> None:
    assert why(engine="TensorRT-LLM") == ("another engine",)
    assert why(gpu="MI300X") == ("another vendor's GPU",)
    assert why(gpu="Intel Max 1550") == ("another vendor's GPU",)
    assert why(spec_decode="mtp") == ("speculation without acceptance length",)
    assert why(spec_decode="MTP, 4 draft tokens, accept length 3.3") == ()
    assert why(source="github:SemiAnalysisAI/InferenceX@1:experimental/x.json") == (
        "experimental by its own label",
    )
    assert why(dp="4") == ("attention data parallel",)
    assert why(tp="16", n_gpus="16") == ("layout unclear or beyond 8 ranks",)
    assert why(source="github:sgl-project/sgl-cookbook@1:x.md", concurrency="1") == ("warm-up in the number",)
    assert why(load_kind="open_loop_rate", request_rate="2") == ("open loop or MLPerf",)
    assert why(output_len="") == ("load not stated",)
    assert why(weights_dtype="") == ("dtype not stated",)
    assert why(engine_version="") == ("engine version not stated",)
    assert why(dup_of="b1") == ("a copy of another row",)


def test_a_dated_study_needs_no_version() -> None:
    source = "github:argonne-lcf/LLM-Inference-Bench@4211f5d:Plots/All_results.csv"
    assert why(engine_version="", source=source) == ()


def test_a_date_stands_for_a_generation_of_the_engine() -> None:
    """vLLM 0.8.0 came out in March 2025, SGLang 0.4.0 in December 2024."""
    for engine, told, expected in (
        ("vLLM", "2023-12 (not stated)", (0, 7, 3)),
        ("vLLM", "2025-04", None),
        ("SGLang", "2024-06", (0, 3, 6)),
        ("SGLang", "voipmonitor/sglang:cu130, 2026-04", None),
        ("vLLM", "nightly 20260213", None),
    ):
        assert dated_version(read_row({**FAIR, "engine": engine, "engine_version": told})) == expected
