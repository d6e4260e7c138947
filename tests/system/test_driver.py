"""The driver over an emulated fleet that misbehaves: nothing lost, nothing twice, and the report says why.

Rows are read back by plain pyarrow, not by headrace's own reader; what servers answered is counted there.
"""

from __future__ import annotations

import gzip
import json
import signal
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from http.client import parse_headers
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from headrace.drive.control import send_command
from headrace.drive.driver import run_job
from headrace.drive.job import Job, Source
from headrace.drive.status import JobStatus
from headrace.engines.any_load import AnyEngineLoad
from headrace.errors import BusyError, JobStopped, UnreachableError, UsageError
from headrace.net import http
from headrace.simulate.emulate import EmulatorOptions, ThreadedFleet
from headrace.words import Api, Flag, FlagPolicy
from tests.driver_process import headrace, sealed_rows, start, wait_until

FAST = EmulatorOptions(replicas=1, speed=100.0, mean_output_tokens=100)


def prompts(folder: Path, texts: list[str]) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text(
        "".join(json.dumps({"question": text, "kept": number}) + "\n" for number, text in enumerate(texts))
    )
    return file


def job_of(tmp_path: Path, servers: list[str], texts: list[str], **changes: Any) -> Job:
    source = Source(name="p", paths=(prompts(tmp_path, texts),), sampling={"max_tokens": 300}, thinking=False)
    made = Job(out=tmp_path / "out", sources=(source,), servers=tuple(servers), in_flight=8)
    return replace(made, **changes)


def run(job: Job, on_status: Callable[[JobStatus], None] = lambda status: None) -> JobStatus:
    return run_job(job, on_status=on_status, status_every_seconds=0.2, load_reader=AnyEngineLoad)


def failed_rows(out: Path) -> list[dict[str, Any]]:
    file = out / "failed" / "failed.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class SaysAlways:
    """A server that names no models and answers every POST alike."""

    def __init__(self, status: int, body: str | bytes, headers: dict[str, str] | None = None) -> None:
        payload = body if isinstance(body, bytes) else json.dumps({"error": {"message": body}}).encode()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._say(404, b"{}", {})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._say(status, payload, headers or {})

            def _say(self, code: int, content: bytes, more: dict[str, str]) -> None:
                self.send_response(code)
                for name, value in {"Content-Length": str(len(content)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def sentences(count: int) -> list[str]:
    return [f"What is {number} and {number + 1}?" for number in range(count)]


def test_every_prompt_has_one_row_with_all_that_was_promised(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, replicas=2)) as fleet:
        last = run(job_of(tmp_path, fleet.urls, sentences(100)))
        answered = sum(fleet.stats(replica).answered for replica in range(2))
    rows = sealed_rows(tmp_path / "out")
    assert (last.phase, last.done, last.failed, last.pending) == ("finished", 100, 0, 0)
    assert answered == len(rows) == len({row["id"] for row in rows}) == 100
    by_row = {row["row"]: row for row in rows}
    assert sorted(by_row) == list(range(1, 101))
    for number, text in enumerate(sentences(100)):
        row = by_row[number + 1]
        assert row["messages"] == [{"role": "user", "content": text}]
        assert json.loads(row["extra"]) == {"kept": number}
        assert row["server"] in fleet.urls
        assert row["finish_reason"] in ("stop", "length")
        assert 0 < row["completion_tokens"] <= 300
        assert row["prompt_tokens"] > 0
        assert row["answer"]
        assert (row["source"], row["sample"], row["tries"]) == ("p", 0, 1)


def test_a_second_run_asks_nothing_and_needs_no_server(tmp_path: Path) -> None:
    with ThreadedFleet(FAST) as fleet:
        job = job_of(tmp_path, fleet.urls, sentences(20))
        run(job)
        before = fleet.stats(0).received
        run(job)
        assert fleet.stats(0).received == before
    last = run(job)  # the fleet is gone
    assert (last.phase, last.done) == ("finished", 20)


def test_the_callers_own_signal_handlers_are_back_after_a_run(tmp_path: Path) -> None:
    heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in heard]
    with ThreadedFleet(FAST) as fleet:
        run(job_of(tmp_path, fleet.urls, sentences(3)))
    assert [signal.getsignal(number) for number in heard] == before


