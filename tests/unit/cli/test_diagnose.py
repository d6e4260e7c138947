"""`headrace diagnose`: from a file to a verdict, and what it refuses."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from headrace.cli import main
from tests.unit.diagnose.stories import HYBRID

DECODE = (
    "[2026-02-03 04:05:06] Decode batch, #running-req: 24, #full token: 41000, full token usage: 0.17, "
    "mamba num: 90, mamba usage: 0.48, cuda graph: True, gen throughput (token/s): 500.10, #queue-req: 0\n"
)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", *words])
    told = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, told.out, told.err


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.yaml"
    path.write_text(yaml.safe_dump(HYBRID))
    return path


def test_a_facts_file(facts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(facts))
    assert code == 0
    assert out.startswith("VERDICT")
    assert "client_concurrency" in out


def test_json_has_every_part(facts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(facts), "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["schema"], document["schema_version"]) == ("headrace.diagnosis", 1)
    assert set(document) >= {
        "binding", "also", "ladder", "baseline", "comparison", "decomposition", "proposals", "assumptions",
        "ruled_out", "missing",
    }  # fmt: skip
    assert set(document["binding"]) >= {"constraint", "side", "confidence", "evidence", "would_refute"}
    assert set(document["ladder"][0]) >= {"constraint", "limit"}
    assert set(document["proposals"][0]) >= {"levers", "flags", "launch_line", "needs_restart", "estimate"}
    assert set(document["proposals"][0]["estimate"]) == {"low", "mid", "high", "unit"}


def test_a_pasted_log_with_what_it_leaves_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DECODE.encode())))
    code, out, _ = run(
        capsys, "-", "--json", "--engine-version", "0.5.12", "--gpu", "RTX PRO 6000 Blackwell Server",
        "--model", "Qwen/Qwen3.6-27B", "--flags", str(HYBRID["flags"]),
    )  # fmt: skip
    assert code == 0
    document = json.loads(out)
    assert document["binding"]["constraint"] == "client_concurrency"
    assert document["ladder"][1]["constraint"] == "state_pool"


def test_the_load_can_be_given(facts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, str(facts), "--json", "--load", "given")
    assert json.loads(out)["binding"]["constraint"] != "client_concurrency"


def test_an_expectation_is_answered(facts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, str(facts), "--json", "--expect", "40% of an H200")
    (answer,) = json.loads(out)["comparison"]["claims"]
    assert answer["claim"] == "40% of an H200"
    assert answer["because"]


def test_a_number_unfolds(facts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(facts), "--explain", "step_seconds")
    assert code == 0
    assert "running × accepted tokens ÷ rate" in out
    code, _, err = run(capsys, str(facts), "--explain", "step_second")
    assert code == 2
    assert "Did you mean 'step_seconds'?" in err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["{facts}", "--load", "fre"], 2, "Did you mean 'free'?"),
        (["{facts}", "--for", "soon"], 2, "--for takes a duration"),
        (["{facts}", "--api-key-env", "NOBODY_HAS_THIS"], 2, "the environment has no such variable"),
        (["nothing-there.yaml"], 2, "is no file, folder or URL"),
    ],
)
def test_what_is_refused(
    facts: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, text: str
) -> None:
    got, _, err = run(capsys, *(word.format(facts=facts) for word in words))
    assert got == code
    assert text in err


def test_an_unknown_model_or_gpu_is_missing_not_an_error(
    facts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, str(facts), "--json", "--gpu", "Abacus 9000", "--model", "nobody/nothing")
    assert code == 0
    assert any("Abacus 9000" in text for text in json.loads(out)["missing"])


def test_no_secret_comes_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "sk-planted-0123456789abcdef"
    path = tmp_path / "facts.yaml"
    facts = {**HYBRID, "flags": f"{HYBRID['flags']} --api-key {secret} --admin-api-key={secret}"}
    path.write_text(yaml.safe_dump({**facts, "notes": f"HF_TOKEN={secret}"}))
    for words in (
        ["--json"],
        ["--all"],
        ["--flags", f"--max-running-requests 40 --api-key {secret}", "--all"],
    ):
        code, out, err = run(capsys, str(path), *words)
        assert code == 0
        assert secret not in out + err
