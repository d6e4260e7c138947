"""YAML as job files may hold it: places, limits, and that no text whatever makes a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.drive.job.file import load_job
from headrace.drive.job.text import MAX_FILE_BYTES, parse_placed, read_placed
from headrace.errors import UsageError

HERE = Path("/nowhere")


def problem_of(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_placed(text, "job.yaml", HERE)
    return str(caught.value)


def test_places_count_lines_and_columns_from_one() -> None:
    placed = parse_placed("a: 1\nb:\n  - x\n  - c: [2, 3]\n", "job.yaml", HERE)
    assert placed.value == {"a": 1, "b": ["x", {"c": [2, 3]}]}
    assert placed.places["b", 1, "c", 1].label == "job.yaml:4:12"
    assert placed.names["b", 1, "c"].label == "job.yaml:4:5"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("", None),
        ("1e-3", 0.001),
        ("30000:30001", "30000:30001"),
        ("12:30:45", "12:30:45"),
        ("017", 17),
        ("0.5", 0.5),
        ("300_000", 300_000),
        ("2026-11-29", "2026-11-29"),
        ("'5'", "5"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = parse_placed(f"k: {text}\n", "job.yaml", HERE).value["k"]
    assert found == value
    assert type(found) is type(value)


def test_doubled_keys_are_told() -> None:
    placed = parse_placed("a: 1\nb: 2\na: 3\n", "job.yaml", HERE)
    assert placed.problems == ["job.yaml:3:1: 'a' is given twice, first on line 1. Keep one of them."]


@pytest.mark.parametrize(
    "text", [".inf", ".nan", "1e999", "!!python/object:os.system x", "!!int x", "!mine {}"]
)
def test_values_that_are_no_plain_ones_are_told(text: str) -> None:
    placed = parse_placed(f"k: {text}\n", "job.yaml", HERE)
    assert placed.value == {"k": None}
    assert placed.faulty == {("k",)}
    assert placed.problems[0].startswith("job.yaml:1:4: ")


def test_text_that_is_no_yaml_is_told_with_its_place() -> None:
    assert problem_of("a: [1, 2\nb: 3\n").startswith("job.yaml:2:2: not YAML: ")
    said = "job.yaml:2:1: not YAML: a line without ':'; write NAME: VALUE."
    assert problem_of("a: 1\nprompts p.jsonl\nb: 3\n") == said
    assert problem_of("a:\n\tb: 1\n").endswith("Indent with spaces, not tabs.")
    assert problem_of("- a\n") == "job.yaml:1:1: a job file is a mapping of keys to values; here is a list."
    assert problem_of("") == "job.yaml: a job file is a mapping of keys to values; here is nothing."
    assert problem_of("a: \x07\n").startswith("job.yaml:1:4: ")


def test_depth_and_aliases_are_limited() -> None:
    assert "nested deeper than 20 levels" in problem_of("a: " + "[" * 5000)
    itself = parse_placed("a: &a [*a]\n", "job.yaml", HERE)
    assert itself.problems == ["job.yaml:1:4: nested deeper than 20 levels. Does an alias hold itself?"]
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 10):
        bomb += f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * 10) + "]\n"
    assert "more than 100,000 values" in problem_of(bomb)
    assert parse_placed("a: &x 5\nb: *x\n", "job.yaml", HERE).value == {"a": 5, "b": 5}


def test_files_that_are_none(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.write_text("#" * (MAX_FILE_BYTES + 1))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: 1\nb: \xff\n")
    for path, said in (
        (tmp_path / "none.yaml", "no such job file"),
        (tmp_path, "a folder, not a job file"),
        (big, "1,000,001 bytes; the limit is 1,000,000"),
        (binary, "binary.yaml:2: byte 0xff is not UTF-8"),
    ):
        with pytest.raises(UsageError, match=said):
            read_placed(path)


_WORDS = st.sampled_from(
    [
        "out",
        "servers",
        "server",
        "sources",
        "prompts",
        "sampling",
        "flags_policy",
        "count",
        "name",
        "api_key",
        "in_flight",
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_WORDS | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_a_key_that_looks_like_the_validator_s_own_words(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("'[key]': 1\nflags_policy: {'[key]': keep, empty: '[key]'}\n")
    with pytest.raises(UsageError) as caught:
        load_job(path)
    said = "\n".join(caught.value.problems).replace(f"{path}:", "")
    assert "1:1: '[key]' is no key of the job." in said
    assert "2:16: '[key]' is no row flag;" in said
    assert "2:38: flags_policy.empty is '[key]';" in said


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(_WORDS | st.text(max_size=5), _VALUES, max_size=6))
def test_no_mapping_makes_a_traceback(tmp_path: Path, value: dict[str, object]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(value, allow_unicode=True), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_job(path)
    assert all(problem.strip() for problem in caught.value.problems)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="ab: -[]{}&*!'\"\n\t#|>%@,?~\x00é", max_size=40) | st.binary(max_size=40))
def test_no_text_makes_a_traceback(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError):
        load_job(path)