def test_thinking_is_kept_apart_on_every_path(tmp_path: Path) -> None:
    for api in Api:
        folder = tmp_path / api.value
        folder.mkdir()
        with ThreadedFleet(replace(FAST, thinking=True)) as fleet:
            made = job_of(folder, fleet.urls, sentences(10), api=api)
            # completions and /generate have no template that thinking could be switched in
            source = replace(made.sources[0], thinking=True if api is Api.CHAT else None)
            run(replace(made, sources=(source,)))
        rows = sealed_rows(folder / "out")
        assert len(rows) == 10
        assert all("<think>" not in row["answer"] for row in rows)
        if api is Api.CHAT:
            assert all(row["reasoning"] for row in rows)


def test_one_dead_one_hanging_one_failing_and_overlong_prompts(tmp_path: Path) -> None:
    """Four servers: nothing listens on one, one accepts and never answers, one says 500, one is good;
    one prompt in fifty is longer than the context. The job ends, and says what each of them did."""
    options = replace(FAST, replicas=4, context_length=600)
    texts = [("word " * 3000 if number % 50 == 0 else f"Question {number}?") for number in range(200)]
    with ThreadedFleet(options) as fleet:
        fleet.stop_replica(0)
        fleet.set_faults(1, hang="all")
        fleet.set_faults(2, error_500=100)
        seen: list[JobStatus] = []
        last = run(job_of(tmp_path, fleet.urls, texts), seen.append)
        urls = fleet.urls
    assert (last.phase, last.done, last.failed, last.pending) == ("finished", 196, 4, 0)
    rows = sealed_rows(tmp_path / "out")
    assert sorted(row["row"] for row in rows) == [n + 1 for n in range(200) if n % 50]
    failed = failed_rows(tmp_path / "out")
    assert sorted(row["row"] for row in failed) == [1, 51, 101, 151]
    for row in failed:
        assert (row["kind"], row["status"]) == ("refused", 400)
        assert "context length" in row["reason"]
    why = {endpoint.url: (endpoint.state, endpoint.why) for endpoint in last.endpoints}
    assert why[urls[0]][0] == "broken"
    assert "cannot connect" in why[urls[0]][1]
    assert why[urls[1]][0] == "broken"
    assert why[urls[2]][0] == "broken"
    assert "500" in why[urls[2]][1]
    assert why[urls[3]] == ("reachable", "")
    assert {row["server"] for row in rows} == {urls[3]}


def test_a_server_that_dies_and_comes_back_is_used_again(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, replicas=2, speed=20.0)) as fleet:
        states: Counter[str] = Counter()
        steps = iter(["stop", "start"])

        def watch(status: JobStatus) -> None:
            states.update(endpoint.state for endpoint in status.endpoints)
            if status.done > 60 and next(steps, None) == "stop":
                fleet.stop_replica(0)
                threading.Timer(1.0, fleet.start_replica, (0,)).start()

        last = run(job_of(tmp_path, fleet.urls, sentences(400)), watch)
        assert fleet.stats(0).starts == 2
    assert (last.done, last.pending) == (400, 0)
    assert states["broken"] > 0
    rows = sealed_rows(tmp_path / "out")
    assert len(rows) == len({row["id"] for row in rows}) == 400
    assert last.endpoints[0].state == "reachable"


def test_random_faults_of_every_kind_cost_tries_not_rows(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, replicas=3)) as fleet:
        for replica in range(3):
            fleet.set_faults(
                replica, error_500=2, error_503=4, error_429=2, drop=2, drop_middle=2, truncate=2, html=2,
                retry_after_seconds=0.05,
            )  # fmt: skip
        last = run(job_of(tmp_path, fleet.urls, sentences(600), max_tries=9))
    rows = sealed_rows(tmp_path / "out")
    assert len(rows) == len({row["id"] for row in rows}) == 600
    assert last.failed == 0
    assert {"server_error", "503", "429", "dropped", "bad_answer"} <= set(last.errors)
    assert max(row["tries"] for row in rows) > 1


def test_a_server_that_serves_something_else_loses_no_row(tmp_path: Path) -> None:
    """One server answers 404 to every request, and fast; the other is good."""
    with ThreadedFleet(replace(FAST, speed=20.0)) as fleet, SaysAlways(404, "no such model") as other:
        last = run(job_of(tmp_path, [*fleet.urls, other.url], sentences(100), model=None))
    assert (last.done, last.failed) == (100, 0)
    states = {endpoint.url: endpoint.state for endpoint in last.endpoints}
    assert states[other.url] == "refusing"


def test_a_refusal_by_one_server_of_two_is_asked_of_the_other(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, speed=20.0)) as fleet, SaysAlways(400, "bad request") as other:
        last = run(job_of(tmp_path, [*fleet.urls, other.url], sentences(100)))
    assert (last.done, last.failed) == (100, 0)


