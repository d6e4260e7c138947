"""Logs as observations: ranks, ramps, starts, wrappings, and texts that are none."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.observe.log import read_log
from headrace.observe.log_series import MAX_SAMPLES, Series
from headrace.observe.observation import ServerObservation
from headrace.quantities import Origin

SECRET = "sk-planted-secret-1234567890"


def decode(second: int, running: int, rank: str = "", queued: int = 0, rate: float = 500.0) -> str:
    return (
        f"[2026-03-04 10:{second // 60:02}:{second % 60:02}{rank}] Decode batch, #running-req: {running}, "
        f"#full token: {running * 1500}, full token usage: 0.25, mamba num: {running * 3}, "
        f"mamba usage: 0.55, cuda graph: True, gen throughput (token/s): {rate}, #queue-req: {queued}"
    )


def prefill(second: int, new: int, cached: int, rank: str = "", running: int = 9) -> str:
    return (
        f"[2026-03-04 10:{second // 60:02}:{second % 60:02}{rank}] Prefill batch, #new-seq: 1, "
        f"#new-token: {new}, #cached-token: {cached}, full token usage: 0.20, mamba usage: 0.50, "
        f"#running-req: {running}, #queue-req: 2, cuda graph: False, input throughput (token/s): 100.0"
    )


BOOT = (
    f"[2026-03-04 09:59:00] server_args=ServerArgs(model_path='some/model', tp_size=2, dp_size=1, "
    f"context_length=4096, max_running_requests=64, disable_radix_cache=True, api_key='{SECRET}', "
    f"admin_api_key='{SECRET}', mem_fraction_static=0.85)",
    "[2026-03-04 09:59:30 TP0] Mamba Cache is allocated. max_mamba_cache_size: 150, conv_state size: 0.52GB, "
    "ssm_state size: 13.29GB ",
    "[2026-03-04 09:59:40 TP0] max_total_num_tokens=200000, chunked_prefill_size=8192, "
    "max_prefill_tokens=16384, max_running_requests=30, context_len=4096, available_gpu_mem=14.00 GB",
)


def read(*lines: str) -> ServerObservation:
    found = read_log(io.BytesIO("\n".join(lines).encode()), "log")
    json.dumps(found.to_json(), allow_nan=False)
    (server,) = found.servers
    return server


def values(server: ServerObservation) -> dict[str, float]:
    return {word: quantity.value for word, quantity in server.readings.items()}


RUN = [
    decode(0, 2),
    decode(5, 12),
    *(decode(10 + 5 * i, 30, queued=4, rate=600.0) for i in range(20)),
    decode(115, 8),
    decode(120, 1),
]


def test_the_steady_part_is_read() -> None:
    server = read(*RUN)
    assert server.window is not None
    assert (server.window.start_seconds, server.window.end_seconds) == (10, 105)
    assert server.window.whole_seconds == 120
    expected = {"running": 30, "queued": 4, "kv_usage": 0.25, "state_usage": 0.55, "output_tokens_per_s": 600,
                "cuda_graph_hit_rate": 1, "queue_share_of_steps": 1, "retractions_per_min": 0}  # fmt: skip
    assert {word: server.value(word) for word in expected} == pytest.approx(expected)
    assert server.engine == "sglang"
    assert len(server.seconds) == 24
    assert server.readings["running"].origin is Origin.REPORTED


def test_the_start_tells_settings_and_sizes() -> None:
    server = read(*BOOT, *RUN)
    assert (server.model, server.tensor_parallel, server.gpus) == ("some/model", 2, 2)
    sizes = {word: server.value(word) for word in ("cap", "state_slots", "kv_capacity_tokens", "max_context")}
    assert sizes == {"cap": 30, "state_slots": 150, "kv_capacity_tokens": 200_000, "max_context": 4096}
    flags = server.flags
    assert server.flags_origin is Origin.REPORTED
    for flag in (
        "--tp-size 2",
        "--context-length 4096",
        "--max-running-requests 64",
        "--mem-fraction-static 0.85",
    ):
        assert flag in flags
    assert flags.split()[-1] == "--disable-radix-cache" or "--disable-radix-cache --" in flags
    assert SECRET not in json.dumps(server.to_json())


def test_order_and_wrappings_change_nothing() -> None:
    plain = values(read(*BOOT, *RUN))
    shuffled = list(RUN)
    random.Random(4).shuffle(shuffled)
    assert values(read(*BOOT, *shuffled)) == plain
    docker = [
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01T00:00:00Z"}) for line in RUN
    ]
    kubectl = [f"[pod/server-0/main] {line}" for line in RUN]
    ray = [f"(Engine pid=77, ip=10.0.0.3) {line}" for line in RUN]
    coloured = [f"\x1b[32m{line}\x1b[0m\r" for line in RUN]
    for wrapped in (kubectl, ray, coloured):
        assert values(read(*wrapped)) == values(read(*RUN))
    assert read(*docker).value("running") == 30


def test_tensor_parallel_ranks_say_it_again() -> None:
    lines = [
        line
        for second in range(0, 100, 5)
        for line in (decode(second, 20, " TP0"), decode(second, 20, " TP1"))
    ]
    assert read(*lines).value("running") == 20


def test_data_parallel_ranks_add_up() -> None:
    lines = [
        line
        for second in range(0, 100, 5)
        for line in (decode(second, 20, " DP0 TP0", rate=400), decode(second, 10, " DP1 TP0", rate=300))
    ]
    server = read(*lines)
    assert (server.value("running"), server.value("output_tokens_per_s")) == (30, 700)
    assert server.value("kv_usage") == pytest.approx(0.25)
    assert server.by_rank["running_by_rank"] == {"0": 20, "1": 10}
    assert server.data_parallel == 2


def test_one_ranks_lines_stand_for_all_where_their_number_is_known() -> None:
    lines = io.BytesIO("\n".join(decode(second, 7, " DP0 TP0") for second in range(0, 60, 5)).encode())
    server = read_log(lines, "log", data_parallel=4).servers[0]
    assert server.value("running") == 28
    assert server.value("kv_usage") == pytest.approx(0.25)


def test_two_pods_are_two_servers() -> None:
    lines = [
        f"[pod/server-{pod}/main] {decode(second, 10 * (pod + 1))}"
        for second in range(0, 60, 5)
        for pod in (0, 1)
    ]
    found = read_log(io.BytesIO("\n".join(lines).encode()), "log")
    assert sorted(server.value("running") or 0 for server in found.servers) == [10, 20]


def test_two_nodes_of_one_server_are_one() -> None:
    lines = [
        f"(Scheduler pid=7, ip=10.0.0.{node}) {decode(second, 10 * node + 10, f' DP{node} TP{node}')}"
        for second in range(0, 60, 5)
        for node in (0, 1)
    ]
    assert read(*lines).value("running") == 30


def test_hit_rate_and_retractions_are_counted() -> None:
    lines = []
    for i in range(20):
        lines += [prefill(5 * i + 1, 75, 25), decode(5 * i + 2, 30)]
        if i in (5, 9):
            at = f"{(5 * i + 3) // 60:02}:{(5 * i + 3) % 60:02}"
            lines.append(
                f"[2026-03-04 10:{at}] KV cache pool is full. Retract requests. "
                "#retracted_reqs: 3, #new_tokens_gained: 100, #new_token_ratio: 0.2 -> 0.4"
            )
    server = read(*lines)
    assert server.value("cache_hit_rate") == pytest.approx(0.25)
    assert server.value("preemptions") == 6
    assert server.value("retractions_per_min") == pytest.approx(6 / 95 * 60)
    event = server.event("kv_pool_full")
    assert event is not None
    assert event.count == 2


def test_prefill_lines_stand_in_where_there_is_no_other() -> None:
    server = read(
        prefill(0, 100, 0, running=28), prefill(1, 100, 0, running=30), prefill(2, 100, 0, running=32)
    )
    assert server.value("running") == 30
    assert server.value("queued") == 2
    assert "output_tokens_per_s" not in server.readings


def test_the_last_start_under_load_is_read() -> None:
    later = [line.replace(" 10:", " 11:").replace("#running-req: 30", "#running-req: 44") for line in RUN]
    server = read(*BOOT, *RUN, *BOOT, *later)
    assert server.value("running") == 44
    assert any("2 starts" in note for note in server.notes)
    assert read(*BOOT, *RUN, *BOOT).value("running") == 30


def test_vllm() -> None:
    line = (
        "INFO 03-04 10:{0:02}:00 [loggers.py:127] Engine 00{1}: Avg prompt throughput: 80.0 tokens/s, "
        "Avg generation throughput: 400.0 tokens/s, Running: 16 reqs, Waiting: 9 reqs, "
        "GPU KV cache usage: 97.5%, Prefix cache hit rate: 10.0%"
    )
    server = read(*(line.format(minute, engine) for minute in range(10) for engine in (0, 1)))
    expected = {
        "running": 32,
        "queued": 18,
        "output_tokens_per_s": 800,
        "kv_usage": 0.975,
        "cache_hit_rate": 0.1,
    }
    assert {word: server.value(word) for word in expected} == pytest.approx(expected)
    assert server.engine == "vllm"
    assert "preemptions" not in server.readings  # these lines do not tell them


def test_a_line_of_all_engines_together_is_not_multiplied() -> None:
    boot = "INFO 03-04 10:00:00 [utils.py:1] non-default args: {'model': 'm', 'data_parallel_size': 4}"
    whole = (
        "INFO 03-04 10:0{0}:00 [loggers.py:1] {1}: Running: 40 reqs, Waiting: 4 reqs, "
        "GPU KV cache usage: 9.0%"
    )
    together = read(boot, *(whole.format(minute, "4 Engines Aggregated") for minute in range(9)))
    assert (together.value("running"), together.data_parallel) == (40, 4)
    of_one = read(boot, *(whole.format(minute, "Engine 002") for minute in range(9)))
    assert of_one.value("running") == 160
    assert of_one.value("kv_usage") == pytest.approx(0.09)


def test_lines_without_times() -> None:
    server = read(*(line.partition("] ")[2] for line in RUN))
    assert server.value("running") == 30
    assert "retractions_per_min" not in server.readings
    assert any("no times" in note for note in server.notes)


def test_a_compressed_log(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress("\n".join(RUN).encode()))
    assert read_log(path, "log").servers[0].value("running") == 30


@pytest.mark.parametrize("text", ["", "\n\n", "hello\nworld", "\0\xff", "<html>", '{"a": 1}'])
def test_what_is_no_log_says_so(text: str) -> None:
    found = read_log(io.BytesIO(text.encode("latin-1")), "log")
    (server,) = found.servers
    assert not server.readings
    assert server.missing
    assert found.notes
    assert server.engine is None


def test_memory_does_not_grow_with_the_log() -> None:
    series = Series(words=frozenset({"running"}))
    for second in range(5 * MAX_SAMPLES):
        series.count("prefill_tokens", 1.0)
        series.add(float(second), {"running": float(second % 7)})
    series.close()
    assert len(series.samples) <= MAX_SAMPLES
    times, gauges, counts = series.columns()
    assert counts["prefill_tokens"].sum() == 5 * MAX_SAMPLES  # nothing counted is lost
    assert len(times) == len(gauges["running"])


PIECES = st.sampled_from(
    [*RUN[:3], *BOOT, prefill(3, 5, 5), decode(0, 10**9), decode(4, 3, " DP9 TP9"), "",
     "Traceback (most recent call last):",
     "[2026-03-04 10:00:00] Decode batch, #running-req: nan, full token usage: inf, #queue-req: -4",
     "INFO 03-04 10:00:00 [x.py:1] Engine 000: Running: 1e309 reqs, Waiting: -1 reqs", "\ufffd\0", "a" * 5000,
     "KV cache pool is full. Retract requests. #retracted_reqs: x"]
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES | st.text(st.characters(max_codepoint=0x17F), max_size=30), max_size=12))
def test_no_log_crashes_the_reader(lines: list[str]) -> None:
    found = read_log(io.BytesIO("\n".join(lines).encode("utf-8", "replace")), "log")
    json.dumps(found.to_json(), allow_nan=False)
    for server in found.servers:
        for quantity in (*server.readings.values(), *server.capacities.values()):
            assert 0 <= quantity.value < 1e16


def test_every_public_log_is_read(shared: Path) -> None:
    paths = [*(shared / "cases").glob("*/log.txt"), *(shared / "captures").rglob("*.log")]
    assert len(paths) >= 55
    loaded = 0
    for path in paths:
        found = read_log(path, path.name)
        json.dumps(found.to_json(), allow_nan=False)
        loaded += bool(found.servers[0].readings)
    assert loaded >= 25


def test_readings_that_no_server_shows_are_told_and_not_used() -> None:
    line = (
        "[2026-02-03 04:05:06] Decode batch, #running-req: 1000000000, #token: 5, token usage: 61.0, "
        "gen throughput (token/s): 5.0, #queue-req: 3\n"
    )
    (server,) = read_log(io.BytesIO(line.encode() * 9), "x").servers
    assert (server.value("running"), server.value("kv_usage"), server.value("queued")) == (None, None, 3)
    assert sum("they are not used" in note for note in server.notes) == 2
