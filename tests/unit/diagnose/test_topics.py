"""The last resorts and the weak words: topics, saturation, and what was switched on for the worse."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.diagnose.rules import findings
from headrace.diagnose.switched import read_switched
from headrace.diagnose.trials import Thing
from headrace.words import Constraint
from tests.unit.diagnose.stories import DENSE, told, view

_C = Constraint
# Facts with nothing that measures: only words.
BARE: dict[str, Any] = {"engine": "vllm", "client": {"load": "given"}}


def named(facts: dict[str, Any]) -> dict[Constraint, float]:
    return {found.constraint: found.confidence for found in findings(view(facts))}


def test_a_topic_is_named_where_nothing_was_measured_and_is_never_sure() -> None:
    found = named(told(BARE, claims=["the tokenizer and the chat template take long"]))
    assert max(found, key=found.__getitem__) is _C.FRONTEND
    assert found[_C.FRONTEND] < 0.35


def test_a_topic_is_silent_beside_a_reading() -> None:
    found = named(told(DENSE, observed={"running": 96, "queued": 40, "cap": 96}, claims=["the tokenizer"]))
    assert _C.MAX_RUNNING_REQUESTS in found
    assert _C.FRONTEND not in found


def test_a_topic_that_a_reading_rules_out_is_not_named() -> None:
    claims = ["the KV cache was looked at"]
    assert _C.KV_POOL in named(told(BARE, claims=claims))
    assert _C.KV_POOL not in named(told(BARE, observed={"kv_usage": 0.1}, claims=claims))


@pytest.mark.parametrize(
    ("fewer", "binds"),
    [
        (1000, (_C.COMPUTE, _C.MEMORY_BANDWIDTH)),  # as much: a roof
        (2000, (_C.KV_POOL,)),  # twice as much: a roof would hold
        (500, ()),  # half: more in flight brings more
    ],
)
def test_fewer_in_flight_that_make_as_much(fewer: int, binds: tuple[Constraint, ...]) -> None:
    facts = told(
        BARE,
        observed={"output_tokens_per_s": 1000},
        client={"in_flight": 256},
        claims=[f"64 in flight make {fewer} tok/s"],
    )
    roofs = {_C.COMPUTE, _C.MEMORY_BANDWIDTH, _C.KV_POOL} & set(named(facts))
    assert roofs <= set(binds)
    assert bool(roofs) == bool(binds)


def test_throughput_that_falls_above_one_batch_size_is_outside_the_graphs() -> None:
    facts = told(
        BARE, client={"in_flight": 256}, claims=["throughput drops when the batch is larger than 128"]
    )
    assert _C.CUDA_GRAPH in named(facts)
    facts["observed"] = {"cuda_graph": True}
    assert _C.CUDA_GRAPH not in named(facts)


@pytest.mark.parametrize(
    ("text", "thing", "factor"),
    [
        ("when MTP is enabled throughput drops by 20 %", Thing.DRAFTS, 1.25),
        ("with LoRA enabled it is 2x slower", Thing.ADAPTER, 2.0),
        ("with a grammar it falls from 300 to 100 tok/s", Thing.GRAMMAR, 3.0),
    ],
)
def test_what_was_switched_on_for_the_worse(text: str, thing: Thing, factor: float) -> None:
    (trial,) = [trial for trial in read_switched(text) if trial.thing is thing]
    assert trial.better
    assert trial.factor == pytest.approx(factor)


@pytest.mark.parametrize("text", ["with MTP it is faster", "MTP is on", "with LoRA no slower", ""])
def test_what_is_no_worse_is_no_trial(text: str) -> None:
    assert not list(read_switched(text))


def test_a_part_of_the_step_is_not_the_step_of_another_version() -> None:
    facts = told(
        DENSE,
        observed={"running": 32, "tpot_s": 0.0213, "output_tokens_per_s": None, "kv_usage": None},
        claims=["1.29 ms of every step are host-side sampling since the last release"],
    )
    assert _C.KERNEL_PATH not in {c for c, sure in named(facts).items() if sure >= 0.4}


def test_others_that_have_none_are_an_imbalance() -> None:
    facts = told(
        BARE,
        observed={"running": 1, "queued": 11},
        claims=["one rank has 1 running and 11 queued, the other three have none"],
    )
    assert max(named(facts), key=named(facts).__getitem__) is _C.LOAD_IMBALANCE


def test_a_pool_that_was_read_and_has_room_outweighs_the_planned_one() -> None:
    # at 14,000 tokens a request: 64 do not fit beside each other on one H100, but the pool was seen at 30 %
    client = {"in_flight": 64, "mean_input_tokens": 12000, "mean_output_tokens": 4000, "load": "free"}
    observed = {"running": None, "queued": None, "output_tokens_per_s": None}
    assert _C.KV_POOL not in named(told(DENSE, client=client, observed=observed))
    assert _C.KV_POOL in named(told(DENSE, client=client, observed=observed | {"kv_usage": None}))
