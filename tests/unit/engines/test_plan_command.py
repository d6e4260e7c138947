"""`headrace plan`: what it prints, its JSON, and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.errors import WOULD_NOT_START
from tests.unit.engines.planning import GOLDEN, shared

CARD = ("--gpu", "RTX PRO 6000 Blackwell Server", "--model", "Qwen/Qwen3.6-27B", "--engine-version", "0.5.12")
MEMORY = ("--free-gib", "94.3", "--weights-gib", "51.1")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["plan", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *CARD, *MEMORY, "--flags", f"{GOLDEN} --mamba-ssm-dtype bfloat16", "--json")
    assert code == 0
    document = json.loads(out)
    assert (document["cap"]["value"], document["cap_bound_by"]) == (37, "state_pool")
    assert document["state_slots"]["value"] == 188
    assert document["slots_per_request"]["value"] == 5
    assert document["kv_tokens"]["value"] == pytest.approx(250_905, rel=0.02)
    assert document["kv_bytes_per_token"]["value"] == 65_536
    assert document["state_bytes_per_request"]["value"] == pytest.approx(74.8 * 2**20, rel=0.001)
    assert [rung["id"] for rung in document["ladder"]][:2] == ["state_pool", "max_running_requests"]
    assert all(change["cap"] > 37 for change in document["changes"])


def test_the_view_fits_in_eighty_columns_and_says_what_it_must(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys,
        *CARD,
        *MEMORY,
        "--flags",
        GOLDEN,
        "--context-tokens",
        "1568",
        "--reported",
        "cap=37",
        "--target-cap",
        "60",
    )
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    text = " ".join(out.split())
    for words in (
        "Cap 19 running requests, bound by state_pool",
        "95 slots of 147 MiB, 5 per request",
        "252,882 tokens of 64.0 KiB",
        "▶ 19",
        "bfloat16 recurrent state (--mamba-ssm-dtype bfloat16)",
        "Ways to a cap of 60",
        "--disable-radix-cache",
        "How to read this",
    ):
        assert words in text


def test_a_refused_line_says_why_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    refused = (*CARD, *MEMORY, "--flags", f"{GOLDEN} --disable-radix-cache")
    code, out, _ = run(capsys, *refused)
    assert code == WOULD_NOT_START
    assert "Would not start" in out
    assert "no_buffer" in out
    code, out, _ = run(capsys, *refused, "--json")
    assert (code, json.loads(out)["would_start"]) == (WOULD_NOT_START, False)


def test_a_change_shows_each_figure_that_moved_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    """A bfloat16 state is half a float32 one: 95 slots of 147 MiB, 188 of 74.8 (the story: 19 and 37)."""
    change = (*CARD, *MEMORY, "--flags", GOLDEN, "--change", "--mamba-ssm-dtype bfloat16")
    code, out, _ = run(capsys, *change)
    assert code == 0
    told = out[out.index("Before and after") :].split("\n\n")[0]
    rows = dict(line.split(maxsplit=1) for line in told.splitlines()[1:])
    assert rows["cap"].split() == ["19", "→", "37"]
    assert rows["state_slots"].split() == ["95", "→", "188"]
    assert rows["mamba_ssm_dtype"].split() == ["float32", "→", "bfloat16"]
    assert "context_length" not in rows
    _, out, _ = run(capsys, *change, "--json")
    moved = {each["name"]: each for each in json.loads(out)["moved"]}
    assert moved["cap"] == {"name": "cap", "before": 19, "after": 37, "unit": "requests"}
    assert len(moved) == len(rows)


def test_a_change_that_moves_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *CARD, *MEMORY, "--flags", GOLDEN, "--change", "--context-length 8192")
    assert "The change moves nothing" in out


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        (
            ("--engine-version", "0.5.12"),
            ("--mem-fraction-static", "--max-mamba-cache-size", "--mamba-full-memory-ratio",
             "--disable-radix-cache", "--mamba-ssm-dtype"),
        ),
        (
            ("--engine", "vllm", "--engine-version", "0.32.0"),
            ("--gpu-memory-utilization", "--no-enable-prefix-caching", "--kv-cache-dtype",
             "--mamba-ssm-cache-dtype"),
        ),
    ],
)  # fmt: skip
def test_what_cannot_reach_a_cap_is_told_by_its_flag(
    capsys: pytest.CaptureFixture[str], engine: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    _, out, _ = run(capsys, *CARD[:4], *engine, "--context-tokens", "1568", "--target-cap", "2000", "--json")
    texts = [way["text"] for way in json.loads(out)["solutions"] if way["change"] is None]
    assert len(texts) == len(flags)
    for flag in flags:
        assert any(flag in text for text in texts), flag


def test_changes_edit_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        *CARD,
        *MEMORY,
        "--flags",
        GOLDEN,
        "--change",
        "--mem-fraction-static 0.92 -max-running-requests",
        "--json",
    )
    document = json.loads(run(capsys, *arguments)[1])
    assert "--mem-fraction-static 0.92" in document["settings"]["flags"]
    assert "--max-running-requests" not in document["settings"]["flags"]
    assert document["state_slots"]["value"] == 117


def test_defaults_are_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, *CARD, "--flags", GOLDEN, "--json")[1])
    assert document["free_bytes"]["origin"] == "assumed"
    assert document["weight_bytes"]["origin"] == "assumed"
    # 51.1 GiB with what loading adds; the cap is the golden one for a float32 state
    assert document["weight_bytes"]["value"] == pytest.approx(51.1 * 2**30, rel=0.01)
    assert document["cap"]["value"] == pytest.approx(19, abs=1)


def test_tp_beside_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, *CARD, "--flags", GOLDEN, "--tp", "2", "--json")[1])
    assert document["settings"]["values"]["tp_size"]["value"] == 2
    assert document["kv_bytes_per_token"]["value"] == 32_768


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--engine", "sglnag"), "sglang"),
        (("--flags", "--model-path 'x"), "Close the quotes"),
        (("--reported", "cap=x"), "no number"),
        (("--change", "-no-such-flag"), "does not have"),
        (("--server-info", "/nowhere.json"), "cannot be read"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = run(capsys, *CARD, *arguments)
    assert code in (2, 3)
    assert words in err
    assert "Traceback" not in err


def test_all_names_that_nobody_knows_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(
        capsys, "--model", "nope", "--gpu", "nope", "--engine", "sglng", "--reported", "cap=x,foo=1"
    )
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 6
    for said in (
        "model 'nope'",
        "--reported cap=x",
        "foo=1",
        "Did you mean 'sglang'",
        "GPU 'nope'",
        "5 problems",
    ):
        assert sum(said in line for line in lines) == 1, said


def test_server_info_is_read_by_allow_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = {
        "version": "0.5.12",
        "api_key": "sk-secret",
        "admin_api_key": "sk-other",
        "model_path": "/models/x",
        "mem_fraction_static": 0.85,
        "max_running_requests": 64,
        "mamba_scheduler_strategy": "extra_buffer",
        "mamba_full_memory_ratio": 0.9,
        "disable_radix_cache": False,
        "context_length": 8192,
        "max_total_num_tokens": 251_001,
        "internal_states": [
            {
                "max_mamba_cache_size": 188,
                "effective_max_running_requests_per_dp": 37,
                "memory_usage": {"weight": 51.1},
                "api_key": "sk-secret",
            }
        ],
    }
    path = tmp_path / "info.json"
    path.write_text(json.dumps(answer), encoding="utf-8")
    out = run(capsys, *CARD[:4], "--free-gib", "94.3", "--server-info", str(path), "--json")[1]
    assert "sk-" not in out
    document = json.loads(out)
    assert document["settings"]["values"]["mem_fraction_static"]["origin"] == "reported"
    assert document["explanations"][0]["untold"] == ["--mamba-ssm-dtype bfloat16"]


def test_a_real_servers_answer(capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared()
    if folder is None:
        pytest.skip("the shared folder with captures is not here (HEADRACE_SHARED names it)")
    path = folder / "captures/sglang/0.5.12-qwen3next-smallmamba/get_server_info.json"
    arguments = ("--gpu", "H100 SXM", "--model", "Qwen/Qwen3-Next-80B-A3B-Instruct", "--tp", "2")
    document = json.loads(run(capsys, *arguments, "--server-info", str(path), "--json")[1])
    # that server said 8 running, 24 slots; its tiny model has the same slots per request
    assert (document["cap"]["value"], document["state_slots"]["value"]) == (8, 24)


def test_vllm(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--engine", "vllm", "--engine-version", "0.33.0", *CARD[:4], "--context-tokens", "1568")
    code, out, _ = run(capsys, *arguments, "--flags", "vllm serve Qwen/Qwen3.6-27B --max-num-seqs 64")
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert "blocks of 49.0 MiB" in out
