"""Whatever is named: what it is taken for, and how evidence of several kinds goes together."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.drive.status import EndpointStatus, JobStatus, SourceStatus
from headrace.errors import HeadraceError, InputError, UsageError
from headrace.observe.target import Options, read_target, read_targets

LINE = (
    "[2026-03-04 10:00:0{0}] Decode batch, #running-req: 21, #full token: 50000, full token usage: 0.30, "
    "mamba num: 80, mamba usage: 0.66, cuda graph: True, gen throughput (token/s): 444.0, #queue-req: 5\n"
)
LOG = "".join(LINE.format(second) for second in range(10))
FACTS = 'engine: sglang\nengine_version: "0.5.12"\ngpu: L40S\ngpus: 4\nreplicas: 4\nflags: "--tp-size 1"\n'
PAGE = "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 6\nsglang:num_queue_reqs 1\n"


@pytest.mark.parametrize(
    ("name", "text", "running"),
    [
        ("server.log", LOG, 21),
        ("facts.yaml", FACTS + "observed:\n  running: 9\n", 9),
        ("typed.txt", FACTS + "observed:\n  running: 9\n", 9),
        ("facts.json", json.dumps({"engine": "vllm", "observed": {"running": 9}}, indent=1), 9),
        ("metrics.txt", PAGE, 6),
    ],
)
def test_a_file_is_taken_for_what_it_is(tmp_path: Path, name: str, text: str, running: int) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_target(str(path)).servers[0].value("running") == running
    assert read_target("-", stdin=io.BytesIO(text.encode())).servers[0].value("running") == running


def test_a_long_paste_is_streamed() -> None:
    lines = LOG * 700
    assert len(lines) > 1_100_000
    assert read_target("-", stdin=io.BytesIO(lines.encode())).servers[0].value("running") == 21


def test_facts_go_before_the_log_they_name(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(LOG)
    (tmp_path / "facts.yaml").write_text(FACTS + "logs: log.txt\nobserved:\n  queued: 900\n")
    seen = read_target(str(tmp_path))
    (server,) = seen.servers
    assert (server.gpu, server.replicas, server.value("running")) == ("L40S", 4, 21)
    assert server.value("queued") == 900
    assert any("queued: 900 is stated, log.txt shows 5" in note for note in server.notes)
    assert server.window is not None
    assert len(server.columns["running"]) == len(server.seconds)


def test_facts_beside_a_log_are_of_the_same_fleet(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(LOG)
    (tmp_path / "facts.yaml").write_text(FACTS)
    seen = read_targets([str(tmp_path / "server.log"), str(tmp_path / "facts.yaml")])
    (server,) = seen.servers
    assert (server.gpu, server.value("running")) == ("L40S", 21)


def test_logs_beside_each_other_are_servers_beside_each_other(tmp_path: Path) -> None:
    paths = []
    for number in (1, 2):
        path = tmp_path / f"server-{number}.log"
        path.write_text(LOG)
        paths.append(str(path))
    assert [server.name for server in read_targets(paths).servers] == paths


def test_a_log_of_another_engine_is_a_contradiction(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "INFO 03-04 10:00:00 [loggers.py:1] Engine 000: Running: 3 reqs, Waiting: 0 reqs\n"
    )
    (tmp_path / "facts.yaml").write_text("engine: tensorrt\nlogs: log.txt\n")
    (server,) = read_target(str(tmp_path / "facts.yaml")).servers
    assert any("contradicts itself" in note for note in server.notes)


@pytest.mark.parametrize("name", ["nothing-there.log", "facts.yml", "\0", "a" * 5000])
def test_what_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "facts.yaml").write_text(FACTS)
    with pytest.raises((UsageError, InputError)):
        read_target(str(tmp_path / name))


def test_the_nearest_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").write_text(FACTS)
    with pytest.raises(UsageError, match=r"Did you mean 'facts\.yaml'"):
        read_target(str(tmp_path / "fact.yaml"))


def test_a_folder_of_nothing_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"status\.json"):
        read_target(str(tmp_path))


def test_strict_facts(tmp_path: Path) -> None:
    path = tmp_path / "facts.yaml"
    path.write_text("engin: sglang\n")
    assert read_target(str(path)).notes
    with pytest.raises(InputError, match="engine"):
        read_target(str(path), Options(strict=True))


def status(phase: str = "finished") -> JobStatus:
    endpoints = [
        EndpointStatus(
            url=f"http://user:sk-secret-000000000000@127.0.0.1:{port}", state=state, why="refused",
            in_flight=8, limit=8, limit_origin="configured", cap=16, running=8, queued=0, answered=50,
            errors={"dropped": 2}, output_tokens_per_second=300.0, median_latency_seconds=20.0,
        )
        for port, state in ((1, "reachable"), (2, "broken"))
    ]  # fmt: skip
    return JobStatus(
        out="out", pid=1, host="h", phase=phase, message="", wall_time=0.0, elapsed_seconds=120.0, rows=1000,
        done=100, failed=0, excluded=0, duplicates=0, pending=900, in_flight=16, in_flight_limit=16,
        done_this_run=100, tries_this_run=100, requests_per_second=1.0, output_tokens_per_second=600.0,
        output_tokens_per_second_finished=450.0, in_flight_tokens=100.0, settled=False,
        mean_output_tokens=400.0, median_latency_seconds=20.0, eta_seconds=None,
        flags={}, errors={}, failures={}, hedged=0,
        endpoints=endpoints, sources=[SourceStatus(name="s", rows=1, done=0, failed=0, excluded=0,
        mean_output_tokens=None, truncated=0)],
    )  # fmt: skip


@pytest.mark.parametrize(
    "phase", ["finished", "running"]
)  # running: its servers are asked, and do not answer
def test_a_job_folder(tmp_path: Path, phase: str) -> None:
    (tmp_path / "status.json").write_bytes(msgspec.json.encode(status(phase)))
    seen = read_target(str(tmp_path), Options(seconds=0))
    assert len(seen.servers) == 2
    first, second = seen.servers
    assert (first.value("running"), first.value("cap"), first.value("output_tokens_per_s")) == (8, 16, 300)
    assert second.event("endpoint_broken") is not None
    assert seen.client is not None
    assert seen.client.is_free
    told = {
        word: seen.client.value(word) for word in ("in_flight", "completed", "prompts_total", "elapsed_s")
    }
    assert told == {"in_flight": 16, "completed": 100, "prompts_total": 1000, "elapsed_s": 120}
    assert "sk-secret" not in json.dumps(seen.to_json())
    assert any("does not answer" in note for note in seen.notes) == (phase == "running")


def test_a_damaged_status(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"phase": 5')
    with pytest.raises(InputError, match=r"status\.json"):
        read_target(str(tmp_path))


PASTED = st.sampled_from(
    [LINE.format(1).encode(), FACTS.encode(), PAGE.encode(), b"observed: [", b"\x1f\x8b\x08", b"\xff\xfe",
     b"{\n", b"\0" * 9, b"engine: &a [*a]\n", b"- " * 500, b"[" * 3000, b"{" * 3000]
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.lists(PASTED | st.binary(max_size=40), max_size=4))
def test_no_paste_crashes(parts: list[bytes]) -> None:
    try:
        seen = read_target("-", stdin=io.BytesIO(b"".join(parts)))
    except HeadraceError:
        return
    json.dumps(seen.to_json(), allow_nan=False)


def test_every_public_case_with_its_log(shared: Path) -> None:
    for path in sorted((shared / "cases").glob("*/facts.yaml")):
        seen = read_target(str(path))
        json.dumps(seen.to_json(), allow_nan=False)
        assert seen.servers
