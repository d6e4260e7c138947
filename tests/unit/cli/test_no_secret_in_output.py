"""A secret planted in every kind of evidence comes out of no command, in no form of output."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from headrace.cli import main

SECRET = "Zq7plantedSecret42"
SHAPES = (
    f"api_key={SECRET}",
    f"--api-key {SECRET}",
    f"'admin_api_key': ['x', '{SECRET}']",
    f'"api_key": "{SECRET}"',
    f"Authorization: Bearer {SECRET}",
    f"http://user:{SECRET}@node:30000/v1?token={SECRET}",
    f"hf_{SECRET}",
    f"sk-{SECRET}",
    f"AWS_SECRET_ACCESS_KEY={SECRET}",
    f"ssl_keyfile_password='{SECRET}'",
    f"<pre>API_KEY</pre><b>{SECRET}</b>",
)
DECODE = (
    "[2026-02-03 04:05:06] Decode batch, #running-req: 24, #token: 41000, token usage: 0.17, "
    "cuda graph: True, gen throughput (token/s): 500.10, #queue-req: 5"
)


def log_lines() -> str:
    lines = [
        f"[2026-02-03 04:05:05] server_args=ServerArgs(model_path='m', tp_size=1, api_key='{SECRET}', "
        f"admin_api_key='{SECRET}', ssl_keyfile_password='{SECRET}', kv_cache_dtype='{SECRET}')",
        DECODE,
        DECODE + f", stranger api_key: {SECRET}",
        "Traceback (most recent call last):",
        f"ValueError: cannot log in with password={SECRET}",
        f"(APIServer pid=1) INFO 02-03 04:05:06 [utils.py:1] non-default args: {{'api_key': ['{SECRET}']}}",
        f'[2026-02-03 04:05:06] INFO:     1.2.3.4:5 - "POST /v1/x?api_key={SECRET} HTTP/1.1" 200 OK',
        f'[2026-02-03 04:05:06] INFO:     1.2.3.4:5 - "POST /sk-{SECRET} HTTP/1.1" 200 OK',
    ]
    for shape in SHAPES:
        lines += [
            f"[2026-02-03 04:05:07] WARNING: something odd about {shape} here",
            f"ERROR 02-03 04:05:07 [core.py:1] {shape}",
            f"RuntimeError: {shape}",
            f"[2026-02-03 04:05:07] Prefill batch, {shape}: 5, #new-token: {shape}",
            json.dumps(
                {"log": f"[2026-02-03 04:05:07] KV cache pool is full. Retract requests. #x: {shape}\n"}
            ),
        ]
    return "\n".join(lines) + "\n"


FACTS = {
    "engine": "sglang",
    "engine_version": f"0.5.12 {SHAPES[0]}",
    "model": f"org/model {SHAPES[6]}",
    "gpu": "H200",
    "flags": f"--tp 1 {SHAPES[1]} --model-path https://me:{SECRET}@hub/x; {SHAPES[8]} {SHAPES[9]}",
    "notes": " ; ".join(SHAPES),
    "claims": list(SHAPES),
    "observed": {"running": 24, "queued": 5, "kv_usage": 0.99, "api_key": SECRET, f"x {SHAPES[0]}": 1},
    "client": {"in_flight": 64, "password": SECRET},
    SHAPES[4]: 1,
    "logs": f"../{SHAPES[0]}",
}
METRICS = f"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{model_name="m api_key={SECRET}",tp_rank="0"}} 5.0
sglang:num_queue_reqs{{model_name="m api_key={SECRET}",password="{SECRET}"}} 2.0
"""
JOB = {
    "out": f"out/sk-{SECRET}",
    "servers": [f"http://user:{SECRET}@127.0.0.1:9"],
    "prompts": "prompts.jsonl",
    "system": "hello",
    "api_key": SECRET,
    "sampling": {"max_tokens": 5, "password": SECRET},
    SHAPES[0]: 1,
}


class Telling(BaseHTTPRequestHandler):
    """An SGLang that tells its keys everywhere, and an error page for all else."""

    def do_GET(self) -> None:
        server_info = {
            "version": "0.5.12",
            "model_path": f"https://me:{SECRET}@hub/m",
            "api_key": SECRET,
            "admin_api_key": SECRET,
            "kv_cache_dtype": f"sk-{SECRET}",
            "attention_backend": SHAPES[1],
            "tp_size": 1,
            "internal_states": [{"api_key": SECRET, "last_gen_throughput": 5.0}],
        }
        pages = {"/server_info": json.dumps(server_info), "/metrics": METRICS}
        path = self.path.partition("?")[0]
        body = pages.get(path, "<html>" + "<p>".join(SHAPES) + "</html>").encode()
        self.send_response(200 if path in pages else 500)
        self.send_header("X-Api-Key", SECRET)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Telling) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        main(list(words))
    caught = capsys.readouterr()
    return caught.out + caught.err


def check(said: str) -> None:
    at = said.find(SECRET)
    assert at < 0, said[max(at - 200, 0) : at + 100]
    assert "Zq7planted" not in said  # nor half of it


VIEWS = [[], ["--all"], ["--json"]]


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_a_log(view: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.log"
    path.write_text(log_lines())
    said = told(capsys, "diagnose", str(path), *view)
    assert "24" in said
    check(said)


@pytest.mark.parametrize("view", [*VIEWS, ["--strict"]], ids=str)
def test_a_facts_file(view: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "facts.yaml"
    path.write_text(yaml.safe_dump(FACTS))
    check(told(capsys, "diagnose", str(path), *view))


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_a_metrics_page(view: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.prom"
    path.write_text(METRICS)
    check(told(capsys, "diagnose", str(path), *view))


@pytest.mark.parametrize("view", VIEWS, ids=str)
def test_a_server(view: list[str], server: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://user:{SECRET}@{server}"
    said = told(capsys, "diagnose", url, "--for", "0", "--flags", f"--tp 1 {SHAPES[1]}", *view)
    assert "sglang" in said.lower()
    check(said)


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", f"http://user:{SECRET}@127.0.0.1:9"],
        ["diagnose", f"/no/such/file?token={SECRET}"],
        ["diagnose", "-", "--engine", f"sk-{SECRET}"],
        ["diagnose", "-", "--api-key-env", f"sk-{SECRET}"],
        ["plan", "--model", f"sk-{SECRET}", "--gpu", "H200"],
        ["plan", "--model", "Qwen/Qwen3-8B", "--gpu", "H200", "--flags", f"--tp 1 --api-key {SECRET} --zz 3"],
        ["plan", "--model", "Qwen/Qwen3-8B", "--gpu", "H200", "--json", "--flags", f"--api-key {SECRET}"],
        ["model", f"hf_{SECRET}"],
        ["gpus", f"sk-{SECRET}"],
        ["status", f"/no/where/sk-{SECRET}"],
        ["export", f"/no/where/sk-{SECRET}"],
        ["fleet", "add", f"/no/where/sk-{SECRET}", f"http://user:{SECRET}@x:1"],
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_arguments(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    check(told(capsys, *words))


def test_a_job_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hello"}\n')
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    check(told(capsys, "run", str(path)))
    good = {key: JOB[key] for key in ("out", "servers", "prompts", "system")}
    path.write_text(yaml.safe_dump(good))
    check(told(capsys, "run", str(path), "--dry-run"))
