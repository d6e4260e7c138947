"""The block pool against vLLM's own grouping and capacity: models and settings through the engine.

`vllm_pool.py` is run by the Python of the vLLM venv (0.32.0); block sizes and padded state pages are ours,
the groups, the blocks and how many longest requests fit are the engine's. HEADRACE_ORACLE_SEED chooses
other cases.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.engines.launch_line import LaunchLine
from headrace.engines.plan import GIB, PlanInputs
from headrace.engines.vllm.blocks import BlockPool, pool_shape
from headrace.engines.vllm.planner import PLANNER
from headrace.engines.vllm.settings import resolve
from headrace.hardware.catalogue import resolve as resolve_gpu
from headrace.models.catalogue import resolve_model
from tests.engines.install import VLLM, CannotInstall, install, plain_environment

pytestmark = [pytest.mark.engine_vllm, pytest.mark.timeout(2400)]

VERSION = "0.32.0"
MODELS = [
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-30B-A3B",
    "openai/gpt-oss-20b",
    "openai/gpt-oss-120b",
    "google/gemma-3-27b-it",
    "Qwen/Qwen3.6-27B",
    "Qwen/Qwen3.5-35B-A3B",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "nvidia/Nemotron-H-56B-Base-8K",
    "ibm-granite/granite-4.0-h-small",
    "tiiuae/Falcon-H1-7B-Instruct",
]


def drawn(rng: random.Random) -> tuple[PlanInputs, int, int]:
    """A random model and line, the memory for KV, and the longest request."""
    longest = rng.choice([2048, 8192, 32768])
    available = int(rng.uniform(2, 120) * GIB)
    flags = [
        f"-tp {rng.choice([1, 2, 4])}",
        f"--max-model-len {longest}",
        f"--max-num-batched-tokens {rng.choice([2048, 8192])}",
        "--max-num-seqs 16 --no-async-scheduling",
        rng.choice(["", "--no-enable-prefix-caching"]),
        rng.choice(["", "--mamba-ssm-cache-dtype float32", "--mamba-ssm-cache-dtype bfloat16"]),
        rng.choice(["", """--speculative-config '{"method": "ngram", "num_speculative_tokens": 2}'"""]),
    ]
    rules = PLANNER.rules(VERSION)
    line = LaunchLine.parse(" ".join(flags), PLANNER.table, rules.version)
    model = resolve_model(rng.choice(MODELS))
    return PlanInputs(model, resolve_gpu("H200"), rules, line), available, longest


def case_of(inputs: PlanInputs, shape: BlockPool, available: int, longest: int) -> dict[str, Any]:
    """The same layers, one by one, as the engine's specs want them."""
    tp = int(resolve(inputs)["tensor_parallel_size"] or 1)
    layers: list[dict[str, Any]] = []
    state_page = shape.block_bytes // shape.groups[0].layers
    for layer in inputs.model.layers:
        attention = layer.attention
        if attention is not None:
            elements = int(attention.kv_elements_per_token(tp))
            kind = "window" if attention.window_tokens else "full"
            layers.append(
                {
                    "kind": kind,
                    "heads": 1,
                    "key": elements // 2,
                    "value": elements // 2,
                    "window": attention.window_tokens,
                }
            )
        if layer.recurrent is not None:
            layers.append({"kind": "state", "bytes": min(state_page, 1024)})
    return {
        "layers": layers,
        "block_tokens": shape.block_tokens,
        "state_page": state_page,
        "mode": shape.mode,
        "drafts": shape.draft_tokens,
        "available": available,
        "max_model_len": longest,
        "max_batched": shape.max_batched_tokens,
    }


def test_pools_are_as_the_engine_makes_them(shared: Path) -> None:
    try:
        python = install(VLLM, shared) / "vllm" / "bin" / "python"
    except CannotInstall as reason:
        pytest.skip(f"vLLM's own pools not asked: {reason}")
    rng = random.Random(int(os.environ.get("HEADRACE_ORACLE_SEED", "7")))
    drawings = [drawn(rng) for _ in range(200)]
    shapes = [pool_shape(inputs, resolve(inputs)) for inputs, _, _ in drawings]
    cases = [case_of(i, s, a, n) for (i, a, n), s in zip(drawings, shapes, strict=True)]
    done = subprocess.run(
        [str(python), str(Path(__file__).with_name("vllm_pool.py"))],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=plain_environment(VLLM_LOGGING_LEVEL="ERROR"),
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(cases)
    for (inputs, available, longest), shape, answer in zip(drawings, shapes, answers, strict=True):
        blocks = available // shape.block_bytes
        ours = {
            "groups": len(shape.groups),
            "blocks": blocks,
            "concurrency": blocks / shape.blocks_for(longest, longest=True),
        }
        assert ours == pytest.approx(answer), (inputs.model.name, inputs.line.text())
