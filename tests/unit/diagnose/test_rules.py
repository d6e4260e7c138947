"""Every rule fires on its cause and stays silent on others."""

from __future__ import annotations

import pytest

from headrace.diagnose.finding import SUGGESTED
from headrace.words import Constraint
from tests.unit.diagnose.stories import STORIES, Story, judged


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_what_binds(story: Story) -> None:
    found = judged(story.facts)
    assert found.binding.constraint is story.binds, found.binding
    assert found.binding.evidence
    assert found.binding.would_refute


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_what_stays_silent(story: Story) -> None:
    found = judged(story.facts)
    named = {finding.constraint for finding in found.also if finding.confidence > SUGGESTED}
    assert not named & set(story.silent)


def test_each_constraint_that_binds_a_story_is_silent_on_four_others() -> None:
    first = {name: judged(story.facts).binding.constraint for name, story in STORIES.items()}
    for constraint in set(first.values()):
        others = [name for name, found in first.items() if found is not constraint]
        assert len(others) >= 4


def test_a_full_looking_state_pool_below_the_cap_does_not_bind() -> None:
    """61 % with 3 to 4 of 5 slots held per request is what 32 of 37 look like: no headroom."""
    facts = STORIES["too little in flight"].facts
    found = judged({**facts, "observed": {**facts["observed"], "state_usage": 0.8}})
    assert found.binding.constraint is Constraint.CLIENT_CONCURRENCY


def test_a_warning_alone_decides_nothing() -> None:
    from dataclasses import replace

    from headrace.diagnose.pipeline import diagnose
    from headrace.diagnosing import context_of
    from headrace.observe.observation import Event, Observation, ServerObservation

    event = Event(
        "graphs_disabled", "warning", 3, "Using default MoE config. Performance might be sub-optimal!"
    )
    server = ServerObservation("log", "vllm", events=(event, replace(event, id="no such id")))
    found = diagnose(Observation((server,)), context_of(Observation((server,))))
    assert found.binding.constraint is Constraint.UNKNOWN


def test_one_server_of_several_that_does_not_answer_is_told() -> None:
    from headrace.diagnose.pipeline import diagnose
    from headrace.diagnosing import context_of
    from headrace.observe.observation import Event, Observation, ServerObservation

    down = ServerObservation("http://b", events=(Event("unreachable", "failure", 1, "refused"),))
    seen = Observation((down,))
    assert diagnose(seen, context_of(seen)).binding.constraint is Constraint.SERVER_DOWN


def test_a_fleet_is_the_sum_of_its_servers_and_a_dead_one_is_named() -> None:
    from headrace.diagnose.pipeline import diagnose
    from headrace.diagnosing import context_of
    from headrace.observe.observation import Event, Observation, ServerObservation
    from headrace.quantities import Origin, Quantity

    def server(name: str, rate: float) -> ServerObservation:
        told = {"running": 8.0, "queued": 0.0, "output_tokens_per_s": rate}
        readings = {word: Quantity(value, "", Origin.REPORTED) for word, value in told.items()}
        return ServerObservation(name, "vllm", readings=readings, flags="--max-num-seqs 64")

    down = ServerObservation("c", events=(Event("unreachable", "failure", 1, "refused"),))
    seen = Observation((server("a", 300.0), server("b", 500.0), down))
    found = diagnose(seen, context_of(seen))
    assert found.binding.constraint is Constraint.CLIENT_CONCURRENCY
    assert found.also[0].constraint is Constraint.SERVER_DOWN
    assert found.baseline.value("output_tokens_per_s_fleet") == 800
    assert [server.name for server in found.servers] == ["a", "b", "c"]


def test_a_job_that_has_ended_tells_of_no_limit() -> None:
    from tests.unit.diagnose.stories import HYBRID, told

    found = judged(told(HYBRID, client={"in_flight": 0}, observed={"output_tokens_per_s": None}))
    assert found.binding.constraint is Constraint.UNKNOWN
    assert "nothing ran" in found.binding.evidence[0]


@pytest.mark.parametrize(
    ("running", "usage", "binds"),
    [
        ([21, 1, 15, 11, 2, 17, 24], [1.0, 0.1, 0.7, 0.8, 0.2, 0.8, 0.98], Constraint.KV_POOL),
        ([24, 24, 23, 24, 24, 24, 24], [0.5, 0.6, 0.55, 0.5, 0.6, 0.6, 0.5], Constraint.MAX_RUNNING_REQUESTS),
    ],
)
def test_a_cap_is_a_plateau_and_a_small_pool_is_not(
    running: list[float], usage: list[float], binds: Constraint
) -> None:
    import numpy as np

    from headrace.diagnose.pipeline import diagnose
    from headrace.diagnosing import context_of
    from headrace.observe.observation import Observation, ServerObservation
    from headrace.quantities import Origin, Quantity

    told = {
        "running": np.median(running),
        "kv_usage": np.median(usage),
        "queued": 5.0,
        "output_tokens_per_s": 900.0,
    }
    server = ServerObservation(
        "live",
        "vllm",
        seconds=np.arange(len(running), dtype=float),
        columns={"running": np.array(running, dtype=float), "kv_usage": np.array(usage)},
        readings={word: Quantity(float(value), "", Origin.REPORTED) for word, value in told.items()},
    )
    seen = Observation((server,))
    assert diagnose(seen, context_of(seen)).binding.constraint is binds
