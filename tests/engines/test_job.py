"""The main job through real engines: GSM8K prompts in, one row for every prompt out, whatever happens."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.api import status
from tests.driver_process import (
    durable_lines,
    failed_rows,
    finished_rows,
    headrace,
    kill_group,
    open_rows,
    start,
    wait_until,
)
from tests.engines.server import EngineServer

# HEADRACE_FULL=1 runs all 1,319 prompts through each engine
COUNT = 1319 if os.environ.get("HEADRACE_FULL") == "1" else 40
JOB_LIMIT_SECONDS = 3600 if COUNT > 40 else 300
LOAD_LIMIT_SECONDS = 240  # a full batch takes 2 s on quiet cores, and much longer beside other work


def gsm8k(shared: Path, count: int) -> list[str]:
    """The first questions of the GSM8K test set."""
    with (shared / "prompts" / "gsm8k_test.jsonl").open() as file:
        return [json.loads(line)["question"] for line, _ in zip(file, range(count), strict=False)]


def run_flags(
    shared: Path, out: Path, *servers: EngineServer, count: int, in_flight: int, max_tokens: int
) -> list[object]:
    """The words of `headrace run` on the first `count` questions."""
    words: list[object] = ["run", "--prompts", shared / "prompts" / "gsm8k_test.jsonl"]
    words += ["--columns", "prompt=question", "--count", count, "--out", out]
    words += ["--in-flight", in_flight, "--max-tokens", max_tokens]
    for server in servers:
        words += ["--server", server.url]
    return words


def asked(row: dict[str, object]) -> object:
    """The question of a row, over either API."""
    messages = row["messages"]
    return messages[-1]["content"] if isinstance(messages, list) else row["prompt"]


def assert_exactly_once(rows: list[dict[str, object]], questions: list[str]) -> None:
    """One row per question, every id once."""
    assert sorted(map(str, map(asked, rows))) == sorted(questions)
    assert len({row["id"] for row in rows}) == len(rows)


def test_gsm8k_gives_one_whole_row_per_prompt_and_a_second_run_sends_nothing(
    engine: EngineServer, shared: Path, tmp_path: Path
) -> None:
    words = run_flags(shared, tmp_path / "out", engine, count=COUNT, in_flight=16, max_tokens=24)
    before = settled_total(engine)

    done = headrace(*words, timeout_seconds=JOB_LIMIT_SECONDS)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = finished_rows(tmp_path / "out")
    assert_exactly_once(rows, gsm8k(shared, COUNT))
    for row in rows:
        assert row["finish_reason"] in ("stop", "length")
        assert row["server"] == engine.url
        assert row["model"] == engine.model
        assert row["prompt_tokens"] > 10
        assert 1 <= row["completion_tokens"] <= 24
        assert ("truncated" in row["flags"]) == (row["finish_reason"] == "length")
        assert row["tries"] == 1
        assert row["latency_seconds"] > 0
    assert failed_rows(tmp_path / "out") == []
    after = settled_total(engine)
    if engine.kind != "llamacpp":  # its counter is of tokens
        assert after - before == COUNT

    again = headrace(*words, timeout_seconds=JOB_LIMIT_SECONDS)

    assert again.returncode == 0, again.stdout + again.stderr
    assert settled_total(engine) == after, "the second run of a finished job sent something"
    assert len(finished_rows(tmp_path / "out")) == COUNT


def settled_total(engine: EngineServer) -> float:
    """The server's request counter once two looks in a row agree: counters are written a little later."""
    seen = -1.0
    while True:
        now = engine.requests_total()
        if now == seen:
            return now
        seen = now
        time.sleep(1.0)


def test_kill_nine_of_the_driver_and_the_same_command_again_end_with_exactly_one_row_each(
    engine: EngineServer, shared: Path, tmp_path: Path
) -> None:
    count, in_flight, out = 40, 4, tmp_path / "out"
    words = run_flags(shared, out, engine, count=count, in_flight=in_flight, max_tokens=48)
    process = start(*words, log=tmp_path / "log")
    try:
        wait_until(
            lambda: process.poll() is not None or durable_lines(out) >= 10, 240, "10 rows durable", 0.05
        )
        assert process.poll() is None, (tmp_path / "log").read_text()
    finally:
        kill_group(process)
    kept = durable_lines(out)
    assert 10 <= kept < count, f"{kept} of {count} rows were durable when the driver was killed"
    before = settled_total(engine)

    resumed = headrace(*words)

    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert_exactly_once(finished_rows(out), gsm8k(shared, count))
    if engine.kind != "llamacpp":
        # the durable rows are not asked again
        assert settled_total(engine) - before == count - kept


