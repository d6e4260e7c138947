"""Pages read by the lines that count say what pages read in full say: on captured pages of real engines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.sglang import metrics as sglang
from headrace.engines.vllm import metrics as vllm

SGLANG = ("0.5.12-qwen3next", "0.5.12-llama", "0.5.12-llama-dp2", "0.5.23-qwen3next")


@pytest.mark.parametrize("name", SGLANG)
def test_captured_pages_of_sglang(shared: Path, name: str) -> None:
    pages = [path.read_bytes() for path in sorted((shared / "captures/sglang" / name).glob("metrics_*.txt"))]
    assert len(pages) > 2
    lines = sglang.page_lines()
    for page in pages * 2:
        assert sglang.read_metrics(page, "0.5.12", lines) == sglang.read_metrics(page, "0.5.12")
    before = lines.full_reads
    for _ in range(10):
        sglang.read_metrics(pages[-1], "0.5.12", lines)
    assert lines.full_reads <= before + 1


def test_captured_pages_of_vllm(shared: Path) -> None:
    pages = [path.read_bytes() for path in sorted((shared / "captures/vllm").rglob("metrics*.txt"))]
    assert pages
    lines = vllm.page_lines()
    for page in pages * 2:
        assert vllm.read_metrics(page, lines) == vllm.read_metrics(page)


LINE = st.sampled_from(
    [
        "sglang:num_running_reqs",
        'sglang:num_running_reqs{dp_rank="0",tp_rank="1"}',
        'sglang:num_running_reqs{dp_rank="1",tp_rank="0"}',
        'sglang_num_queue_reqs{priority=""}',
        'sglang:num_queue_reqs{priority="1"}',
        'sglang:realtime_tokens_total{mode="decode",x="a}b c"}',
        "sglang:other",
        "# HELP x y",
    ]
)
VALUE = st.sampled_from(["1", "2.5", "NaN", "+Inf", "1e9", "x", "3 1700000000", ""])


@given(st.lists(st.tuples(LINE, VALUE), max_size=8), st.lists(VALUE, min_size=8, max_size=8))
def test_any_page_and_the_same_lines_with_other_values(
    lines: list[tuple[str, str]], others: list[str]
) -> None:
    first = "\n".join(f"{line} {value}" for line, value in lines).encode()
    second = "\n".join(f"{line} {value}" for (line, _), value in zip(lines, others, strict=False)).encode()
    again = sglang.page_lines()
    for page in (first, first, second, first):
        assert sglang.read_metrics(page, "0.5.12", again) == sglang.read_metrics(page, "0.5.12")