def test_a_job_whose_only_server_has_another_model_stops_with_nothing_failed(tmp_path: Path) -> None:
    with SaysAlways(404, "no such model") as other, pytest.raises(JobStopped, match="no such model"):
        run(job_of(tmp_path, [other.url], sentences(500)))
    assert failed_rows(tmp_path / "out") == []


def test_a_key_that_a_server_repeats_is_kept_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_KEY", "plainword-9731")
    statuses: list[JobStatus] = []
    with SaysAlways(500, "wrong key plainword-9731") as other:
        run(
            job_of(tmp_path, [other.url], sentences(3), api_key_env="FLEET_KEY", max_tries=1), statuses.append
        )
    assert "[redacted]" in failed_rows(tmp_path / "out")[0]["reason"]
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or b"plainword-9731" not in file.read_bytes(), file
    assert all("plainword-9731" not in str(status) for status in statuses)


def test_a_small_body_that_unfolds_into_a_large_one_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 1_000_000)
    bomb = gzip.compress(b" " * 50_000_000)
    with SaysAlways(200, bomb, {"Content-Encoding": "gzip"}) as other:
        last = run(job_of(tmp_path, [other.url], sentences(2), max_tries=1))
    assert last.failures == {"bad_answer": 2}


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[{"message":{"content":[{"type":"text","text":5}]},"finish_reason":"stop"}]}',
        b"[" * 5000,
        b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"completion_tokens":1e30}}',
        b'{"choices":[{"message":{"content":"x"}}],"usage":{"completion_tokens":10000000000000000000}}',
        b'{"choices":null}',
    ],
)
def test_nothing_a_server_answers_ends_the_job(tmp_path: Path, body: bytes) -> None:
    with SaysAlways(200, body) as other:
        last = run(job_of(tmp_path, [other.url], sentences(3), max_tries=1))
    assert last.done + last.failed == 3
    assert last.phase == "finished"


def test_what_earlier_runs_found_is_told_again(tmp_path: Path) -> None:
    with ThreadedFleet(FAST) as fleet:
        made = job_of(tmp_path, fleet.urls, sentences(30))
        job = replace(made, sources=(replace(made.sources[0], sampling={"max_tokens": 2}),))
        first = run(job)
        second = run(job)
        prompts(tmp_path, sentences(35))
        third = run(job)
    assert first.flags == second.flags == {"truncated": 30}
    assert second.sources[0].mean_output_tokens == 2.0
    assert third.flags == {"truncated": 35}
    assert third.sources[0].truncated == 35


class HangsUpUnsaid(socketserver.StreamRequestHandler):
    """Answers one POST of a connection with keep-alive in its words, and closes it."""

    def handle(self) -> None:
        request = self.rfile.readline()
        headers = parse_headers(self.rfile)
        self.rfile.read(int(headers["Content-Length"] or 0))
        body = b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}'
        status = b"200 OK" if request.startswith(b"POST") else b"404 Not Found"
        self.wfile.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))


def test_a_server_that_hangs_up_after_each_answer_costs_no_tries(tmp_path: Path) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), HangsUpUnsaid) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        last = run(job_of(tmp_path, [f"http://127.0.0.1:{server.server_address[1]}"], sentences(60)))
        server.shutdown()
    assert (last.done, last.failed, last.errors) == (60, 0, {})
    assert {row["tries"] for row in sealed_rows(tmp_path / "out")} == {1}


def test_rows_that_servers_fail_on_again_and_again_are_given_up_and_taken_up_again(tmp_path: Path) -> None:
    with ThreadedFleet(FAST) as fleet:
        fleet.set_faults(0, html=100)
        job = job_of(tmp_path, fleet.urls, sentences(3), max_tries=2)
        last = run(job)
        assert (last.done, last.failed) == (0, 3)
        assert last.failures == {"bad_answer": 3}
        kept = failed_rows(tmp_path / "out")
        assert {row["tries"] for row in kept} == {2}
        assert all("given up after 2 tries" in row["reason"] for row in kept)
        fleet.set_faults(0)
        assert run(job).failed == 3  # not by itself
        last = run(replace(job, retry_failed=True))
    assert (last.done, last.failed) == (3, 0)
    assert failed_rows(tmp_path / "out") == []
    assert len(sealed_rows(tmp_path / "out")) == 3


def test_a_job_that_every_answer_refuses_is_stopped_early(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, context_length=16)) as fleet:
        job = job_of(tmp_path, fleet.urls, ["word " * 50 + str(number) for number in range(5000)])
        with pytest.raises(JobStopped) as stopped:
            run(job)
        assert "--retry-failed" in str(stopped.value)
        assert fleet.stats(0).received < 2000


