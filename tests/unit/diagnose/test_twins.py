"""Twins of the golden case, each changed as physics would have it: the verdict follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.diagnose.document import Diagnosis
from headrace.words import Constraint, Lever
from tests.unit.diagnose.stories import judged, told

_C = Constraint


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[str, Any]:
    facts: dict[str, Any] = yaml.safe_load((shared / "cases" / "golden" / "facts.yaml").read_text())
    return facts


def rungs(found: Diagnosis) -> list[tuple[Constraint, float | None]]:
    return [(rung.constraint, rung.limit.value if rung.limit else None) for rung in found.ladder]


def test_more_in_flight_is_bound_by_the_states(golden: dict[str, Any]) -> None:
    found = judged(
        told(golden, client={"in_flight": 512}, observed={"running": 37, "queued": 27, "state_usage": 0.7})
    )
    assert found.binding.constraint is _C.STATE_POOL
    assert rungs(found)[0] == (_C.STATE_POOL, 37)


@pytest.mark.parametrize("cap", [32, 37, None])
def test_a_lower_flag_binds(golden: dict[str, Any], cap: int | None) -> None:
    found = judged(
        told(
            golden,
            flags=golden["flags"].replace("--max-running-requests 64", "--max-running-requests 32"),
            client={"in_flight": 512},
            observed={"queued": 32, "cap": cap},
        )
    )
    assert found.binding.constraint is _C.MAX_RUNNING_REQUESTS


def test_a_full_pool_that_throws_work_away(golden: dict[str, Any]) -> None:
    found = judged(
        told(
            golden,
            observed={"kv_usage": 0.99, "retractions_per_min": 20, "queued": 4},
            client={"in_flight": 288},
        )
    )
    assert found.binding.constraint in (_C.KV_POOL, _C.RETRACTION)
    assert {found.binding.constraint, *(other.constraint for other in found.also)} >= {
        _C.KV_POOL,
        _C.RETRACTION,
    }


def test_shared_prefixes_keep_the_prefix_cache(golden: dict[str, Any]) -> None:
    found = judged(told(golden, observed={"cache_hit_rate": 0.8}))
    assert not any(Lever.RADIX_CACHE_OFF in proposal.levers for proposal in found.proposals)
    assert found.proposals


def test_a_given_load_cannot_be_bound_by_the_client(golden: dict[str, Any]) -> None:
    found = judged(told(golden, client={"load": "given"}))
    named = {found.binding.constraint, *(other.constraint for other in found.also)}
    assert _C.CLIENT_CONCURRENCY not in named
    assert _C.CLIENT_CONCURRENCY not in {rung.constraint for rung in found.ladder}
    assert found.binding.constraint is _C.MEMORY_BANDWIDTH


def test_another_gpu_moves_the_ladder(golden: dict[str, Any]) -> None:
    """An H200 leaves 0.85 × free − weights, by hand 67 GiB; a slot is 74.8 MiB, 5 per request."""
    there = told(golden, gpu="H200 SXM", observed={"cap": None, "state_usage": None})
    there["flags"] += " --mamba-ssm-dtype bfloat16"
    found = judged(there)
    states = dict(rungs(found))
    # the state pool no longer binds below the flag
    assert _C.MAX_RUNNING_REQUESTS in states
    assert states[_C.MAX_RUNNING_REQUESTS] == 64
    rest = 0.85 * 139.4 - 51.1
    assert states[_C.STATE_POOL] == pytest.approx(rest * 0.9 / 1.9 * 1024 / 74.8 / 5, rel=0.03)
    assert found.comparison.floor is not None
    kv_held = 0.2 * rest / 1.9 * 1.0737  # a fifth of what is left for KV, in GB
    assert found.comparison.floor.datasheet.value == pytest.approx((51.2 + 5.0 + kv_held) / 4800, rel=0.02)


def test_rescaled_units_change_nothing(golden: dict[str, Any]) -> None:
    """Percentages where fractions belong are read as what they mean."""
    found = judged(
        told(golden, observed={"kv_usage": "20%", "state_usage": "61%", "gpu_utilization": "100%"})
    )
    assert found.binding.constraint is _C.CLIENT_CONCURRENCY
    assert found.baseline.value("kv_usage") == pytest.approx(0.2)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_perturbed_numbers_come_out(golden: dict[str, Any], factor: float) -> None:
    """(finished × length + in flight × (context − prompt)) ÷ seconds, by hand from the perturbed facts."""
    output = 2473 * factor
    done = 438 * factor
    found = judged(
        told(
            golden,
            client={
                "mean_output_tokens": output,
                "completed": done,
                "output_tokens_per_s_finished_only": done * output / 280,
                "mean_input_tokens": 200,
            },
        )
    )
    context = 0.20 * found.baseline.numbers["kv_capacity_tokens"].value / 32
    by_hand = (done * output + 256 * (context - 200)) / 280
    assert found.baseline.value("output_tokens_per_s_fleet") == pytest.approx(by_hand, rel=1e-6)
    assert found.baseline.value("step_seconds") == pytest.approx(256 / by_hand, rel=1e-6)
