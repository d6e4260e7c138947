"""The emulated server's answers, field for field against what a real SGLang 0.5.12 was recorded to say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.simulate.emulate import EmulatorOptions, ThreadedFleet
from tests.contract.engine_contract import Answer, ask
from tests.contract.test_engine_contract import Emulated


@pytest.fixture(scope="module")
def captured(shared: Path) -> Path:
    return shared / "captures/sglang/0.5.12-llama"


@pytest.fixture(scope="module")
def engine() -> Iterator[Emulated]:
    options = EmulatorOptions(
        replicas=1, model="tiny-llama", cap=16, context_length=2048, kv_tokens=8192, speed=100, thinking=False
    )
    with ThreadedFleet(options) as fleet:
        yield Emulated(fleet.urls[0], options.model, "sglang", options.cap)


def shape(value: Any) -> Any:
    """The value with every leaf replaced by the name of its JSON type, whole numbers and others alike."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def replay(engine: Emulated, captured: Path, name: str) -> tuple[Answer, str]:
    """Sends the recorded request; returns the answer and the recorded one, whose status must agree."""
    (meta_path,) = captured.glob(f"{name}.*.meta.json")
    meta = json.loads(meta_path.read_text())
    post = b"" if meta["method"] == "POST" and meta["body"] is None else meta["body"]
    answer = ask(engine, meta["path"], post)
    assert answer.status == meta["status"]
    return answer, meta_path.with_name(meta_path.name.removesuffix(".meta.json")).read_text()


@pytest.mark.parametrize(
    "name",
    [
        "chat_one",
        "completions_one",
        "gen_one",
        "get_load",
        "v1_loads",
        "v1_models",
        "v1_models_one",
        "model_info",
        "err_wrong_model",
        "err_too_long",
        "err_bad_json",
        "notfound",
        "root",
    ],
)
def test_documents_have_the_recorded_shape(engine: Emulated, captured: Path, name: str) -> None:
    answer, recorded = replay(engine, captured, name)
    expected = shape(json.loads(recorded))
    got = shape(answer.document)
    if name == "err_wrong_model":  # the little model happened to say nothing
        expected["choices"][0]["message"]["content"] = "str"
    assert got == expected


def test_the_over_long_prompt_is_refused_in_the_recorded_words(engine: Emulated, captured: Path) -> None:
    answer, recorded = replay(engine, captured, "err_too_long")
    assert answer.document == json.loads(recorded)


@pytest.mark.parametrize("name", ["chat_stream", "gen_stream"])
def test_events_have_the_recorded_shapes(engine: Emulated, captured: Path, name: str) -> None:
    answer, recorded = replay(engine, captured, name)
    expected = Answer(200, "", recorded).events
    got = answer.events
    for at in (-2, -1) if name == "chat_stream" else (-1,):
        mine, theirs = shape(got[at]), shape(expected[at])
        if name == "gen_stream":  # recorded with a prefix cache that hit
            theirs["meta_info"]["cached_tokens_details"] = "NoneType"
        assert mine == theirs
    assert shape(got[0]).keys() == shape(expected[0]).keys()
    if name == "chat_stream":
        assert shape(got[0]) == shape(expected[0])
        assert shape(got[1]) == shape(expected[1])


def test_server_info_shows_a_part_of_the_recorded_fields(engine: Emulated, captured: Path) -> None:
    answer, recorded = replay(engine, captured, "server_info")
    expected = json.loads(recorded)
    got = answer.document
    for mine, theirs in ((got, expected), (got["internal_states"][0], expected["internal_states"][0])):
        assert set(mine) <= set(theirs)
        for name in set(mine) - {"internal_states"}:
            if mine[name] is not None and theirs[name] is not None:
                assert shape(mine[name]) == shape(theirs[name]), name


def test_metrics_are_a_part_of_the_recorded_families_with_their_labels(
    engine: Emulated, captured: Path
) -> None:
    ask(engine, "/generate", {"text": "x", "sampling_params": {"max_new_tokens": 3}})
    recorded = (captured / "metrics_during_1.txt").read_text()
    theirs = {family.name: family for family in text_string_to_metric_families(recorded)}
    page = ask(engine, "/metrics").text
    for family in text_string_to_metric_families(page):
        if family.name == "sglang:num_aborted_requests":  # none was aborted in that recording
            continue
        assert family.name in theirs
        assert family.type == theirs[family.name].type
        mine_labels = {frozenset(sample.labels) for sample in family.samples}
        their_labels = {frozenset(sample.labels) - {"pid"} for sample in theirs[family.name].samples}
        assert mine_labels == their_labels, family.name
        if family.type == "histogram":
            bounds = [sample.labels.get("le") for sample in family.samples]
            assert bounds == [sample.labels.get("le") for sample in theirs[family.name].samples]