@pytest.mark.parametrize(
    ("policy", "done", "failed"),
    [(FlagPolicy.KEEP, 30, 0), (FlagPolicy.REJECT, 0, 30), (FlagPolicy.RETRY_ONCE, 30, 0)],
)
def test_truncated_answers_go_by_the_policy(
    tmp_path: Path, policy: FlagPolicy, done: int, failed: int
) -> None:
    with ThreadedFleet(FAST) as fleet:
        made = job_of(tmp_path, fleet.urls, sentences(30), flag_policies={Flag.TRUNCATED: policy})
        source = replace(made.sources[0], sampling={"max_tokens": 2})
        last = run(replace(made, sources=(source,)))
        answered = fleet.stats(0).answered
    assert (last.done, last.failed) == (done, failed)
    assert answered == (60 if policy is FlagPolicy.RETRY_ONCE else 30)
    assert last.flags["truncated"] == 30
    if policy is FlagPolicy.REJECT:
        assert {row["kind"] for row in failed_rows(tmp_path / "out")} == {"rejected"}
        assert all(row["answer"] for row in failed_rows(tmp_path / "out"))
    else:
        assert all(row["flags"] == ["truncated"] for row in sealed_rows(tmp_path / "out"))


def test_exact_duplicates_are_sent_once_and_each_gets_its_row(tmp_path: Path) -> None:
    texts = ["Why?", "How?", "Why?", "Why?", "When?"]
    with ThreadedFleet(FAST) as fleet:
        last = run(job_of(tmp_path, fleet.urls, texts))
        assert fleet.stats(0).answered == 3
    rows = {row["row"]: row for row in sealed_rows(tmp_path / "out")}
    assert (last.done, last.rows) == (5, 5)
    assert rows[1]["answer"] == rows[3]["answer"] == rows[4]["answer"]
    assert len({row["id"] for row in rows.values()}) == 5
    assert [json.loads(rows[number]["extra"])["kept"] for number in (1, 3, 4)] == [0, 2, 3]


def test_editing_reordering_and_appending_ask_only_what_is_new(tmp_path: Path) -> None:
    with ThreadedFleet(FAST) as fleet:
        job = job_of(tmp_path, fleet.urls, sentences(20))
        run(job)
        changed = [*reversed(sentences(20)), "A new one?"]
        changed[3] = "An edited one?"
        prompts(tmp_path, changed)
        last = run(job)
        assert fleet.stats(0).answered == 22
    ids = [row["id"] for row in sealed_rows(tmp_path / "out")]
    assert len(ids) == len(set(ids)) == 22
    assert (last.pending, last.failed) == (0, 0)


def test_servers_are_added_drained_and_removed_while_it_runs(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, replicas=3, speed=10.0)) as fleet:
        out = tmp_path / "out"
        job = job_of(tmp_path, fleet.urls[:2], sentences(400))
        said: list[dict[str, Any]] = []

        def command() -> None:
            wait_until(lambda: (out / "control.sock").exists(), 20, "the job listens")
            said.append(send_command(out, {"command": "add", "url": fleet.urls[2], "id": "one"}))
            said.append(send_command(out, {"command": "add", "url": fleet.urls[2], "id": "one"}))
            said.append(send_command(out, {"command": "drain", "url": fleet.urls[0]}))
            said.append(send_command(out, {"command": "remove", "url": fleet.urls[1]}))
            said.append(send_command(out, {"command": "status"}))

        commander = threading.Thread(target=command)
        commander.start()
        last = run(job)
        commander.join()
        answered = [fleet.stats(replica).answered for replica in range(3)]
    assert said[0] == said[1]
    assert "was added" in said[0]["done"]
    assert said[4]["status"]["phase"] == "running"
    assert answered[2] > 300
    assert {endpoint.url: endpoint.state for endpoint in last.endpoints} == {
        fleet.urls[0]: "drained",
        fleet.urls[2]: "reachable",
    }
    rows = sealed_rows(out)
    assert len(rows) == len({row["id"] for row in rows}) == 400


def test_seven_fast_servers_and_a_slow_one(tmp_path: Path) -> None:
    """Times of 0.5 s and 8 × 0.5 s. By hand: the fast seven alone need 6 rounds for 300 rows, 3 s, and no
    schedule is faster; the driver's own second of start-up and ticking is allowed for."""
    options = EmulatorOptions(replicas=8, speed=12.0, mean_output_tokens=100, output_spread=0.0)
    with ThreadedFleet(options) as fleet:
        probe = job_of(tmp_path, fleet.urls[:1], ["one"])
        one = run(probe).median_latency_seconds or 0.0
        fleet.set_faults(7, slow=8)
        folder = tmp_path / "eight"
        folder.mkdir()
        last = run(job_of(folder, fleet.urls, sentences(300)))
    assert last.done == 300
    assert last.hedged > 0
    assert last.elapsed_seconds < 8 * one * 1.6  # without a second request: 8 × a loaded latency, and more
    rows = sealed_rows(folder / "out")
    assert len(rows) == len({row["id"] for row in rows}) == 300


