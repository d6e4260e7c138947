"""`headrace model` and its view."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.model import model
from headrace.errors import UsageError


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(model)
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.output


def test_json_has_every_number_with_its_origin() -> None:
    document = json.loads(run("qwen3.6-27b", "--json"))
    assert document["kv_bytes_per_token"]["bf16"]["value"] == 65_536
    assert document["state_bytes_per_request"]["bfloat16"]["value"] == pytest.approx(74.8 * 2**20, rel=1e-3)
    assert document["state_bytes_per_request"]["float32"]["value"] == pytest.approx(146.8 * 2**20, rel=1e-3)
    assert document["parameters"]["total"]["value"] == 27_781_427_952
    assert document["weight_bytes_served"]["value"] == pytest.approx(54.7e9, rel=1e-3)
    assert document["weight_bytes_read_per_step"]["value"] == pytest.approx(51.2e9, rel=2e-3)
    assert document["layers"] == {"gated_delta_net": 48, "full_attention": 16}
    for key in ("weight_bytes_served", "flops_per_token"):
        assert document[key]["origin"] == "derived"
        assert document[key]["inputs"]


def test_the_view_fits_eighty_columns_and_says_how_to_read_it() -> None:
    text = run("qwen3.6-27b")
    assert max(map(len, text.splitlines())) <= 80
    for told in (
        "27.781 B",
        "26.896 B active",
        "48 gated delta net",
        "64.0 KiB/token",
        "74.8 MiB",
        "How to read this",
    ):
        assert told in text


def test_ranks_and_step_size_change_the_answer() -> None:
    one = json.loads(run("gpt-oss-120b", "--json"))
    many = json.loads(run("gpt-oss-120b", "--json", "--tp", "2", "--tokens-per-step", "64"))
    assert many["weight_bytes_served"]["value"] < one["weight_bytes_served"]["value"]
    # 4 of 128 experts wake at one token, 128·(1 − (1 − 4/128)^64) = 111.2 at 64; two ranks share them
    experts = [
        document["weight_bytes_read_per_step"]["inputs"]["experts"]["value"] for document in (one, many)
    ]
    assert experts[1] / experts[0] == pytest.approx(111.2 / 4 / 2, rel=1e-3)


def test_without_a_name_the_built_in_models_are_listed() -> None:
    assert "openai/gpt-oss-120b" in json.loads(run("--json"))
    assert "built-in models" in run()


def test_an_unknown_model_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="not built in"):
        run("gpt-9")
