"""Empty, partial, contradictory and hostile evidence: an answer every time, never a crash, never healthy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headrace.diagnose.document import Diagnosis
from headrace.diagnose.pipeline import diagnose
from headrace.diagnosing import context_of
from headrace.observe.observation import ClientFacts, Event, Observation, ServerObservation
from headrace.observe.readings import BY_RANK, CLIENT, READINGS
from headrace.quantities import Origin, Quantity
from headrace.report.diagnosis_view import diagnosis_view
from headrace.words import Constraint

ODD = st.sampled_from([0.0, 1e-9, 0.5, 1.0, 37.0, 1e9, 1e18]) | st.floats(0, 1e6)
TEXTS = st.sampled_from(
    ["", "--max-running-requests 0", "--tp-size 99999", "'", "--mem-fraction-static nan", "TP=2"]
) | st.text(max_size=60)


def quantities(words: dict[str, Any], capacity: bool | None = None) -> st.SearchStrategy[dict[str, Quantity]]:
    names = [word for word in words if capacity is None or words[word].capacity is capacity]
    return st.dictionaries(
        st.sampled_from(names),
        ODD.map(lambda value: Quantity(value, "", Origin.REPORTED, "fuzz")),
        max_size=8,
    )


servers = st.builds(
    ServerObservation,
    name=st.just("fuzz"),
    engine=st.sampled_from([None, "sglang", "vllm", "llamacpp", "tgi"]),
    engine_version=st.sampled_from([None, "0.5.12", "0.5.23", "0.20.2", "x", "99.99"]),
    model=st.sampled_from([None, "Qwen/Qwen3.6-27B", "Qwen/Qwen3-8B", "nobody/knows", "../../etc/passwd"]),
    gpu=st.sampled_from([None, "H100 SXM", "RTX PRO 6000 Blackwell", "B200", "abacus"]),
    gpus=st.sampled_from([None, 1, 8]),
    replicas=st.sampled_from([1, 3]),
    tensor_parallel=st.sampled_from([None, 1, 2, 64]),
    weights_dtype=st.sampled_from([None, "fp8", "bf16", "?"]),
    kv_dtype=st.sampled_from([None, "fp8"]),
    flags=TEXTS,
    readings=quantities(READINGS, False),
    capacities=quantities(READINGS, True),
    by_rank=st.dictionaries(
        st.sampled_from(list(BY_RANK)), st.dictionaries(st.sampled_from(["0", "1", "2"]), ODD), max_size=2
    ),
    events=st.lists(
        st.builds(
            Event,
            id=st.sampled_from(["", "unreachable", "gpu_out_of_memory", "slow_tokenizer"]),
            severity=st.sampled_from(["note", "warning", "failure"]),
            count=st.just(1),
            text=st.text(max_size=30),
        ),
        max_size=2,
    ).map(tuple),
)
observations = st.builds(
    Observation,
    servers=st.lists(servers, max_size=2).map(tuple),
    client=st.none()
    | st.builds(ClientFacts, load=st.sampled_from([None, "free", "given"]), readings=quantities(CLIENT)),
    claims=st.lists(st.text(max_size=80) | st.just("25% of a B200"), max_size=3).map(tuple),
)


def answered(seen: Observation) -> Diagnosis:
    found = diagnose(seen, context_of(seen))
    json.dumps(found.to_json(), allow_nan=False)
    console = Console(width=80, file=open("/dev/null", "w"), highlight=False, markup=False)  # noqa: SIM115
    with console.file:
        console.print(diagnosis_view(found, everything=True))
    return found


@settings(max_examples=60, deadline=None)
@given(observations)
def test_any_evidence_gets_an_answer(seen: Observation) -> None:
    found = answered(seen)
    assert found.binding.constraint is not Constraint.NOT_LIMITED
    assert 0 <= found.binding.confidence <= 1


@pytest.mark.parametrize("seen", [Observation(()), Observation((ServerObservation("empty"),))])
def test_nothing_is_unknown_and_says_what_is_missing(seen: Observation) -> None:
    found = answered(seen)
    assert found.binding.constraint is Constraint.UNKNOWN
    assert found.missing
    assert not found.proposals


def test_zeros_are_not_healthy() -> None:
    zero = {word: Quantity(0.0, "", Origin.REPORTED) for word, kind in READINGS.items() if not kind.capacity}
    found = answered(Observation((ServerObservation("idle", "vllm", readings=zero),)))
    assert found.binding.constraint is Constraint.UNKNOWN


def test_faster_than_can_be_is_told() -> None:
    readings = {
        "running": Quantity(1.0, "requests", Origin.REPORTED),
        "output_tokens_per_s": Quantity(1e5, "tokens/s", Origin.REPORTED),
    }
    seen = Observation(
        (ServerObservation("odd", "sglang", model="Qwen/Qwen3.6-27B", gpu="H100 SXM", readings=readings),)
    )
    found = answered(seen)
    assert any("faster than its bytes can be read" in text for text in found.comparison.contradictions)
    assert found.binding.constraint is not Constraint.MEMORY_BANDWIDTH
