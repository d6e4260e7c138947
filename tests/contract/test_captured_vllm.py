"""The emulated vLLM's answers, field for field against what a real vLLM 0.32.0 was recorded to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.engines.vllm.metrics import read_metrics
from headrace.simulate.emulate import EmulatorOptions, ThreadedFleet
from headrace.simulate.emulate.launched import LaunchAsked, with_line
from tests.contract.engine_contract import Answer, ask, chat
from tests.contract.test_captured_answers import shape
from tests.contract.test_engine_contract import Emulated

MODEL = "Qwen3-8B"


@pytest.fixture(scope="module")
def captured(shared: Path) -> Path:
    return shared / "captures/vllm"


@pytest.fixture(scope="module")
def engine() -> Iterator[Emulated]:
    flags = "--max-model-len 2048 --max-num-seqs 64 --served-model-name tiny-llama"
    line = LaunchAsked("vllm", "0.32.0", "RTX PRO 6000 Blackwell Server", flags)
    options = with_line(EmulatorOptions(replicas=1, speed=10, model=MODEL, thinking=False), line)
    with ThreadedFleet(options) as fleet:
        yield Emulated(fleet.urls[0], "tiny-llama", "vllm", options.cap)


def recorded(captured: Path, name: str) -> Any:
    return json.loads((captured / name).read_text())


def test_documents_have_the_recorded_shape(engine: Emulated, captured: Path) -> None:
    answers = {
        "models.json": ask(engine, "/v1/models"),
        "version.json": ask(engine, "/version"),
        "load.json": ask(engine, "/load"),
        "server_info.json": ask(engine, "/get_server_info"),
        "v1_chat_completions.json": chat(engine, max_tokens=48, ignore_eos=True),
        "v1_completions.json": ask(
            engine,
            "/v1/completions",
            {"model": "tiny-llama", "prompt": "hello", "max_tokens": 48, "ignore_eos": True},
        ),
    }
    for name, answer in answers.items():
        assert shape(answer.document) == shape(recorded(captured, name)), name
    assert answers["version.json"].document == recorded(captured, "version.json")


def test_refusals_are_the_recorded_ones(engine: Emulated, captured: Path) -> None:
    too_long = chat(engine, "word " * 4096)
    assert (too_long.status, too_long.document) == (400, recorded(captured, "err_too_long.json"))
    body = {"model": "nope", "messages": [{"role": "user", "content": "x"}]}
    unknown = ask(engine, "/v1/chat/completions", body)
    assert (unknown.status, unknown.document) == (404, recorded(captured, "err_unknown_model.json"))


def test_events_have_the_recorded_shapes(engine: Emulated, captured: Path) -> None:
    answer = chat(
        engine, max_tokens=500, ignore_eos=True, stream=True, stream_options={"include_usage": True}
    )
    expected = Answer(200, "", (captured / "chat_stream.sse").read_text()).events
    for at in (0, 1, -2, -1):  # the role, a token, the last token, the usage
        assert shape(answer.events[at]) == shape(expected[at]), at


def test_metrics_are_a_part_of_the_recorded_families_with_their_labels(
    engine: Emulated, captured: Path
) -> None:
    usage = chat(engine, max_tokens=30, ignore_eos=True).document["usage"]
    page = (captured / "metrics_during_2.txt").read_text()
    theirs = {family.name: family for family in text_string_to_metric_families(page)}
    mine = ask(engine, "/metrics").text
    for family in text_string_to_metric_families(mine):
        assert family.name in theirs
        assert family.type == theirs[family.name].type, family.name
        labels = {frozenset(sample.labels) for sample in family.samples}
        their_labels = {frozenset(sample.labels) for sample in theirs[family.name].samples}
        if family.name == "vllm:cache_config_info":  # a part of its many
            assert next(iter(labels)) <= next(iter(their_labels))
        else:
            assert labels == their_labels, family.name
        if family.type == "histogram":
            bounds = [sample.labels["le"] for sample in family.samples if "le" in sample.labels]
            their_bounds = [
                sample.labels["le"] for sample in theirs[family.name].samples if "le" in sample.labels
            ]
            assert bounds == their_bounds, family.name
    read = read_metrics(mine)
    assert read.counters["output_tokens"] >= usage["completion_tokens"]
    assert read.gauges["kv_capacity_tokens"] > 100_000  # some 70 GiB at 144 KiB per token
