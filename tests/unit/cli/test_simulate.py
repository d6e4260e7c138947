"""`headrace simulate`: its screen, its JSON, its recording, and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.observe.readings import READINGS
from tests.unit.engines.planning import GOLDEN

SERVER = (
    "--model", "Qwen/Qwen3.6-27B", "--gpu", "RTX PRO 6000 Blackwell Server", "--engine-version", "0.5.12",
    "--free-gib", "94.3", "--weights-gib", "51.1", "--flags", f"{GOLDEN} --mamba-ssm-dtype bfloat16",
)  # fmt: skip
SMALL = ("--replicas", "2", "--count", "200", "--output-tokens", "300", "--in-flight", "32")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_one_screen_of_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SERVER, *SMALL)
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert len(out.splitlines()) <= 34
    for word in (
        "200 of 200 prompts",
        "of 37",
        "state pool",
        "KV pool",
        "How to read this",
        "no prompt left",
    ):
        assert word in " ".join(out.split())


def test_json_conserves_tokens_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SERVER, *SMALL, "--json")
    assert code == 0
    (found,) = json.loads(out)
    assert found["finished"] == 200
    assert found["generated_tokens"] == found["completed_tokens"]
    assert found["output_tokens_per_s"] == pytest.approx(found["generated_tokens"] / found["seconds"])
    assert sum(found["time_shares"].values()) == pytest.approx(1.0, abs=1e-6)
    assert found["cap"] == 37


def test_variants_get_the_same_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    edit = "--mamba-scheduler-strategy no_buffer --disable-radix-cache --in-flight 64"
    code, out, _ = run(capsys, *SERVER, *SMALL, "--compare", edit, "--json")
    assert code == 0
    given, changed = json.loads(out)
    assert given["generated_tokens"] == changed["generated_tokens"]
    assert (given["cap"], changed["cap"], changed["in_flight"]) == (37, 64, 64)
    code, out, _ = run(capsys, *SERVER, *SMALL, "--compare", edit)
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert "as given" in out


def test_a_recording_is_an_observation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, _ = run(capsys, *SERVER, *SMALL, "--out", str(tmp_path / "seen"))
    assert code == 0
    document = json.loads((tmp_path / "seen" / "observation.json").read_text())
    assert len(document["servers"]) == 2
    for server in document["servers"]:
        assert set(server["readings"]) <= set(READINGS)
        assert server["readings"]["running"]["source"] == "simulated"
        assert len(server["columns"]["running"]) == len(server["seconds"])
        assert server["capacities"]["cap"]["value"] == 37
    assert document["client"]["in_flight"]["value"] == 64
    assert json.loads((tmp_path / "seen" / "simulation.json").read_text())["finished"] == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--step-seconds", "32"), "BATCH:SECONDS"),
        (("--event", "5:7:dies"), "server 7 does not exist"),
        (("--event", "5:0:sleeps"), "SECONDS:SERVER:WHAT"),
        (("--slow-server", "9:2"), "0 to 1"),
        (("--length-law", "normal"), "not known"),
        (("--compare", "--in-flight many"), "whole number"),
        (("--compare", "--disable-radix-cache"), "would not start"),
    ],
)
def test_mistakes_are_said_in_words(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *SERVER, *SMALL, *words)
    assert code in (2, 3)
    assert said in " ".join(err.split())


def test_a_request_that_never_fits_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SERVER, *SMALL, "--compare", "--max-total-tokens 3000", "--json")
    assert code == 0
    assert "fits into no server" in json.loads(out)[1]["stuck"]


def test_a_dead_server_and_a_rolling_restart(capsys: pytest.CaptureFixture[str]) -> None:
    """All answers come all the same; tokens of the dead server are lost, and it takes longer."""
    code, out, _ = run(capsys, *SERVER, *SMALL, "--json")
    whole = json.loads(out)[0]
    code, out, _ = run(capsys, *SERVER, *SMALL, "--event", "8:1:dies", "--json")
    dead = json.loads(out)[0]
    code, out, _ = run(capsys, *SERVER, *SMALL, "--event", "5:0:rolls", "--restart-seconds", "20", "--json")
    rolled = json.loads(out)[0]
    assert code == 0
    assert whole["finished"] == dead["finished"] == rolled["finished"] == 200
    assert dead["lost_tokens"] > 0
    assert rolled["lost_tokens"] == 0
    assert min(dead["seconds"], rolled["seconds"]) > whole["seconds"]
