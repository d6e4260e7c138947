"""The commands as Python functions, worked against figures of the story and of data sheets."""

from __future__ import annotations

import json
from importlib import import_module
from inspect import signature
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import headrace
from headrace import api
from headrace.errors import UnreachableError, UsageError
from headrace.simulate.emulate import Faults
from headrace.words import Constraint

GOLDEN = (
    "--context-length 8192 --mamba-scheduler-strategy extra_buffer --max-running-requests 64 "
    "--mem-fraction-static 0.85"
)


def test_plan_gives_the_golden_cap() -> None:
    """94.3 GiB free, 51.1 GiB of weights, a bf16 state of 74.8 MiB: 188 slots ÷ 5 = 37."""
    found = headrace.plan(
        model="Qwen/Qwen3.6-27B",
        gpu="RTX PRO 6000 Blackwell Server",
        engine_version="0.5.12",
        flags=GOLDEN + " --mamba-ssm-dtype bfloat16",
        free_gib=94.3,
        weights_gib=51.1,
    )
    assert found.plan.cap is not None
    assert int(found.plan.cap) == 37
    assert found.plan.cap_bound_by is Constraint.STATE_POOL
    assert found.explanations is None
    assert found.changes


def test_plan_says_which_untold_setting_explains_what_is_reported() -> None:
    found = headrace.plan(
        model="qwen3.6-27b",
        gpu="RTX PRO 6000 Blackwell Server",
        engine_version="0.5.12",
        flags=GOLDEN,
        free_gib=94.3,
        weights_gib=51.1,
        reported="cap=37,slots=188,kv=250905",
    )
    assert found.explanations is not None
    assert "bfloat16" in str(found.explanations[0])


def test_gpus_by_any_name() -> None:
    assert [device.name for device in headrace.gpus("NVIDIA H200")] == ["H200 SXM"]
    assert len(headrace.gpus("RTX PRO 6000 Blackwell")) == 3
    assert len(headrace.gpus()) >= 50
    with pytest.raises(UsageError):
        headrace.gpus("GeForce 9999")


def test_model() -> None:
    """Qwen3.6-27B: 16 full-attention layers of 4 KV heads of 256: 2 × 16 × 4 × 256 × 2 B, half at tp 2."""
    found = headrace.model("Qwen/Qwen3.6-27B")
    assert int(found.geometry.kv_bytes_per_token(2)) == int(found.kv_bytes_per_token["bf16"]) == 65_536
    assert int(headrace.model("Qwen/Qwen3.6-27B", tp=2).kv_bytes_per_token["bf16"]) == 32_768
    assert "Qwen/Qwen3.6-27B" in headrace.model()
    with pytest.raises(UsageError, match="--fetch needs a NAME"):
        api.model(None, fetch=True)


def test_emulate() -> None:
    with headrace.emulate(replicas=2, error_503={1: 100}, model="tiny") as fleet:
        assert [status_of(url) for url in fleet.urls] == [200, 503]
    with pytest.raises(UsageError) as refused:
        headrace.emulate(error_505=1, hangs="all")
    assert refused.value.problems == (
        "'error_505' is no fault. Did you mean 'error_503'?",
        "'hangs' is no fault. Did you mean 'hang'?",
    )
    with pytest.raises(UsageError, match=r"--error-503 200: error_503 is 200 percent; give 0 to 100"):
        headrace.emulate(error_503=200)


def status_of(url: str) -> int:
    """What a server answers to a prompt."""
    body = json.dumps({"model": "tiny", "prompt": "hi", "max_tokens": 1}).encode()
    request = Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code


def test_diagnose_a_log_by_its_python_face(tmp_path: Path) -> None:
    facts = tmp_path / "facts.yaml"
    facts.write_text("schema_version: 1\nengine: sglang\n")
    found = api.diagnose(facts, gpu="H100 SXM", model="Qwen/Qwen3-8B", window=0)
    assert found.to_json()["schema_version"] == 1
    with pytest.raises(UsageError, match="Did you mean 'free'"):
        api.diagnose(facts, load="fre")
    with pytest.raises(UsageError, match="no such variable"):
        api.diagnose(facts, api_key_env="HEADRACE_NO_SUCH_KEY")


def test_fleet_functions_refuse_what_is_no_address(tmp_path: Path) -> None:
    for change in (headrace.fleet_add, headrace.fleet_drain, headrace.fleet_remove):
        with pytest.raises(UsageError) as refused:
            change(["h:1", "http://h:2-1"], tmp_path)
        assert len(refused.value.problems) == 2
        with pytest.raises(UnreachableError):
            change("http://127.0.0.1:9", tmp_path)


PACKAGES = ["diagnose", "report"]  # their functions are in headrace.api alone

# what a command has for the terminal alone, and a function for Python alone
SHOWN = {
    "as_json",
    "context",
    "watch",
    "every",
    "detach",
    "dry_run",
    "progress",
    "everything",
    "explain",
    "once",
}
OF_PYTHON = {"ask", "on_progress", "on_sample", "on_status", "status_every_seconds", "faults", "written_at"}
OF_PYTHON |= {"on_look", "every_seconds", "looks", "leave"}
FAULTS = {name for name in Faults.__struct_fields__ if name not in ("refuse", "retry_after_seconds")}


@pytest.mark.parametrize("name", [name for name in headrace.__all__ if name != "__version__"] + PACKAGES)
def test_every_command_and_its_function_have_the_same_words(name: str) -> None:
    first, _, second = name.partition("_")
    command = getattr(import_module(f"headrace.cli.{first}"), second or first)
    function = set(signature(getattr(api, name)).parameters) - OF_PYTHON
    words = set(signature(command).parameters) - SHOWN
    if name == "record":
        words.add("every")  # here it is no matter of showing
    if name == "emulate":
        words -= FAULTS
        assert len(FAULTS) == 12
    assert function == words


def test_all_public_names_are_there() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
