"""One real inference server as a process of ours: started, asked for a token, read, killed, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.null_server import free_ports, get
from tests.engines.install import plain_environment

BOOT_LIMIT_SECONDS = 300  # 45 s for vLLM on a quiet machine; 243 s were seen on a busy one
REQUESTS_TOTAL = {
    "vllm": "vllm:request_success_total",
    "sglang": "sglang:num_requests_total",
    "llamacpp": None,  # counts tokens only
}
OUTPUT_TOKENS_TOTAL = {
    "vllm": "vllm:generation_tokens_total",
    "sglang": "sglang:generation_tokens_total",
    "llamacpp": "llamacpp:tokens_predicted_total",
}
RUNNING = {
    "vllm": "vllm:num_requests_running",
    "sglang": "sglang:num_running_reqs",
    "llamacpp": "llamacpp:requests_processing",
}
QUEUED = {
    "vllm": "vllm:num_requests_waiting",
    "sglang": "sglang:num_queue_reqs",
    "llamacpp": "llamacpp:requests_deferred",
}


@dataclass(frozen=True)
class Launch:
    """What is started.

    Attributes:
        kind: vllm, sglang or llamacpp.
        model: the served name.
        cap: the most requests it will run at once, by its flags.
        command: with `{port}` where the port goes.
        ready_words: what its log says once its own warm-up request is over and no longer counts.
    """

    kind: str
    model: str
    cap: int
    command: tuple[str, ...]
    ready_words: str = ""


class EngineServer:
    """A real server; `start` returns when it generates.

    Attributes:
        url: of its HTTP API.
        log: everything it said.
        boot_bytes: how much of it was written by the time the server was ready.
    """

    def __init__(self, launch: Launch, folder: Path) -> None:
        self.launch = launch
        self.kind = launch.kind
        self.model = launch.model
        self.cap = launch.cap
        self.port = free_ports(beside=10_000)  # SGLang's second port
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{launch.kind}-{launch.model}-{self.port}.log"
        self.boot_bytes = 0
        self.began = time.monotonic()
        with self.log.open("w") as sink:
            self.process = subprocess.Popen(
                [word.format(port=self.port) for word in launch.command],
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=plain_environment(),
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Returns when this very process has generated a token; raises AssertionError with its log's end."""
        while True:
            said = self._asked_for_a_token()
            if self.process.poll() is not None:
                raise AssertionError(self._tail(f"ended with {self.process.returncode} while starting"))
            if said == "" and self.launch.ready_words in self.log.read_text(errors="replace"):
                self.boot_bytes = self.log.stat().st_size
                return
            if time.monotonic() - self.began > BOOT_LIMIT_SECONDS:
                raise AssertionError(
                    self._tail(
                        f"not ready after {BOOT_LIMIT_SECONDS} s: {said or 'no ' + self.launch.ready_words}"
                    )
                )
            time.sleep(0.5)

    def _asked_for_a_token(self) -> str:
        """ "" when it generated one, else what stood in the way."""
        try:
            answer = self.post(
                "/v1/chat/completions",
                {"model": self.model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1},
            )
        except (OSError, ValueError) as error:
            return str(error)
        return "" if answer["usage"]["completion_tokens"] >= 1 else "no token generated"

    def post(self, path: str, body: dict[str, Any], timeout_seconds: float = 60.0) -> dict[str, Any]:
        """The JSON answer; raises OSError (HTTPError for statuses from 400 on)."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def refusal(self, path: str, body: dict[str, Any]) -> tuple[int, str]:
        """Status and text of an answer that is expected to be a refusal."""
        try:
            self.post(path, body)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        raise AssertionError(f"{path} was not refused: {body}")

    def metric(self, name: str) -> float:
        """The sum over all label sets of a metric; 0 where it is not exported (yet)."""
        return self.metrics(name)[0]

    def metrics(self, *names: str) -> list[float]:
        """As `metric`, of several from one page: they belong to the same moment."""
        page = get(f"{self.url}/metrics", 30).decode().splitlines()
        return [
            sum(
                float(line.rsplit(" ", 1)[1])
                for line in page
                if line.startswith(name) and line[len(name)] in "{ "
            )
            for name in names
        ]

    def requests_total(self) -> float:
        """Requests it has taken (vLLM: has finished) since it started; output tokens where it counts none."""
        return self.metric(REQUESTS_TOTAL[self.kind] or OUTPUT_TOKENS_TOTAL[self.kind])

    def running_and_queued(self) -> tuple[float, float]:
        """Requests in the batch, and requests that wait in the server, by one page of its gauges."""
        running, queued = self.metrics(RUNNING[self.kind], QUEUED[self.kind])
        return running, queued

    def running_and_queued_now(self) -> tuple[float, float]:
        """The same, fresh: SGLang's gauges keep their last value for up to 30 s when nothing runs."""
        if self.kind != "sglang":
            return self.running_and_queued()
        ranks = json.loads(get(f"{self.url}/v1/loads?include=core", 30))["loads"]
        running = sum(rank["num_running_reqs"] for rank in ranks)
        return running, sum(rank["num_waiting_reqs"] for rank in ranks)

    def kill(self) -> None:
        """kill -9 of the whole process group: the machine is gone."""
        self._signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to the group when that was not enough in 5 s."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        self._signal(signal.SIGKILL)
        self.process.wait(30)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def _tail(self, what: str) -> str:
        said = self.log.read_text(errors="replace")
        return f"{self.kind} {self.model} on port {self.port} {what}\n--- end of {self.log}:\n{said[-4000:]}"


def launch_vllm(recipes: Path, at: Path, model: str = "tiny-llama", flags: Sequence[str] = ()) -> Launch:
    """A vLLM server; it runs 64 requests at once unless `flags` say otherwise."""
    return Launch(
        "vllm", model, 64, ("bash", str(recipes / "vllm/serve.sh"), str(at), model, "{port}", *flags)
    )


def launch_sglang(
    recipes: Path, at: Path, models: Path, model: str, cap: int, flags: Sequence[str] = ()
) -> Launch:
    """An SGLang server. Asleep when idle: several of them share two cores with the tests."""
    script = str(recipes / "sglang/serve.sh")
    words = ("bash", script, str(at), str(models / model), "{port}", "--sleep-on-idle", *flags)
    return Launch("sglang", model, cap, words, ready_words="The server is fired up")


def launch_llamacpp(recipes: Path, at: Path) -> Launch:
    """A llama.cpp server with 4 slots. One thread: two wait for each other in a busy loop at every operation,
    and beside other work on two cores a token took a second."""
    words = ("bash", str(recipes / "llamacpp/serve.sh"), str(at), "{port}", "--threads", "1")
    return Launch("llamacpp", "gemma3-270m", 4, words)
