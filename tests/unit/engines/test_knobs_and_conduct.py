"""What `diagnose` may ask of an engine without knowing its flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace.diagnose
from headrace.engines.conduct import conduct, meaning_of
from headrace.engines.knobs import knobs
from headrace.engines.sglang import rules as sglang_rules
from headrace.engines.versions import Version
from headrace.engines.vllm import settings as vllm_settings
from headrace.words import Constraint


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("raising --max-num-seqs helped", Constraint.MAX_RUNNING_REQUESTS),
        ("max_running_requests 512", Constraint.MAX_RUNNING_REQUESTS),
        ("a larger chunked prefill size", Constraint.TOKEN_BUDGET),
        ("mem-fraction-static 0.9", Constraint.KV_POOL),
        ("--api-server-count 4", Constraint.FRONTEND),
        ("NCCL_P2P_DISABLE=0", Constraint.INTERCONNECT),
    ],
)
def test_knobs_by_the_words_people_use(text: str, constraint: Constraint) -> None:
    assert [found for found, _ in knobs(text)] == [constraint]


def test_no_knob_no_constraint() -> None:
    assert not list(knobs("it is slow on a sequence of maximum length"))


def test_only_sglang_and_unknown_engines_keep_a_reserve() -> None:
    """vLLM's scheduler admits while blocks last (facts on engines §4); llama.cpp has slots."""
    assert conduct("sglang").keeps_reserve
    assert not conduct("vllm").keeps_reserve
    assert conduct("llamacpp").slots_are_cap
    assert conduct(None) == conduct("an engine of tomorrow")


def test_meanings_are_the_engines_own() -> None:
    assert meaning_of("vllm", "state_blocks_too_few") is not None
    assert (
        meaning_of("sglang", "state_blocks_too_few")
        is meaning_of(None, "x")
        is meaning_of("llamacpp", "")
        is None
    )


@pytest.mark.parametrize(
    ("oldest", "table"),
    [
        (vllm_settings.OLDEST, Path(vllm_settings.__file__).with_name("flags.tsv")),
        (sglang_rules.OLDEST, Path(sglang_rules.__file__).with_name("flags.tsv")),
    ],
    ids=["vllm", "sglang"],
)
def test_the_oldest_version_is_the_flag_tables_oldest(oldest: Version, table: Path) -> None:
    lines = table.read_text().splitlines()
    since = [Version.parse(line.split("\t")[3]) for line in lines if not line.startswith("#")]
    assert min(version for version in since if version is not None) == oldest


def test_diagnose_names_no_flag_of_an_engine() -> None:
    """Flags are the engines' own (DESIGN, layers): what `diagnose` says of options is of headrace's."""
    room = Path(headrace.diagnose.__file__).parent
    named = {
        flag
        for path in room.rglob("*.py")
        for flag in re.findall(r"--[a-z][a-z0-9]*(?:-[a-z0-9]+)*", path.read_text())
    }
    assert named <= {"--model", "--gpu", "--flags", "--load", "--expect"}