def test_over_long_prompts_land_in_failed_with_the_servers_words_and_the_rest_finishes(
    engine: EngineServer, tmp_path: Path
) -> None:
    too_long = "over and over " * 4000  # every server here has a context of 2,048 tokens
    prompts = [f"Say {number}." for number in range(20)]
    prompts[7] = prompts[13] = "x"  # the same twice: asked once, answered twice
    lines = [{"prompt": prompt, "id": f"short-{at}"} for at, prompt in enumerate(prompts)]
    lines[3] = {"prompt": too_long, "id": "long-3"}
    lines[11] = {"prompt": too_long + "!", "id": "long-11"}
    source = tmp_path / "prompts.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, said = engine.refusal(
        "/v1/chat/completions",
        {"model": engine.model, "messages": [{"role": "user", "content": too_long}], "max_tokens": 8},
    )
    assert status == 400

    done = headrace(
        "run", "--prompts", source, "--server", engine.url, "--out", tmp_path / "out",
        "--in-flight", 8, "--max-tokens", 8,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    rows = finished_rows(tmp_path / "out")
    assert sorted(row["id"] for row in rows) == sorted(f"short-{at}" for at in range(20) if at not in (3, 11))
    failed = failed_rows(tmp_path / "out")
    assert sorted(row["id"] for row in failed) == ["long-11", "long-3"]
    for row in failed:
        assert row["kind"] == "refused"
        assert row["status"] == 400
        assert row["tries"] == 1, "what cannot succeed is not tried again"
        assert row["server"] == engine.url
    reason = next(row["reason"] for row in failed if row["id"] == "long-3")
    words = json.loads(said)
    message = words.get("message") or words["error"]["message"]
    assert message[:40] in reason


@pytest.mark.engine_sglang
def test_the_job_ends_on_the_other_server_when_one_of_two_is_killed(
    start_engines: Callable[..., list[EngineServer]], shared: Path, tmp_path: Path
) -> None:
    killed_and_survivor(start_engines("sglang-llama", "sglang-llama"), shared, tmp_path)


@pytest.mark.engine_vllm
@pytest.mark.engine_sglang
def test_the_job_ends_on_sglang_when_vllm_beside_it_is_killed(
    start_engines: Callable[..., list[EngineServer]], shared: Path, tmp_path: Path
) -> None:
    # two models under two names: headrace is told neither, and asks each server for the one it serves
    killed_and_survivor(start_engines("vllm", "sglang-llama"), shared, tmp_path)


def killed_and_survivor(servers: list[EngineServer], shared: Path, tmp_path: Path) -> None:
    """Kills the first server in the middle of a job and looks at what became of the job."""
    victim, survivor = servers
    count, out = 400, tmp_path / "out"
    words = run_flags(shared, out, victim, survivor, count=count, in_flight=8, max_tokens=64)
    process = start(*words, log=tmp_path / "log")
    try:
        wait_until(
            lambda: {row["server"] for row in open_rows(out)} >= {victim.url, survivor.url}
            or process.poll() is not None,
            240, "both servers have answered", 0.05,
        )  # fmt: skip
        assert process.poll() is None, (tmp_path / "log").read_text()
        victim.kill()
        assert process.wait(280) == 0, (tmp_path / "log").read_text()
    finally:
        kill_group(process)
    rows = finished_rows(out)
    assert_exactly_once(rows, gsm8k(shared, count))
    by_server = {url: sum(row["server"] == url for row in rows) for url in (victim.url, survivor.url)}
    assert by_server[victim.url] >= 1, by_server
    assert by_server[survivor.url] > by_server[victim.url], by_server
    status = json.loads((out / "status.json").read_text())
    dead = next(one for one in status["endpoints"] if one["url"] == victim.url)
    assert dead["state"] == "broken"
    assert dead["why"], "the status says why a server is broken"


def test_the_running_gauge_stays_within_the_cap_and_the_status_agrees_with_the_server(
    engine: EngineServer, shared: Path, tmp_path: Path
) -> None:
    in_flight, out = engine.cap + 8, tmp_path / "out"
    # answers of 600 tokens: the batch stands for several reports of a gauge that moves every 40 steps. That
    # of llama.cpp moves at once; it goes on with what a killed client asked, and 12 of 600 take it 200 s
    tokens = 600 if engine.kind != "llamacpp" else 60
    words = run_flags(shared, out, engine, count=1319, in_flight=in_flight, max_tokens=tokens)
    seen: list[tuple[float, float]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            seen.append(engine.running_and_queued())

    watcher = threading.Thread(target=watch)
    process = start(*words, log=tmp_path / "log")
    watcher.start()
    try:
        # what the server itself says: its cap is filled, and what is in flight beyond it waits there
        wait_until(
            lambda: any(running >= engine.cap and queued >= 1 for running, queued in seen)
            or process.poll() is not None
            or not watcher.is_alive(),
            LOAD_LIMIT_SECONDS, f"{engine.cap} running and some queued, in one page of the gauges",
        )  # fmt: skip
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert watcher.is_alive(), "the server's metrics page answered no longer"
        # from the job's own mouth, over its control socket
        wait_until(
            lambda: status(out).in_flight == in_flight, LOAD_LIMIT_SECONDS, f"{in_flight} in flight by status"
        )
        time.sleep(2.0)  # and the cap is kept to while the batch turns over
    finally:
        over.set()
        watcher.join()
        kill_group(process)
    assert max(running for running, _ in seen) == engine.cap, "a job fills the cap, and the server keeps it"
    assert max(queued for _, queued in seen) <= in_flight, "no more waits at the server than was sent"
