"""`headrace plan --steps` and `--search`: what they print, their JSON, and their mistakes."""

from __future__ import annotations

import json

import pytest

from headrace.cli import main
from tests.unit.engines.planning import GOLDEN

CARD = ("--gpu", "RTX PRO 6000 Blackwell Server", "--model", "Qwen/Qwen3.6-27B", "--engine-version", "0.5.12")
LINE = ("--free-gib", "94.3", "--weights-gib", "51.1", "--flags", f"{GOLDEN} --mamba-ssm-dtype bfloat16")
LENGTHS = ("--input-tokens", "220", "--output-tokens", "2700")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_the_step_and_the_curve_fit_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *CARD, *LINE, *LENGTHS, "--steps")
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    text = " ".join(out.split())
    assert "A decode step, 37 running with 1,570 tokens each" in text
    for word in ("feed-forward", "recurrent state", "host, between steps", "% of roof", "efficiency from"):
        assert word in text
    marks = [line.split()[0] for line in out.splitlines() if "◀" in line]
    assert marks == ["37", "64", "159"]


def test_without_steps_one_line_says_what_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *CARD, *LINE, *LENGTHS)
    assert code == 0
    assert "With 37 running: about" in out
    assert "feed-forward" not in out


def test_without_lengths_nothing_of_steps_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *CARD, *LINE)
    assert code == 0
    assert "tok/s" not in out


def test_the_search_says_what_is_gained_and_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys,
        *CARD,
        *LINE,
        *LENGTHS,
        "--search",
        "--gpus",
        "8",
        "--job-tokens",
        "1.6e9",
        "--gpu-hour-price",
        "2",
    )
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    text = " ".join(out.split())
    assert "As it is:" in text
    assert "Most tokens per GPU:" in text
    assert "gives up: memory headroom, prefix reuse" in text
    assert "--disable-radix-cache" in text
    assert "GPU hours" in text
    assert "Frontier" in text


def test_json_has_steps_points_and_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *CARD, *LINE, *LENGTHS, "--steps", "--search", "--json")
    assert code == 0
    document = json.loads(out)
    step = document["serving"]["step"]
    assert step["seconds"]["low"] < step["seconds"]["mid"] < step["seconds"]["high"]
    assert {"name", "bytes", "flops", "seconds", "roof", "share", "origin"} <= set(step["operators"][0])
    assert document["serving"]["points"][0]["in_flight"] == 1
    assert document["search"]["best"]["flags"].startswith("--context-length 8192")
    assert document["search"]["best"]["gives_up_accuracy"] is False


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--input-tokens", "100"), "go together"),
        ((*LENGTHS, "--gpus", "4"), "--gpus without --search"),
        (
            (*LENGTHS, "--in-flight", "8", "--job-tokens", "1e9"),
            "--in-flight and --job-tokens without --search",
        ),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str) -> None:
    code, _, err = run(capsys, *CARD, *LINE, *arguments)
    assert code == 2
    assert why in " ".join(err.split())


def test_a_line_that_would_not_start_has_no_step(capsys: pytest.CaptureFixture[str]) -> None:
    flags = f"{GOLDEN} --disable-radix-cache"
    code, out, _ = run(capsys, *CARD, "--flags", flags, *LENGTHS, "--steps")
    assert code == 8
    assert "A decode step" not in out
