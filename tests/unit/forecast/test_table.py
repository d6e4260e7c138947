"""Tables: packed, odd, short of columns, full of junk; and what is written of them."""

from __future__ import annotations

import csv
import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import InputError, StorageError
from headrace.forecast.prediction import OUT_COLUMNS
from headrace.forecast.row import NUMBER_COLUMNS, TEXT_COLUMNS, read_row
from headrace.forecast.statistics import errors, source_name
from headrace.forecast.table import predict_row, predict_table

HEAD = "id,gpu,n_gpus,tp,model,weights_dtype,engine,engine_version,concurrency,input_len,output_len,tpot_ms"
GOOD = "a,H100 SXM,1,1,Qwen/Qwen3-8B,bf16,vLLM,0.19.0,8,1024,512,8.0"
BAD = "b,Abacus,1,1,Qwen/Qwen3-8B,bf16,vLLM,0.19.0,8,1024,512,8.0"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_rows_keep_their_order_and_each_has_numbers_or_a_reason(tmp_path: Path) -> None:
    found = predict_table(write(tmp_path / "t.csv", HEAD, BAD, GOOD))
    assert [each.prediction.id for each in found.rows] == ["b", "a"]
    bad, good = (each.prediction for each in found.rows)
    assert "not known" in bad.reason
    assert good.reason == ""
    assert good.tpot_ms is not None
    assert found.rows[1].metric == "tpot_ms"
    assert found.rows[1].error == pytest.approx(abs(good.tpot_ms.mid / 8.0 - 1.0))


def test_the_predictions_are_written_by_column(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    predict_table(write(tmp_path / "t.csv", HEAD, GOOD, BAD)).write(out)
    with out.open(newline="") as file:
        good, bad = list(csv.DictReader(file))
    assert tuple(good) == OUT_COLUMNS
    for name in ("predicted_tpot_ms", "predicted_output_tok_s", "predicted_total_tok_s"):
        low, mid, high = (float(good[name + end]) for end in ("_low", "", "_high"))
        assert 0 < low <= mid <= high
        assert bad[name] == ""
    assert good["reason"] == ""
    assert bad["reason"]


def test_packed_tables_are_read_and_written(tmp_path: Path) -> None:
    packed, out = tmp_path / "t.csv.gz", tmp_path / "out.csv.gz"
    packed.write_bytes(gzip.compress(f"\ufeff{HEAD}\n{GOOD}\n".encode()))
    predict_table(packed).write(out)
    assert gzip.decompress(out.read_bytes()).decode().startswith("id,predicted_tpot_ms,")


def test_missing_columns_are_blank_and_missing_ids_are_numbered(tmp_path: Path) -> None:
    found = predict_table(write(tmp_path / "t.csv", "gpu,model", "H100 SXM,Qwen/Qwen3-8B"))
    assert found.rows[0].prediction.id == "1"
    assert found.rows[0].prediction.reason == "engine not stated"


def test_what_is_no_table_is_said_so(tmp_path: Path) -> None:
    for name, data in {
        "a": b"",
        "b": b"name,price\nx,1\n",
        "c": b"\x1f\x8b broken",
        "d": b"\x00\x01\x02",
    }.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(InputError):
            predict_table(path)
    with pytest.raises(InputError, match="cannot be read"):
        predict_table(tmp_path / "missing.csv")
    with pytest.raises(StorageError):
        predict_table(write(tmp_path / "t.csv", HEAD, GOOD)).write(tmp_path / "no" / "folder" / "out.csv")


def test_rows_with_too_many_or_too_few_cells_do_no_harm(tmp_path: Path) -> None:
    found = predict_table(write(tmp_path / "t.csv", HEAD, GOOD + ",more,and more", "c,H100 SXM"))
    assert found.rows[0].prediction.reason == ""
    assert found.rows[1].prediction.reason


CELL = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1e308", "nan", "8", "1024", "vLLM", "sglang", "H100", "B200 SXM", "fp8", "NVFP4"]
    ),
    st.sampled_from(
        ["Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-R1", "openai/gpt-oss-20b", "MTP accept length 2"]
    ),
    st.text(max_size=40),
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from((*TEXT_COLUMNS, *NUMBER_COLUMNS)), CELL, max_size=20))
def test_whatever_a_row_says_the_answer_is_numbers_or_a_reason(cells: dict[str, str]) -> None:
    found = predict_row(read_row(cells), "7").prediction
    numbers = (found.tpot_ms, found.output_tok_s, found.total_tok_s)
    if found.reason:
        assert numbers == (None, None, None)
    else:
        for each in numbers:
            assert each is not None
            assert all(math.isfinite(value) and value > 0 for value in (each.low, each.mid, each.high))


def test_statistics_by_hand(tmp_path: Path) -> None:
    """Three rows off by +25 %, −20 % and 0 in time: median error 20 %, mean 15 %; bias 0."""
    first = predict_table(write(tmp_path / "t.csv", HEAD, GOOD)).rows[0].prediction.tpot_ms
    assert first is not None
    lines = [GOOD.replace(",8.0", f",{first.mid / factor}") for factor in (1.25, 0.8, 1.0)]
    rows = predict_table(write(tmp_path / "u.csv", HEAD, *lines, BAD)).rows
    found = errors("all", rows)
    assert (found.rows, found.judged, found.compared) == (4, 3, 3)
    assert found.median == pytest.approx(0.20, rel=1e-3)
    assert found.mean == pytest.approx(0.15, rel=1e-3)
    assert found.bias == pytest.approx(0.0, abs=1e-3)
    assert found.within == 1.0


def test_a_source_has_a_short_name() -> None:
    told = "github:argonne-lcf/LLM-Inference-Bench@4211f5d:Plots/Fig_3/x.csv"
    assert source_name(read_row({"source": told})) == "argonne-lcf/LLM-Inference-Bench Fig_3"
    assert source_name(read_row({"source": "https://www.example.org/a/b/c/d"})) == "example.org/a/b"
    assert source_name(read_row({})) == "not stated"
