"""SGLang's /server_info and /v1/loads: sizes over ranks, and nothing that could be a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engines.sglang.loads import read_loads, read_old_load
from headrace.engines.sglang.server_facts import read_server_facts

SECRET = "sk-planted-secret-1234567890"


def info(**more: Any) -> dict[str, Any]:
    state = {
        "effective_max_running_requests_per_dp": 21,
        "max_mamba_cache_size": 105,
        "last_gen_throughput": 400.5,
        "memory_usage": {"weight": 50.0, "kvcache": 12.0, "graph": {"decode": 1.0}},
        "admin_api_key": SECRET,
    }
    return {
        "version": "0.5.12",
        "model_path": "some/model",
        "tp_size": 2,
        "dp_size": 2,
        "context_length": 4096,
        "max_running_requests": 64,
        "max_total_num_tokens": 9000,
        "api_key": SECRET,
        "admin_api_key": SECRET,
        "ssl_keyfile_password": SECRET,
        "internal_states": [state, state],
        **more,
    }


def test_sizes_are_those_of_all_ranks() -> None:
    facts = read_server_facts(info())
    assert facts is not None
    assert facts.capacities["cap"] == 42
    assert facts.capacities["state_slots"] == 210
    assert facts.capacities["kv_capacity_tokens"] == 18_000
    assert facts.capacities["weights_gb_per_rank"] == pytest.approx(53.687, abs=0.001)  # GiB, told as GB
    assert facts.gauges["output_tokens_per_s"] == 801
    assert facts.info.line.text() == "--tp-size 2 --dp-size 2 --context-length 4096 --max-running-requests 64"


def test_nothing_but_the_allow_list_is_kept() -> None:
    facts = read_server_facts(
        info(
            model_path=f"https://user:{SECRET}@host/model",
            attention_backend=f"api_key={SECRET} x",
            dtype=f"a b {SECRET}",
        )
    )
    assert facts is not None
    assert facts.model is None
    kept = json.dumps([facts.settings, facts.capacities, facts.gauges, facts.model])
    assert SECRET not in kept


@pytest.mark.parametrize("document", [None, [], "x", 5, {}, {"version": "0.33.0"}, {"detail": "Not Found"}])
def test_another_servers_answer_is_none(document: object) -> None:
    assert read_server_facts(document) is None


def test_loads_of_two_ranks() -> None:
    ranks = [
        {"dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 1, "token_usage": 0.2,
         "max_running_requests": 8, "decode_moments": [10, 30, 200_000, 0, 0, 30]},
        {"dp_rank": 1, "num_running_reqs": 5, "num_waiting_reqs": 0, "token_usage": 0.4,
         "max_running_requests": 8, "decode_moments": [10, 50, 300_000, 0, 0, 50]},
    ]  # fmt: skip
    found = read_loads(json.dumps({"version": "0.5.23", "loads": ranks}).encode())
    assert found is not None
    page, version = found
    assert version == "0.5.23"
    assert page.gauges == pytest.approx({"running": 8, "queued": 1, "cap": 16, "kv_usage": 0.3})
    assert page.by_rank["running"] == {"0": 3, "1": 5}
    assert page.counters == pytest.approx({"moment_steps": 20, "moment_seconds": 0.5})


def test_the_old_load_counts_running_and_waiting_together() -> None:
    page = read_old_load(b'[{"dp_rank": null, "num_reqs": 12, "num_waiting_reqs": 4}]')
    assert page is not None
    assert page.gauges == {"running": 8, "queued": 4}


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"loads": 5}', b'{"loads": []}', b'{"loads": [{}]}', b'{"loads": [5]}',
     b'{"loads": [{"num_running_reqs": -1, "num_waiting_reqs": 1e300, "max_running_requests": true}]}'],
)  # fmt: skip
def test_what_is_no_load_gives_none(body: bytes) -> None:
    assert read_loads(body) is None
    assert read_old_load(body) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["a", "0.5.12"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*info(), "memory_usage", "weight", "effective_max_running_requests_per_dp"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(JSON)
def test_no_document_crashes_the_readers(document: object) -> None:
    read_server_facts(document)
    read_loads(json.dumps({"loads": [document]}).encode())


def test_recorded_servers(shared: Path) -> None:
    caps = {
        "0.5.12-llama-dp2": 16,
        "0.5.12-qwen3next-extra_buffer": 10,
        "0.5.12-qwen3next-smallmamba": 8,
        "0.5.23-qwen3next": 8,
    }
    for name, cap in caps.items():
        facts = read_server_facts(
            json.loads((shared / f"captures/sglang/{name}/server_info.json").read_bytes())
        )
        assert facts is not None
        assert facts.capacities["cap"] == cap
