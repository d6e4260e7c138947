"""Calibrated at low load, how well is four times the load predicted? On real servers on this CPU.

python bench/step_calibrated.py [--engine vllm|sglang]… [--rounds 3]

A Llama of 12 layers × 768 with random weights runs on a real vLLM and a real SGLang (installed by the recipes
that the engine tests use). Each round: 1, 2, 3 and 4 requests at once are watched for a few seconds each, the
step model is calibrated on what was seen, the rate at 16 at once is predicted, and then measured. The device
is described by what numpy reaches in memory bandwidth and multiplication: a CPU is in no table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.null_server import shared_folder
from headrace.hardware.described import described_device
from headrace.hardware.device import Device
from headrace.models.catalogue import read_model
from headrace.perf.calibrate import Sample
from headrace.perf.options import StepOptions
from headrace.perf.step_model import StepModel
from tests.engines.install import SGLANG, SGLANG_MODELS, VLLM, install
from tests.engines.server import EngineServer, Launch, launch_sglang

LOW, HIGH = (1, 2, 3, 4), 16
_STRETCHES = 4  # of one watch, a sample each
PROMPT = "the quick brown fox jumps over the lazy dog"
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OPTIONS = {
    "vllm": StepOptions("vllm", (0, 32, 0), graphs=None, overlap=False, mixes_prefill=True),
    "sglang": StepOptions("sglang", (0, 5, 12), graphs=None, overlap=False),
}


def this_machine(folder: Path) -> Device:
    """Returns this CPU as a device: bandwidth of a large copy, FLOPs of a large product, by numpy."""
    source = np.ones(64_000_000, dtype=np.float32)
    target = np.empty_like(source)
    square = np.ones((1024, 1024), dtype=np.float32)

    def best(work: object, times: int = 20) -> float:
        took = []
        for _ in range(times):
            start = time.perf_counter()
            work()  # type: ignore[operator]
            took.append(time.perf_counter() - start)
        return min(took)

    bandwidth = 2 * source.nbytes / best(lambda: np.copyto(target, source))
    flops = 2 * 1024**3 / best(lambda: square @ square)
    file = folder / "cpu.yaml"
    file.write_text(
        f"name: this CPU\nmemory_gib: 16\nbandwidth_gb_per_second: {bandwidth / 1e9:.1f}\n"
        f"dense_tflops: {{bf16: {flops / 1e12:.4f}}}\nsource: numpy on this machine\n"
    )
    return described_device(file)


def launch(engine: str, folder: Path) -> Launch:
    """Returns what to start; installs the engine where it is not there yet."""
    recipes = shared_folder() / "engines"
    models = install(SGLANG_MODELS, shared_folder()) if install(SGLANG, shared_folder()) else None
    assert models is not None
    model = folder / "bench-llama"
    if not model.exists():
        shutil.copytree(models / "tiny-llama", model)
        (model / "config.json").write_text(json.dumps(MODEL))
    if engine == "sglang":
        flags = ("--max-total-tokens", "65536", "--max-running-requests", "32")
        return launch_sglang(recipes, install(SGLANG, shared_folder()), folder, "bench-llama", 32, flags)
    at = install(VLLM, shared_folder())
    script = folder / "vllm.sh"
    script.write_text(
        (recipes / "vllm/serve.sh")
        .read_text()
        .replace('"$d/models/$model"', f'"{model}" --load-format dummy')
    )
    return Launch("vllm", "bench-llama", 64, ("bash", str(script), str(at), "bench-llama", "{port}"))


def ask(server: EngineServer, tokens: int, seen: list[tuple[float, int]]) -> None:
    """One streamed request; `seen` gets (time, tokens so far) with each piece of the answer."""
    body = {
        "model": server.model,
        "prompt": PROMPT,
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    request = urllib.request.Request(
        f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                usage = json.loads(line[6:]).get("usage") or {}
                seen.append((time.monotonic(), int(usage.get("completion_tokens") or len(seen) + 1)))


def watch(server: EngineServer, requests: int, tokens: int) -> list[tuple[float, float]]:
    """Returns (tokens per second, mean context per request) of stretches in which all were decoding."""
    answers: list[list[tuple[float, int]]] = [[] for _ in range(requests)]
    threads = [threading.Thread(target=ask, args=(server, tokens, seen)) for seen in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    start, end = max(seen[0][0] for seen in answers), min(seen[-1][0] for seen in answers)
    edges = np.linspace(start, end, _STRETCHES + 1)
    made = np.sum([np.interp(edges, *np.array(seen, dtype=float).T) for seen in answers], axis=0)
    prompt = len(PROMPT.split())
    return [
        ((last - first) / (to - since), (first + last) / 2 / requests + prompt)
        for (since, to), (first, last) in zip(
            itertools.pairwise(edges), itertools.pairwise(made), strict=True
        )
    ]


def one_round(server: EngineServer, model: StepModel, tokens: int) -> tuple[float, float, str]:
    """Returns (predicted, measured) tokens per second at the high load, and what the calibration says."""
    samples = [
        Sample(requests, requests * context, requests / rate)
        for requests in (*LOW, *LOW)
        for rate, context in watch(server, requests, tokens)
    ]
    steps = ", ".join(
        f"{requests}: {1e3 * statistics.median(s.seconds for s in samples if s.batch == requests):.1f} ms"
        for requests in LOW
    )
    found = model.calibrate(samples)
    stretches = watch(server, HIGH, tokens)
    measured = statistics.median(rate for rate, _ in stretches)
    said = f"{found.reason}; steps {steps}"
    if found.correction is None:
        return float("nan"), measured, said
    context = statistics.mean(context for _, context in stretches)
    fitted = model.corrected(found.correction)
    return HIGH / fitted.decode_seconds(HIGH, HIGH * context), measured, said


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints each round and the median error per engine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", action="append", choices=sorted(OPTIONS), default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=150)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headrace-step-") as name:
        folder = Path(name)
        device = this_machine(folder)
        assert device.memory_bytes_per_second is not None
        print(
            f"load {os.getloadavg()[0]:.1f}, {device.memory_bytes_per_second.value / 1e9:.1f} GB/s, "
            f"{device.dense_flops_per_second['bf16'].value / 1e9:.0f} GFLOP/s by numpy"
        )
        for engine in chosen.engine or sorted(OPTIONS):
            server = EngineServer(launch(engine, folder), folder)
            try:
                server.wait_ready()
                model = StepModel(read_model(folder / "bench-llama"), device, OPTIONS[engine])
                watch(server, 2, chosen.tokens)  # the first requests warm it up
                errors = []
                for number in range(chosen.rounds):
                    predicted, measured, said = one_round(server, model, chosen.tokens)
                    errors.append(abs(predicted / measured - 1.0))
                    print(
                        f"{engine} {number + 1}: predicted {predicted:.1f} tok/s at {HIGH}, measured "
                        f"{measured:.1f}: {100 * errors[-1]:.1f} % ({said}; load {os.getloadavg()[0]:.1f})",
                        flush=True,
                    )
                print(f"{engine}: median error {100 * statistics.median(errors):.1f} %", flush=True)
            finally:
                server.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