def test_wrong_beginnings_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, model="Qwen/Qwen3.6-27B")) as fleet:
        with pytest.raises(UsageError, match=r"Did you mean 'Qwen/Qwen3\.6-27B'"):
            run(job_of(tmp_path, fleet.urls, ["x"], model="Qwen/Qwen3.6-27b"))
        assert fleet.stats(0).received == 0
    with pytest.raises(UnreachableError, match="the server does not answer"):
        run(job_of(tmp_path, ["http://127.0.0.1:1"], ["x"]))


def flags_of(job: Job) -> list[object]:
    """The command line of a job made by `job_of`."""
    servers = [part for url in job.servers for part in ("--server", url)]
    return ["run", "--prompts", job.sources[0].paths[0], *servers, "--out", job.out, "--in-flight", 8,
            "--max-tokens", 300, "--no-thinking", "--progress", "plain"]  # fmt: skip


def test_ctrl_c_drains_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, speed=10.0)) as fleet:
        job = job_of(tmp_path, fleet.urls, sentences(120))
        process = start(*flags_of(job), log=tmp_path / "log")
        wait_until(lambda: fleet.stats(0).answered > 20, 60, "some answers")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 7
        answered = fleet.stats(0).answered
        rows = sealed_rows(job.out)
        assert len(rows) == answered < 120  # what was in flight has been let finish, and lies in a shard
        assert "prompts are left" in (tmp_path / "log").read_text()
        assert headrace(*flags_of(job)).returncode == 0
        assert fleet.stats(0).answered == 120
    rows = sealed_rows(job.out)
    assert len(rows) == len({row["id"] for row in rows}) == 120


def test_ctrl_c_twice_stops_at_once(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, speed=0.5)) as fleet:  # each answer takes some ten seconds
        job = job_of(tmp_path, fleet.urls, sentences(50))
        process = start(*flags_of(job), log=tmp_path / "log")
        wait_until(lambda: fleet.stats(0).in_flight == 8, 60, "requests in flight")
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert time.monotonic() - began < 5


class AnswersOneLook(BaseHTTPRequestHandler):
    """A server that answers the first look at it and hangs in everything else."""

    looks: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.looks.append(self.path)
        if len(self.looks) > 1:
            time.sleep(60)
        self.send_error(404)

    def do_POST(self) -> None:
        time.sleep(60)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_second_ctrl_c_waits_for_no_look_at_a_server_that_hangs(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), AnswersOneLook) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        job = job_of(tmp_path, [f"http://127.0.0.1:{server.server_port}"], sentences(20))
        process = start(*flags_of(job), log=tmp_path / "log")
        wait_until(lambda: len(AnswersOneLook.looks) > 1, 60, "a second look")
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert time.monotonic() - began < 5
        server.shutdown()


@pytest.mark.timeout(120)
def test_a_process_that_was_stopped_blames_no_server(tmp_path: Path) -> None:
    """SIGSTOP for longer than the request time-out: all answers came meanwhile, and none is asked again."""
    with ThreadedFleet(replace(FAST, speed=10.0)) as fleet:
        job = job_of(tmp_path, fleet.urls, sentences(120))
        process = start(*flags_of(job), "--request-timeout", 7, log=tmp_path / "log")
        wait_until(lambda: fleet.stats(0).answered > 20, 60, "some answers")
        process.send_signal(signal.SIGSTOP)
        time.sleep(9)
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 0
        assert fleet.stats(0).received == 120
    assert {row["tries"] for row in sealed_rows(job.out)} == {1}


def test_a_second_run_on_the_same_folder_says_who_holds_it(tmp_path: Path) -> None:
    with ThreadedFleet(replace(FAST, speed=2.0)) as fleet:
        job = job_of(tmp_path, fleet.urls, sentences(40))
        process = start(*flags_of(job), log=tmp_path / "log")
        wait_until(lambda: fleet.stats(0).in_flight > 0, 60, "requests in flight")
        with pytest.raises(BusyError, match=str(process.pid)):
            run(job)
        second = headrace(*flags_of(job))
        assert second.returncode == 4
        assert str(process.pid) in second.stderr
        process.send_signal(signal.SIGINT)
        process.wait(60)
