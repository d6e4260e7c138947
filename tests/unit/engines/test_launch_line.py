"""Reading and editing launch lines; flags by version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.launch_line import LaunchLine
from headrace.engines.sglang.rules import TABLE as SGLANG
from headrace.engines.versions import Version
from headrace.engines.vllm.settings import TABLE as VLLM
from headrace.errors import UsageError

OLD, NEW = Version(0, 5, 12), Version(0, 5, 23)


def sglang(text: str, version: Version = OLD) -> LaunchLine:
    return LaunchLine.parse(text, SGLANG, version)


def test_a_whole_line_comes_apart() -> None:
    line = sglang(
        "SGLANG_MAMBA_SSM_DTYPE=bfloat16 python -m sglang.launch_server --model-path 'a b' --tp=2 \\\n"
        " --disable-radix-cache --cuda-graph-bs 1 2 4 --chunked-prefill-size -1 --port 30000"
    )
    assert line.environment == {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}
    assert line.program == ("python", "-m", "sglang.launch_server")
    assert [(flag.name, flag.words) for flag in line.flags] == [
        ("--model-path", ("a b",)),
        ("--tp", ("2",)),
        ("--disable-radix-cache", ()),
        ("--cuda-graph-bs", ("1", "2", "4")),
        ("--chunked-prefill-size", ("-1",)),
        ("--port", ("30000",)),
    ]
    assert sglang(line.text()) == line


def test_prose_is_kept_apart() -> None:
    line = sglang("TP=2, the rest default --max-running-requests 8")
    assert [flag.name for flag in line.flags] == ["--max-running-requests"]
    assert "rest" in line.loose


def test_quotes_that_do_not_close_are_said() -> None:
    with pytest.raises(UsageError, match="Close the quotes"):
        sglang("--model-path 'a")


def test_a_line_too_long_is_said() -> None:
    with pytest.raises(UsageError, match="100,000"):
        sglang("x" * 100_001)


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("--tp-size 4 --page-size 1", "--tp 2", "--tp 2 --page-size 1"),  # namesakes of one setting
        ("--tp 4", "--tensor-parallel-size 2", "--tensor-parallel-size 2"),
        ("--page-size 1", "--tp 2", "--page-size 1 --tp 2"),
        ("--disable-radix-cache --tp 2", "-disable-radix-cache", "--tp 2"),
        ("--disable-radix-cache --tp 2", "---disable-radix-cache", "--tp 2"),
        ("--max-running-requests 64", "-max-running-requests --page-size 16", "--page-size 16"),
        ("--chunked-prefill-size 8192", "--chunked-prefill-size -1", "--chunked-prefill-size -1"),
        ("--tp 2 --tp-size 4", "--tp 8", "--tp 8"),  # all spellings go
    ],
)
def test_a_change_edits_the_line(before: str, change: str, after: str) -> None:
    assert sglang(before).changed(change, SGLANG, OLD).text() == after


def test_a_new_spelling_replaces_the_old_one() -> None:
    line = sglang("--mamba-scheduler-strategy no_buffer", Version(0, 5, 14))
    changed = line.changed("--mamba-radix-cache-strategy extra_buffer", SGLANG, Version(0, 5, 14))
    assert changed.text() == "--mamba-radix-cache-strategy extra_buffer"


def test_what_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(UsageError, match="--disable-radix-cache"):
        sglang("--tp 2").changed("-disable-radix-cache", SGLANG, OLD)
    with pytest.raises(UsageError, match="begins with a flag"):
        sglang("--tp 2").changed("tp 4", SGLANG, OLD)


def test_environment_can_be_changed() -> None:
    changed = sglang("--tp 2").changed("SGLANG_MAMBA_SSM_DTYPE=bfloat16", SGLANG, OLD)
    assert changed.text() == "SGLANG_MAMBA_SSM_DTYPE=bfloat16 --tp 2"


def test_vllm_spellings() -> None:
    line = LaunchLine.parse(
        "vllm serve Qwen/Qwen3-8B -tp 2 --max_num_seqs=64 --no-enable-prefix-caching", VLLM, Version(0, 33, 0)
    )
    assert line.loose == ("Qwen/Qwen3-8B",)
    fields = [
        VLLM.field(found.name) for flag in line.flags if (found := VLLM.find(flag.name, Version(0, 33, 0)))
    ]
    assert fields == ["tensor_parallel_size", "max_num_seqs", "enable_prefix_caching"]
    assert line.changed("--tensor-parallel-size 4", VLLM, Version(0, 33, 0)).flags[0].words == ("4",)


def test_an_ambiguous_beginning_is_no_flag() -> None:
    # --pp begins --pp-size and others: argparse refuses it too
    assert SGLANG.find("--pp", OLD) is None
    assert "no flag" in str(SGLANG.complaint("--pp", OLD))


@given(st.lists(st.text(min_size=1, max_size=12), max_size=8))
def test_any_text_is_read_or_refused_as_usage(words: list[str]) -> None:
    try:
        line = sglang(" ".join(words))
    except UsageError:
        return
    assert len(line.flags) + len(line.loose) + len(line.program) <= len(" ".join(words))


@given(
    st.lists(
        st.sampled_from(
            ["--tp-size 2", "--disable-radix-cache", "--page-size 16", "--max-running-requests 64"]
        ),
        unique=True,
    ),
    st.sampled_from(["--tp 8", "--page-size 1", "--max-total-tokens 5", "--mem-fraction-static 0.9"]),
)
def test_a_change_twice_is_the_change_once(flags: list[str], change: str) -> None:
    once = sglang(" ".join(flags)).changed(change, SGLANG, OLD)
    assert once.changed(change, SGLANG, OLD) == once
    assert len({SGLANG.field(flag.name) for flag in once.flags}) == len(once.flags)
