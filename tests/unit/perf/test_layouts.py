"""Ranks: what is divided, what is copied, what goes over the link; how bytes and FLOPs are put together."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from headrace.models.catalogue import resolve_model
from headrace.perf.efficiency import Efficiencies, OperatorClass
from headrace.perf.operators import Operator
from headrace.perf.options import StepOptions
from headrace.perf.step_model import StepModel, StepTime
from tests.unit.perf.machines import card, ideal

MOE = resolve_model("Qwen/Qwen3-30B-A3B")


def _decode(options: StepOptions, batch: int = 16, eff: Efficiencies | None = None) -> dict[str, Operator]:
    step: StepTime = StepModel(MOE, card(), options, eff or ideal()).decode(batch, batch * 1000)
    return {operator.name: operator for operator in step.operators}


def test_attention_ranks_have_their_own_requests_and_share_the_experts() -> None:
    """Four attention ranks of 16 requests each: attention is not divided, the experts see 64 tokens."""
    together, apart = _decode(StepOptions(tp=4)), _decode(StepOptions(tp=4, dp=4))
    assert apart["attention"].bytes == pytest.approx(4 * together["attention"].bytes, rel=0.01)
    assert apart["attention projections"].flops == pytest.approx(4 * together["attention projections"].flops)
    assert apart["experts"].flops == pytest.approx(4 * together["experts"].flops)
    assert apart["experts"].bytes > together["experts"].bytes  # 64 tokens wake more experts than 16


def test_expert_ranks_exchange_tokens_in_place_of_the_second_all_reduce() -> None:
    """48 layers, 8 experts per token, hidden 2048: one byte there and two back, to the other three ranks."""
    found = _decode(StepOptions(tp=4, dp=4, ep=4))
    assert found["all-to-all"].launches == 2 * 48
    assert found["all-to-all"].bytes == pytest.approx(16 * 48 * 8 * 2048 * 3 * 3 / 4)
    assert "all-reduce" not in found


def test_kv_heads_are_copied_where_there_are_fewer_than_ranks() -> None:
    """4 kv heads of 128: at eight ranks each still holds one, a quarter of the whole."""
    at = {tp: _decode(StepOptions(tp=tp))["attention"].bytes for tp in (1, 4, 8)}
    queries = {tp: 16 * 48 * 2 * (32 // tp) * 256 for tp in at}
    kv = {tp: at[tp] - queries[tp] for tp in at}
    assert kv[4] == pytest.approx(kv[1] / 4)
    assert kv[8] == pytest.approx(kv[1] / 4)


@pytest.mark.parametrize(("p", "join"), [(1.0, lambda a, b: a + b), (2.0, math.hypot), (math.inf, max)])
def test_how_bytes_and_flops_are_put_together(p: float, join: object) -> None:
    plain = ideal()
    projections = replace(plain.by_class[OperatorClass.GEMM], sharpness=p)
    eff = replace(plain, by_class={**plain.by_class, OperatorClass.GEMM: projections})
    found = _decode(StepOptions(), 100, eff)["attention projections"]
    expected = join(found.bytes / 1e12, found.flops / 100e12)  # type: ignore[operator]
    assert found.seconds.mid == pytest.approx(expected, rel=1e-6)


def test_every_launch_costs_its_floor() -> None:
    with_floor, without = _decode(StepOptions(), eff=ideal(floor=5e-6)), _decode(StepOptions())
    for name, operator in with_floor.items():
        more = operator.seconds.mid - without[name].seconds.mid
        assert more == pytest.approx(operator.launches * 5e-6), name
    assert with_floor["elementwise"].roof == "launch"
