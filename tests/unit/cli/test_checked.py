"""Wrong options: each with its value, the limit and the nearest that is taken; all at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.cli import main
from headrace.drive.sampling import KNOWN, limits

Refused = Callable[..., list[str]]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """The problems that a command tells, without `headrace: ` and the line that counts them."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)

    def refused(line: str) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            main(line.split())
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        told = [problem.removeprefix("headrace: ") for problem in err.splitlines()]
        if len(told) > 1:
            assert told.pop() == f"{len(told)} problems; nothing was started."
        return told

    return refused


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("demo --rows 3", "--rows is 3; a whole number from 10 to 1,000,000 is allowed. The nearest is 10."),
        ("demo --rows 12.4", "--rows is 12.4; a whole number from 10 to 1,000,000 is expected. "
         "The nearest is 12."),
        ("demo --rows many", "--rows is 'many'; a whole number from 10 to 1,000,000 is expected."),
        ("demo --speed nan", "--speed is 'nan'; a number from 0.1 to 1,000 is expected."),
        ("plan --model m --gpu g --tp 0", "--tp is 0; a whole number of at least 1 is allowed. "
         "The nearest is 1."),
        ("export out --to json", "--to is 'json'; known: jsonl, parquet, conversations. "
         "Did you mean 'jsonl'?"),
        ("status", "OUT is missing: output folder of the job."),
        ("status out more", "'more' is too much for headrace status: it takes OUT and options. "
         "`headrace status --help` lists them."),
        ("demo --row 10", "--row is no option of headrace demo. Did you mean '--rows'?"),
        ("runn", "'runn' is no command of headrace. Did you mean 'run'?"),
        ("fleet ad", "'ad' is no command of headrace fleet. Did you mean 'add'?"),
        ("qqq", "'qqq' is no command of headrace. `headrace --help` lists them."),
        ("demo -z", "-z is no option of headrace demo. `headrace demo --help` lists them."),
        ("demo --rows", "--rows needs a value: prompts."),
    ],
)  # fmt: skip
def test_a_wrong_option_is_told_with_value_limit_and_way_out(refused: Refused, line: str, told: str) -> None:
    assert refused(line) == [told]


def test_all_wrong_options_are_told_at_once(refused: Refused) -> None:
    assert refused("export --to json --without truncate --without empty --without foo --fiel x") == [
        "--fiel is no option of headrace export. Did you mean '--file'?",
        "--to is 'json'; known: jsonl, parquet, conversations. Did you mean 'jsonl'?",
        "--without is 'truncate'; known: empty, truncated, think_tag, repetition, refused. "
        "Did you mean 'truncated'?",
        "--without is 'foo'; known: empty, truncated, think_tag, repetition, refused.",
    ]


def test_wrong_options_of_a_job_are_told_with_the_jobs_own_mistakes(refused: Refused) -> None:
    told = refused(
        "run --out o --server http://h:1 --prompts none.jsonl --metrics-port 70000 --top-k x --temperature 9"
    )
    assert len(told) == 4
    assert told[:2] == [
        "--top-k is 'x'; a whole number is expected.",
        "--metrics-port is 70000; a whole number from 0 to 65,535 is allowed. The nearest is 65,535.",
    ]
    assert told[2] == (
        "--temperature: sampling parameter 'temperature' is 9; 0 to 2 is allowed. The nearest is 2."
    )
    assert told[3].startswith("--prompts: ")


def test_the_help_of_sampling_names_the_bounds_that_are_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│ --")]
    for name in ("max_tokens", "temperature", "top_p", "top_k", "min_p"):
        (line,) = [line for line in lines if f"--{name.replace('_', '-')} " in line]
        assert limits(KNOWN[name]) in line.replace("Above", "above").replace("At least", "at least")


def test_a_fault_that_is_wrong_for_every_replica_is_told_once(refused: Refused) -> None:
    assert refused("emulate --error-503 abc --error-500 200 --crash-after 1.5 --hang foo --slow 9=3") == [
        "--error-500 200: error_500 is 200 percent; give 0 to 100",
        "--error-503 abc: it takes a number",
        "--slow 9=3: '9' is no replica; they are 0 to 7: write --slow 7=3",
        "--crash-after 1.5: it takes a whole number",
        "--hang foo: it takes posts or all",
    ]


def test_percentages_that_add_up_to_too_much_are_told_once_for_all_replicas(refused: Refused) -> None:
    more = "the fault percentages add up to 110; they may add up to 100"
    assert refused("emulate --replicas 3 --error-503 60 --drop 50") == [f"all replicas: {more}"]
    assert refused("emulate --replicas 3 --drop 60 --html 0=50 --html 2=50") == [f"replicas 0, 2: {more}"]
