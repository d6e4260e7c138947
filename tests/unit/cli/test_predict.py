"""`headrace predict` as a command and as a function."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import headrace
from headrace.cli import main

TABLE = """\
gpu,n_gpus,model,weights_dtype,engine,engine_version,concurrency,input_len,output_len,tpot_ms,source
H100 SXM,1,Qwen/Qwen3-8B,bf16,vLLM,0.19.0,8,1024,512,8.0,https://example.org/a
H100 SXM,1,Qwen/Qwen3-8B,bf16,SGLang,0.5.9,16,1024,512,9.0,https://example.org/a
Abacus,1,Qwen/Qwen3-8B,bf16,vLLM,0.19.0,8,1024,512,8.0,[red]not markup[/red]
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    return path


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def test_statistics_and_the_file(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "out.csv"
    assert run("predict", str(table), "--out", str(out)) == 0
    shown, errors = capsys.readouterr()
    assert "2 of 3 rows judged" in shown
    assert "by engine, fair rows" in shown
    assert "GPU … is not known" in shown
    assert "How to read this" in shown
    assert errors == ""  # no terminal, no counting
    assert all(len(line) <= 80 for line in shown.splitlines() if not line.startswith("3 rows written"))
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert [bool(row["predicted_tpot_ms"]) for row in rows] == [True, True, False]


def test_a_table_without_measurements_is_predicted_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "asked.csv"
    path.write_text("\n".join(line.rsplit(",", 2)[0] for line in TABLE.splitlines()) + "\n")
    assert run("predict", str(path)) == 0
    shown = capsys.readouterr().out
    assert "2 of 3 rows judged" in shown
    assert "median" not in shown


def test_no_table_is_one_line_and_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("predict", str(tmp_path / "missing.csv")) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_the_function_counts_and_returns_every_row(table: Path) -> None:
    counted: list[tuple[int, int]] = []
    found = headrace.predict(table, on_progress=lambda done, whole: counted.append((done, whole)))
    assert len(found.rows) == 3
    assert counted[0] == (0, 3)
    assert counted[-1] == (3, 3)
