"""What must hold of any SGLang plan: pools fit, caps follow, more memory never gives less."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.engines.plan import MemoryPlan
from headrace.models.catalogue import resolve_model
from headrace.words import Constraint
from tests.unit.engines.planning import card, plan

MODELS = [resolve_model(name) for name in ("Qwen/Qwen3.6-27B", "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3.2")]
VERSIONS = ["0.5.3", "0.5.6", "0.5.9", "0.5.12", "0.5.13", "0.5.17", "0.5.23"]

plans = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "version": st.sampled_from(VERSIONS),
        "free": st.floats(20, 180),
        "share": st.floats(0.1, 0.7),
        "fraction": st.floats(0.6, 0.95),
        "running": st.one_of(st.none(), st.integers(1, 3000)),
        "off": st.booleans(),
        "page": st.sampled_from([None, 16, 64]),
    }
)


def planned(drawn: dict[str, object], fraction: float | None = None) -> MemoryPlan:
    free = float(str(drawn["free"]))
    flags = f"--mem-fraction-static {fraction or drawn['fraction']}"
    if drawn["running"] is not None:
        flags += f" --max-running-requests {drawn['running']}"
    if drawn["off"]:
        flags += " --disable-radix-cache"
    if drawn["page"] is not None and drawn["off"]:
        flags += f" --page-size {drawn['page']}"
    return plan(
        flags,
        model=drawn["model"],  # type: ignore[arg-type]
        version=str(drawn["version"]),
        device=card(free + 1.3),
        free_gib=free,
        weights_gib=free * float(str(drawn["share"])),
    )


@settings(deadline=None, max_examples=60)
@given(plans)
def test_pools_fit_into_what_is_free_and_the_cap_is_the_least_rung(drawn: dict[str, object]) -> None:
    found = planned(drawn)
    assume(found.would_start)
    assert found.cap is not None
    pools = {pool.name: pool.bytes.value for pool in found.pools}
    static = sum(size for name, size in pools.items() if name != "slack")
    assert static + pools["slack"] <= found.figures["free_bytes"].value * (1 + 1e-9)
    assert found.cap.value == min(rung.running.value for rung in found.ladder)
    assert found.cap_bound_by == found.ladder[0].constraint
    page = int(found.settings["page_size"] or 1)
    assert found.figures["kv_tokens"].value % page == 0


@settings(deadline=None, max_examples=40)
@given(plans, st.floats(0.005, 0.04))
def test_a_higher_fraction_never_gives_less(drawn: dict[str, object], more: float) -> None:
    low, high = planned(drawn), planned(drawn, float(str(drawn["fraction"])) + more)
    assume(low.would_start and high.would_start)
    assert low.cap is not None
    assert high.cap is not None
    assert high.cap.value >= low.cap.value
    # a slot that fits more may cost KV up to its own size
    slack = (low.figure("state_bytes_per_request") or 0) / low.figures["kv_bytes_per_token"].value
    assert high.figures["kv_tokens"].value >= low.figures["kv_tokens"].value - slack - 64


def test_tensor_parallelism_divides_state_and_kv() -> None:
    one, two = plan("--mem-fraction-static 0.85"), plan("--mem-fraction-static 0.85 --tp 2", weights_gib=25.6)
    # 48 value heads and 16 key heads halve exactly; so do 4 kv heads
    for name in ("state_bytes_per_request", "kv_bytes_per_token"):
        assert two.figures[name].value * 2 == one.figures[name].value


def test_only_dp_attention_divides_the_running_flag() -> None:
    flags = "--mem-fraction-static 0.85 --max-running-requests 64 --disable-radix-cache --tp 2 --dp 2"
    assert plan(flags, weights_gib=25.6).figure("state_slots") == 64
    assert plan(f"{flags} --enable-dp-attention", weights_gib=25.6).figure("state_slots") == 32


def test_a_flag_over_the_estimate_is_bounded_by_version() -> None:
    # 3000 passes on 0.5.23; 0.5.12 holds it to 2,048 where tokens ÷ context is small
    flags = "--mem-fraction-static 0.85 --max-running-requests 3000 --context-length 40960"
    old = plan(flags, model="Qwen/Qwen3-8B", weights_gib=60)
    new = plan(flags, model="Qwen/Qwen3-8B", weights_gib=60, version="0.5.23")
    assert old.cap is not None
    assert new.cap is not None
    assert (old.cap.value, new.cap.value) == (2048, 3000)


def test_max_total_tokens_only_lowers_in_whole_pages() -> None:
    flags = "--mem-fraction-static 0.85 --page-size 16 --max-total-tokens"
    assert plan(f"{flags} 100001", model="Qwen/Qwen3-8B").figure("kv_tokens") == 100_000
    whole = plan("--mem-fraction-static 0.85 --page-size 16", model="Qwen/Qwen3-8B").figure("kv_tokens")
    assert plan(f"{flags} 99999999", model="Qwen/Qwen3-8B").figure("kv_tokens") == whole


def test_fp8_doubles_kv_and_leaves_the_state_cap() -> None:
    plain, half = (
        plan("--mem-fraction-static 0.85"),
        plan("--mem-fraction-static 0.85 --kv-cache-dtype fp8_e4m3"),
    )
    assert half.figures["kv_tokens"].value == pytest.approx(2 * plain.figures["kv_tokens"].value, abs=2)
    assert half.cap is not None
    assert plain.cap is not None
    assert (half.cap.value, half.cap_bound_by) == (plain.cap.value, Constraint.STATE_POOL)


@pytest.mark.parametrize(
    ("flags", "version", "model", "card_mib", "capability", "expected"),
    [
        # SGLang's own resolution of these lines
        ("", "0.5.12", "Qwen/Qwen3.6-27B", 97887, 12.0, 0.79807),
        ("", "0.5.12", "Qwen/Qwen3-8B", 81559, 9.0, 0.83),
        ("", "0.5.12", "Qwen/Qwen3-8B", 24564, 8.9, 0.833),
        ("--tp 8", "0.5.12", "deepseek-ai/DeepSeek-V3", 143771, 9.0, 0.886),
        ("--tp 8 --dp 8 --enable-dp-attention", "0.5.12", "deepseek-ai/DeepSeek-V3", 143771, 9.0, 0.769),
        ("", "0.5.12", "nvidia/Nemotron-H-56B-Base-8K", 183359, 10.0, 0.854),
    ],
)
def test_the_default_fraction(
    flags: str, version: str, model: str, card_mib: int, capability: float, expected: float
) -> None:
    found = plan(
        flags,
        version=version,
        model=model,
        device=card(card_mib / 1024, capability=capability),
        free_gib=card_mib / 1024 - 1.3,
        weights_gib=10.0,
    )
    assert found.settings["mem_fraction_static"] == pytest.approx(expected, abs=0.00005)
    assert found.settings.values["mem_fraction_static"].origin == "default"


@pytest.mark.parametrize(
    ("model", "capability", "tp", "per_token", "page"),
    [
        # SGLang's own prices on 0.5.12: sparse MLA with its indexer in bf16 on Hopper, FP8 on Blackwell
        ("deepseek-ai/DeepSeek-V3.2", 9.0, 8, 78_324, 64),
        ("deepseek-ai/DeepSeek-V3.2", 10.0, 8, 43_188, 64),
        ("deepseek-ai/DeepSeek-V3", 9.0, 8, 70_272, 1),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 9.0, 8, 20_889.6, 1),
        ("Qwen/Qwen3-8B", 10.0, 1, 147_456, 64),
    ],
)
def test_prices_and_pages(model: str, capability: float, tp: int, per_token: float, page: int) -> None:
    found = plan(
        f"--mem-fraction-static 0.85 --tp {tp}",
        model=model,
        device=card(179, capability=capability),
        free_gib=178,
        weights_gib=85,
    )
    assert found.figures["kv_bytes_per_token"].value == pytest.approx(per_token)
    assert found.settings["page_size"] == page


def test_sliding_windows_have_their_own_pool() -> None:
    # SGLang's own sizes: full 4,487,288 and window 3,589,830 tokens
    found = plan(
        "--mem-fraction-static 0.85 --tp 8",
        model="meta-llama/Llama-4-Scout-17B-16E-Instruct",
        device=card(143771 / 1024, capability=9.0),
        free_gib=138,
        weights_gib=30,
    )
    assert (found.figure("kv_tokens"), found.figure("window_tokens")) == (4_487_288, 3_589_830)


def test_pipeline_stages_take_the_fewest_tokens() -> None:
    one = plan("--mem-fraction-static 0.85", model="Qwen/Qwen3-8B")
    two = plan("--mem-fraction-static 0.85 --pp-size 2", model="Qwen/Qwen3-8B")
    assert two.figures["kv_bytes_per_token"].value * 2 == one.figures["kv_bytes_per_token"].value
