"""`headrace gpus` and its views."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.gpus import gpus
from headrace.errors import UsageError
from headrace.quantities import Quantity


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(gpus)
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0
    return result.output


def test_the_table_fits_eighty_columns() -> None:
    text = run()
    assert max(map(len, text.splitlines())) <= 80
    assert "H100 SXM" in text
    assert "sparsity" in text  # how to read it


def test_one_device_in_full() -> None:
    text = run("RTX PRO 6000 Server")
    for told in (
        "1,792 GB/s (1,597 GB/s … 1,792 GB/s)",
        "94.3 GiB (94.0 GiB … 94.6 GiB)",
        "assumed",
        "417 TFLOPS",
    ):
        assert told in text


def test_an_ambiguous_name_shows_all_it_fits() -> None:
    text = run("h100")
    assert "fits 3 devices" in text
    assert "H100 NVL" in text


def test_json_has_sources() -> None:
    one = json.loads(run("H200", "--json"))
    assert one["name"] == "H200 SXM"
    bandwidth = Quantity.from_json(one["memory_bytes_per_second"])
    assert bandwidth.value == 4.8e12
    assert bandwidth.source
    assert len(json.loads(run("--json"))) >= 50
    assert len(json.loads(run("A100", "--json"))) == 4


def test_an_unknown_gpu_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="not known"):
        run("Voodoo 2")
