"""Limits planted in an emulated server's launch line or its load are found, live and from its log alike.

Nothing is planted but sizes and requests; the physics are hidden behind a seed.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import headrace
from headrace import api
from tests.system.emulated_load import in_flight

GPU = "RTX PRO 6000 Blackwell Server"
MODEL = "Qwen3.6-27B"
RADIX_OFF = "--context-length 8192 --disable-radix-cache"
EXTRA_BUFFER = "--context-length 8192 --mamba-scheduler-strategy extra_buffer"
PLANTED = {
    # what is planted: flags, requests in flight, answer tokens, words of a prompt; what must be found
    "cap flag": (f"{RADIX_OFF} --max-running-requests 8", 24, 80, 100, "max_running_requests"),
    # 79 slots of 146.8 MiB, 5 per request: 15 may run
    "state slots": (f"{EXTRA_BUFFER} --max-running-requests 64", 40, 80, 100, "state_pool"),
    # 9 requests of some 1,270 prompt tokens fill 12,000
    "small KV": (f"{RADIX_OFF} --max-running-requests 64 --max-total-tokens 12000", 30, 100, 1000, "kv_pool"),
    "in flight low": (f"{RADIX_OFF} --max-running-requests 64", 6, 80, 100, "client_concurrency"),
}


def binding(targets: list[str]) -> str:
    found = api.diagnose(targets, engine="sglang", engine_version="0.5.12", gpu=GPU, model=MODEL, window="4s")
    return str(found.to_json()["binding"]["constraint"])


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_limit_is_found_live_and_in_the_log(planted: str, tmp_path: Path) -> None:
    flags, count, max_tokens, words, expected = PLANTED[planted]
    log = tmp_path / "server.log"
    with (
        headrace.emulate(
            replicas=1, model=MODEL, gpu=GPU, flags=flags, speed=4, physics_seed=11, thinking=False, log=log
        ) as fleet,
        in_flight(fleet.urls[0], count, max_tokens, words),
    ):
        time.sleep(2)
        live = binding(fleet.urls)
    assert (live, binding([str(log)])) == (expected, expected)


VLLM_PLANTED = {
    "cap flag": ("--max-model-len 8192 --max-num-seqs 8", 24, 80, 100, "max_running_requests"),
    # 601 blocks of 16 tokens, one of them never given out: 9,600 tokens, 6 requests of some 1,400
    "small KV": (
        "--max-model-len 8192 --max-num-seqs 64 --num-gpu-blocks-override 601", 30, 100, 1000, "kv_pool",
    ),
    "in flight low": ("--max-model-len 8192 --max-num-seqs 64", 6, 80, 100, "client_concurrency"),
}  # fmt: skip


@pytest.mark.parametrize("planted", VLLM_PLANTED)
def test_a_planted_limit_of_vllm_is_found(planted: str) -> None:
    """Its cap is not among its metrics: the flags are told."""
    flags, count, max_tokens, words, expected = VLLM_PLANTED[planted]
    line = {"engine": "vllm", "engine_version": "0.33.0", "model": "Qwen3-8B", "gpu": GPU, "flags": flags}
    with (
        headrace.emulate(replicas=1, physics_seed=11, thinking=False, **line) as fleet,
        in_flight(fleet.urls[0], count, max_tokens, words),
    ):
        time.sleep(2)
        found = api.diagnose(fleet.urls, window="4s", **line).to_json()
    assert found["binding"]["constraint"] == expected


def shape(line: str) -> str:
    """A log line with every number, word value and time replaced."""
    return re.sub(r"True|False", "B", re.sub(r"-?\d+(\.\d+)?", "N", line)).strip()


def test_lines_have_the_recorded_shapes(tmp_path: Path, shared: Path) -> None:
    """Prefill, decode, pool and size lines as SGLang 0.5.12 wrote them for a model with recurrent state."""
    log = tmp_path / "server.log"
    with (
        headrace.emulate(replicas=1, model=MODEL, gpu=GPU, flags=EXTRA_BUFFER, speed=20, log=log) as fleet,
        in_flight(fleet.urls[0], 3, 120),
    ):
        time.sleep(2)
    folder = shared / "captures/sglang/0.5.12-qwen3next"
    recorded = {shape(line) for line in (folder / "server.log").read_text(errors="replace").splitlines()}
    starts = (
        "Prefill batch",
        "Decode batch",
        "Mamba Cache",
        "KV Cache is",
        "Memory pool end",
        "Load weight b",
    )
    mine = [line for line in log.read_text().splitlines() if "] " in line]
    for start in starts:
        found = {shape(line) for line in mine if line.split("] ", 1)[1].startswith(start)}
        assert len(found) == 1, start
        assert found <= recorded, start


def test_sigterm_lets_requests_end_first(tmp_path: Path) -> None:
    """As SGLang 0.5.12 does (facts/engines.md §2.7), with its last words in the log."""
    log = tmp_path / "server.log"
    line = ["--model", MODEL, "--gpu", GPU, "--flags", RADIX_OFF, "--log", str(log)]
    command = [sys.executable, "-m", "headrace", "emulate", "--replicas", "1", "--base-port", "0", *line]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        body = {"text": "go on", "sampling_params": {"max_new_tokens": 40, "ignore_eos": True}}
        request = urllib.request.Request(
            f"{url}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(lambda: json.loads(urllib.request.urlopen(request, timeout=60).read()))
            while b'num_running_reqs":1' not in urllib.request.urlopen(f"{url}/v1/loads", timeout=10).read():
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert answer.result()["meta_info"]["completion_tokens"] == 40
        assert process.wait(timeout=30) == 0
    *before, last = log.read_text().splitlines()
    said = "SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    assert sum(line.endswith(said) for line in before) == 1
    assert "Gracefully exiting... Remaining number of requests 0." in last
