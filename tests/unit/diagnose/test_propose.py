"""Proposals: flags of the right version, nothing that would not start, accuracy never first."""

from __future__ import annotations

import pytest

from headrace.diagnose.pipeline import diagnose
from headrace.diagnosing import context_of
from headrace.engines import planner
from headrace.engines.launch_line import LaunchLine
from headrace.engines.vllm.failures import CATALOGUE
from headrace.observe.observation import Event, Observation, ServerObservation
from headrace.words import Constraint, Lever
from tests.unit.diagnose.stories import DENSE, HYBRID, STORIES, judged, told, view

STATES = STORIES["states at their cap"].facts


@pytest.mark.parametrize("name", list(STORIES))
def test_every_proposed_line_starts_by_its_plan(name: str) -> None:
    seen = view(STORIES[name].facts)
    for proposal in judged(STORIES[name].facts).proposals:
        if not proposal.launch_line or seen.planned is None:
            continue
        engine = planner(str(seen.server.engine))
        inputs = seen.planned.told.inputs
        line = LaunchLine.parse(proposal.launch_line, engine.table, inputs.rules.version)
        assert engine.plan(inputs.with_line(line)).would_start, proposal.launch_line


@pytest.mark.parametrize("name", list(STORIES))
def test_accuracy_is_never_first_and_restarts_come_after_what_needs_none(name: str) -> None:
    found = judged(STORIES[name].facts).proposals
    order = [(proposal.accuracy, proposal.needs_restart) for proposal in found]
    assert order == sorted(order)


def test_a_float32_state_is_offered_last() -> None:
    facts = told(
        STATES,
        flags=STATES["flags"].replace(" --mamba-ssm-dtype bfloat16", ""),
        observed={"running": 18, "queued": 62, "cap": 18},
    )
    found = judged(facts)
    assert found.binding.constraint is Constraint.STATE_POOL
    assert found.proposals[-1].levers[0] is Lever.STATE_DTYPE
    assert found.proposals[-1].accuracy


def test_the_cap_goes_up_with_what_is_in_flight_and_with_the_graphs() -> None:
    facts = told(STATES, flags=STATES["flags"] + " --cuda-graph-max-bs 40")
    best = next(p for p in judged(facts).proposals if p.levers[0] is Lever.RADIX_CACHE_OFF)
    assert {Lever.CLIENT_IN_FLIGHT, Lever.GRAPH_SIZES} <= set(best.levers)
    assert "--cuda-graph-max-bs" in best.flags
    assert best.running is not None
    assert best.running > 40


@pytest.mark.parametrize(
    ("version", "spelling"), [("0.5.12", "--cuda-graph-max-bs "), ("0.5.23", "--cuda-graph-max-bs-decode ")]
)
def test_flags_follow_the_version(version: str, spelling: str) -> None:
    facts = told(
        STORIES["graphs too small"].facts,
        engine_version=version,
        flags="--context-length 8192",
        observed={"cuda_graph_max_bs": 32},
    )
    found = next(p for p in judged(facts).proposals if p.levers[0] is Lever.GRAPH_SIZES)
    assert found.flags.startswith(spelling)


def test_prefixes_that_are_shared_keep_their_cache() -> None:
    shared = judged(told(STATES, observed={"cache_hit_rate": 0.3})).proposals
    single = judged(told(STATES, observed={"cache_hit_rate": 0.0})).proposals
    assert not any(Lever.RADIX_CACHE_OFF in proposal.levers for proposal in shared)
    assert any(Lever.RADIX_CACHE_OFF in proposal.levers for proposal in single)


def test_estimates_lie_between_nothing_and_proportional() -> None:
    seen = view(HYBRID)
    for proposal in judged(HYBRID).proposals:
        if proposal.gain is None or proposal.running is None:
            continue
        low, mid, high = proposal.gain
        assert seen.running is not None
        assert 1.0 <= low <= mid <= high <= proposal.running / seen.running + 1e-9


def test_a_given_load_asks_for_no_more_in_flight() -> None:
    found = judged(told(DENSE, client={"load": "given"}))
    assert not any(Lever.CLIENT_IN_FLIGHT in proposal.levers for proposal in found.proposals)


@pytest.mark.parametrize("first", ["CUDA out of memory. Tried to allocate 2 GiB", "Address already in use"])
def test_a_server_that_ended_is_mended_and_not_given_more(first: str) -> None:
    """The catalogue's own sentence of what mends it; more requests in flight are no help to it."""
    events = tuple(
        Event(entry.id, str(entry.severity), 1, text)
        for text, entry in ((text, CATALOGUE.find(text)) for text in (first, "EngineDeadError: x"))
        if entry is not None
    )
    server = ServerObservation("log", "vllm", events=events)
    seen = Observation((server,))
    found = diagnose(seen, context_of(seen))
    expected = CATALOGUE.find(first)
    assert expected is not None
    assert found.binding.constraint is expected.constraint is Constraint.CONFIGURATION_ERROR
    assert found.proposals[0].change == expected.mend
    assert all(proposal.gain is None for proposal in found.proposals)
