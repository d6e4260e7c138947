"""Facts as people type them, with numbers of our own, and what each should come to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace.diagnose.document import Diagnosis
from headrace.diagnose.pipeline import diagnose, view_of
from headrace.diagnose.view import View
from headrace.diagnosing import context_of
from headrace.observe.facts import parse_facts
from headrace.observe.observation import Observation
from headrace.words import Constraint

HYBRID: dict[str, Any] = {
    "engine": "sglang",
    "engine_version": "0.5.12",
    "gpu": "RTX PRO 6000 Blackwell Server",
    "gpus": 4,
    "replicas": 4,
    "tensor_parallel": 1,
    "model": "Qwen/Qwen3.6-27B",
    "flags": "--context-length 8192 --mamba-scheduler-strategy extra_buffer --max-running-requests 48 "
    "--mem-fraction-static 0.84 --mamba-ssm-dtype bfloat16",
    "observed": {
        "running": 20,
        "queued": 0,
        "kv_usage": 0.15,
        "state_usage": 0.40,
        "output_tokens_per_s": 430,
    },
    "client": {"load": "free", "in_flight": 80},
}
DENSE: dict[str, Any] = {
    "engine": "vllm",
    "engine_version": "0.20.2",
    "gpu": "H100 SXM",
    "gpus": 1,
    "replicas": 1,
    "tensor_parallel": 1,
    "model": "Qwen/Qwen3-8B",
    "flags": "--max-num-seqs 96 --max-model-len 16384",
    "observed": {"running": 40, "queued": 0, "kv_usage": 0.3, "output_tokens_per_s": 3300},
    "client": {"load": "given", "in_flight": 40},
}


def told(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Returns facts with top-level keys changed; `observed` and `client` are merged, None removes."""
    facts = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
    for key, value in changes.items():
        if isinstance(value, dict):
            facts[key] = {k: v for k, v in {**facts.get(key, {}), **value}.items() if v is not None}
        elif value is None:
            facts.pop(key, None)
        else:
            facts[key] = value
    return facts


def observation(facts: dict[str, Any]) -> Observation:
    found, _ = parse_facts(yaml.safe_dump(facts), "facts", Path("/"))
    return found


def judged(facts: dict[str, Any]) -> Diagnosis:
    seen = observation(facts)
    return diagnose(seen, context_of(seen))


def view(facts: dict[str, Any]) -> View:
    seen = observation(facts)
    return view_of(seen, seen.servers[0], context_of(seen))


@dataclass(frozen=True)
class Story:
    """Facts, the constraint that binds, and those that must not be named at all."""

    facts: dict[str, Any]
    binds: Constraint
    silent: tuple[Constraint, ...] = ()


_C = Constraint
STORIES: dict[str, Story] = {
    "too little in flight": Story(HYBRID, _C.CLIENT_CONCURRENCY, (_C.KV_POOL, _C.STATE_POOL, _C.CLIENT_SIDE)),
    # vLLM 0.32.0 on the CPU, 64 blocks, 24 requests of 600 tokens in flight, watched for 20 s: they start and
    # are preempted together, so that the queue (up to 12) is empty in most samples
    "preempted in waves": Story(
        told(
            DENSE,
            flags="",
            observed={
                "running": 22.5,
                "queued": 0,
                "kv_usage": 0.889,
                "output_tokens_per_s": 3041.8,
                "preemptions": 57,
                "retractions_per_min": 176.2,
            },
            client={"load": "free", "in_flight": None},
        ),
        _C.KV_POOL,
        (_C.CLIENT_CONCURRENCY, _C.CLIENT_SIDE),
    ),
    "the client's connections": Story(
        told(HYBRID, client={"in_flight": 400}, observed={"running": 25}),
        _C.CLIENT_SIDE,
        (_C.CLIENT_CONCURRENCY, _C.STATE_POOL),
    ),
    "the user's own flag": Story(
        told(
            HYBRID,
            flags=HYBRID["flags"].replace("48", "24"),
            observed={"running": 24, "queued": 30, "cap": 24},
            client={"in_flight": 216},
        ),
        _C.MAX_RUNNING_REQUESTS,
        (_C.STATE_POOL, _C.CLIENT_CONCURRENCY, _C.ADMISSION),
    ),
    "states at their cap": Story(
        told(
            HYBRID,
            observed={"running": 36, "queued": 44, "cap": 36, "state_usage": 0.7},
            client={"in_flight": 320},
        ),
        _C.STATE_POOL,
        (_C.CLIENT_CONCURRENCY, _C.KV_POOL, _C.MAX_RUNNING_REQUESTS),
    ),
    # read from a real vLLM 0.32.0 with one request after another: the gauge was 0 at six of ten looks
    "one at a time, seen between two": Story(
        told(
            DENSE,
            observed={
                "running": 0,
                "queued": 0,
                "kv_usage": 0.0,
                "output_tokens_per_s": 345.4,
                "requests_per_s": 1.15,
                "latency_s": 0.864,
            },
            client={"in_flight": None, "load": "free"},
            model=None,
        ),
        _C.CLIENT_CONCURRENCY,
        (_C.KV_POOL, _C.MAX_RUNNING_REQUESTS),
    ),
    "KV full, work lost": Story(
        told(
            HYBRID,
            observed={"running": 30, "queued": 9, "cap": 36, "kv_usage": 0.99, "retractions_per_min": 14},
            client={"in_flight": 156},
        ),
        _C.KV_POOL,
        (_C.CLIENT_CONCURRENCY, _C.ADMISSION),
    ),
    "a reserve too large": Story(
        told(
            HYBRID,
            observed={"running": 12, "queued": 40, "cap": 36, "kv_usage": 0.2, "output_tokens_per_s": 260},
            client={"in_flight": 208},
        ),
        _C.ADMISSION,
        (_C.KV_POOL, _C.CLIENT_CONCURRENCY),
    ),
    "at the memory's speed": Story(
        told(HYBRID, client={"load": "given", "in_flight": 80}, observed={"output_tokens_per_s": 500}),
        _C.MEMORY_BANDWIDTH,
        (_C.CLIENT_CONCURRENCY, _C.STEP_OVERHEAD),
    ),
    "prompts are the work": Story(
        told(
            DENSE,
            observed={"running": 12, "queued": 25, "output_tokens_per_s": 90, "prefill_tokens_per_s": 41000},
            client={"mean_input_tokens": 9000, "mean_output_tokens": 20},
        ),
        _C.PREFILL,
        (_C.MEMORY_BANDWIDTH, _C.CLIENT_CONCURRENCY),
    ),
    "eager by choice": Story(
        told(
            DENSE,
            flags=DENSE["flags"] + " --enforce-eager",
            observed={"running": 4, "output_tokens_per_s": 130},
            client={"in_flight": 4},
        ),
        _C.STEP_OVERHEAD,
        (_C.MEMORY_BANDWIDTH, _C.CUDA_GRAPH),
    ),
    "graphs too small": Story(
        told(
            DENSE,
            engine="sglang",
            engine_version="0.5.12",
            flags="--cuda-graph-max-bs 32",
            observed={"running": 70, "output_tokens_per_s": 2500, "kv_usage": 0.1},
            client={"in_flight": 70},
        ),
        _C.CUDA_GRAPH,
        (_C.STEP_OVERHEAD, _C.KV_POOL),
    ),
    "no way between GPUs": Story(
        told(
            DENSE,
            gpu="RTX 4090",
            gpus=2,
            tensor_parallel=2,
            flags="--tensor-parallel-size 2; NCCL_P2P_DISABLE=1",
            observed={"running": 2, "output_tokens_per_s": 90},
            client={"in_flight": 2},
        ),
        _C.INTERCONNECT,
        (_C.CLIENT_CONCURRENCY, _C.KV_POOL),
    ),
    "narrower and slower": Story(
        told(
            DENSE,
            weights_dtype="fp8",
            claims=["the BF16 checkpoint makes 5,100 output tok/s at the same load"],
        ),
        _C.KERNEL_PATH,
        (_C.CLIENT_CONCURRENCY, _C.KV_POOL),
    ),
    "drafts that do not pay": Story(
        told(
            DENSE,
            observed={"running": None, "accept_rate": 0.3, "tpot_s": 0.03, "output_tokens_per_s": 1100},
            claims=["without MTP the same server makes 1,700 tok/s"],
        ),
        _C.SPECULATION,
        (_C.CLIENT_CONCURRENCY,),
    ),
    "a clock held down": Story(
        told(
            DENSE,
            observed={"sm_clock_mhz_sustained": 510, "throttle_power_percent": 80, "gpu_temp_c": 91},
            model=None,
        ),
        _C.POWER_THERMAL,
        (_C.INTERCONNECT, _C.CLIENT_SIDE),
    ),
    "nothing is found": Story(
        told(
            DENSE,
            observed={"running": None, "output_tokens_per_s": None, "cache_hit_rate": 0.0},
            client={"shared_prefix_fraction": 0.8},
        ),
        _C.PREFIX_CACHE,
        (_C.KV_POOL,),
    ),
    "more than there are slots": Story(
        told(HYBRID, observed={"running": None, "queued": None, "cap": 900, "state_slots": 400}),
        _C.CONFIGURATION_ERROR,
        (_C.CLIENT_CONCURRENCY,),
    ),
    "the end of a round": Story(
        told(
            DENSE,
            observed={
                "running": None,
                "queued": None,
                "output_tokens_per_s": None,
                "time_s_by_rank": {0: 60, 1: 90, 2: 140},
                "output_tokens_by_rank": {0: 30000, 1: 41000, 2: 39000},
                "longest_output_by_rank": {0: 3000, 1: 5200, 2: 8100},
            },
        ),
        _C.LONG_TAIL,
        (_C.MEMORY_BANDWIDTH,),
    ),
    "slots of llama.cpp": Story(
        {"engine": "llamacpp", "observed": {"running": 4, "queued": 28}},
        _C.MAX_RUNNING_REQUESTS,
        (_C.KV_POOL,),
    ),
    "the engine's own limit": Story(
        told(
            DENSE,
            flags=None,
            model=None,
            observed={"running": 256, "queued": 300, "kv_usage": 0.4, "output_tokens_per_s": 9000},
            client={"in_flight": 560},
        ),
        _C.MAX_RUNNING_REQUESTS,
        (_C.KV_POOL, _C.ADMISSION, _C.CLIENT_CONCURRENCY),
    ),
    "prompts longer than the budget": Story(
        told(
            DENSE,
            flags="--max-num-seqs 200 --max-num-batched-tokens 2048",
            observed={"running": 20, "queued": 60, "kv_usage": 0.3, "output_tokens_per_s": 700},
            client={"in_flight": 80, "mean_input_tokens": 7000, "mean_output_tokens": 900},
        ),
        _C.TOKEN_BUDGET,
        (_C.KV_POOL, _C.CLIENT_CONCURRENCY, _C.MAX_RUNNING_REQUESTS),
    ),
    "a pool that will not hold them": Story(
        told(
            DENSE,
            observed={"running": None, "queued": None, "kv_usage": None, "kv_capacity_tokens": 30000},
            client={"load": "free", "in_flight": 64, "mean_input_tokens": 3000, "mean_output_tokens": 500},
        ),
        _C.KV_POOL,
        (_C.CLIENT_CONCURRENCY,),
    ),
    "ranks of one server out of balance": Story(
        told(
            DENSE,
            observed={
                "running": None,
                "queued": None,
                "kv_usage": None,
                "output_tokens_per_s": None,
                "kv_usage_by_rank": {0: 0.97, 1: 0.35, 2: 0.4},
            },
        ),
        _C.LOAD_IMBALANCE,
        (_C.CLIENT_CONCURRENCY,),
    ),
    "a host that cannot keep up": Story(
        told(
            DENSE,
            observed={
                "gpu_utilization": 0.45,
                "cpu_busy_cores": 1.0,
                "running": 8,
                "output_tokens_per_s": 300,
            },
            client={"in_flight": 8},
        ),
        _C.STEP_OVERHEAD,
        (_C.MEMORY_BANDWIDTH,),
    ),
    "a slow link": Story(
        told(
            DENSE,
            gpus=4,
            tensor_parallel=4,
            flags="--tensor-parallel-size 4; PCIe 3.0 x4 without NVLink",
            observed={"running": 4, "output_tokens_per_s": 120},
            client={"in_flight": 4},
        ),
        _C.INTERCONNECT,
        (_C.CLIENT_CONCURRENCY,),
    ),
    "tokens late at the client": Story(
        told(DENSE, observed={"itl_p50_s_client": 0.2, "output_tokens_per_s": 2000}, model=None),
        _C.FRONTEND,
        (_C.KV_POOL,),
    ),
    "the last prompts of a job": Story(
        told(
            DENSE,
            observed={"running": 3},
            client={"load": "free", "in_flight": 128, "prompts_total": 5000, "completed": 4997},
        ),
        _C.LONG_TAIL,
        (_C.CLIENT_SIDE,),
    ),
    "drafts that lose in company": Story(
        told(
            DENSE,
            flags=DENSE["flags"] + ' --speculative-config \'{"method": "mtp"}\'',
            observed={"running": 4, "output_tokens_per_s": 150},
            client={"in_flight": 4},
            claims=["a single request alone makes 200 tok/s"],
        ),
        _C.SPECULATION,
        (_C.KV_POOL, _C.CLIENT_CONCURRENCY),
    ),
    "a limit that was turned": Story(
        told(
            DENSE,
            flags=None,
            observed={"running": None, "output_tokens_per_s": 2000, "kv_usage": 0.1},
            claims=["with --max-num-seqs 512 the same load makes 5,200 tok/s"],
        ),
        _C.MAX_RUNNING_REQUESTS,
        (_C.KV_POOL, _C.ADMISSION),
    ),
    "an idle GPU and a grammar": Story(
        told(
            DENSE,
            observed={"gpu_utilization": 0.3, "output_tokens_per_s": 700},
            claims=["every request asks for structured output by a JSON schema"],
        ),
        _C.GRAMMAR,
        (_C.MEMORY_BANDWIDTH, _C.KERNEL_PATH),
    ),
    "computed elsewhere": Story(
        told(
            DENSE,
            engine="llamacpp",
            engine_version=None,
            flags="-c 4096",
            model=None,
            observed={"gpu_utilization": 0.0, "running": 1, "output_tokens_per_s": 6},
            client={"in_flight": 1},
        ),
        _C.CONFIGURATION_ERROR,
        (_C.MEMORY_BANDWIDTH, _C.KERNEL_PATH),
    ),
    "weights on the host": Story(
        told(
            DENSE,
            flags=DENSE["flags"] + " --cpu-offload-gb 8",
            observed={"running": 2, "output_tokens_per_s": 9},
            client={"in_flight": 2},
        ),
        _C.INTERCONNECT,
        (_C.KERNEL_PATH, _C.STEP_OVERHEAD),
    ),
    "another back end": Story(
        told(
            DENSE,
            observed={"running": 40, "output_tokens_per_s": 1500},
            claims=["with FlashInfer the same load makes 3,300 tok/s"],
        ),
        _C.KERNEL_PATH,
        (_C.KV_POOL, _C.CLIENT_CONCURRENCY),
    ),
    "one GPU is as good": Story(
        told(
            DENSE,
            gpus=2,
            tensor_parallel=2,
            flags="--tensor-parallel-size 2",
            observed={"running": 8, "output_tokens_per_s": 500},
            client={"in_flight": 8},
            claims=["on a single GPU the same load makes 900 tok/s"],
        ),
        _C.INTERCONNECT,
        (_C.KV_POOL, _C.CLIENT_CONCURRENCY),
    ),
    "a pool that holds no request": Story(
        told(
            DENSE,
            flags="--max-model-len 32768",
            observed={
                "running": 0,
                "queued": 3,
                "kv_usage": 0.0,
                "kv_capacity_tokens": 20000,
                "output_tokens_per_s": None,
            },
            client={"in_flight": 3},
        ),
        _C.KV_POOL,
        (_C.ADMISSION, _C.MAX_RUNNING_REQUESTS),
    ),
    # by hand: 6 × 0.64 × 2,048 / 5 = 1,573 tokens on average, ± 450 × √(6 / 12) = 318: twice that beyond it
    # is 2,209 of 2,048. As SGLang on the CPU shows it with a planted pool, less the work that it throws away.
    "few long answers in a small pool": Story(
        {
            "engine": "sglang",
            "engine_version": "0.5.12",
            "observed": {"running": 5, "queued": 19, "cap": 32, "kv_usage": 0.64, "kv_capacity_tokens": 2048},
            "client": {"in_flight": 24, "mean_input_tokens": 14, "mean_output_tokens": 450},
        },
        _C.KV_POOL,
        (_C.MAX_RUNNING_REQUESTS, _C.CLIENT_CONCURRENCY, _C.RETRACTION),
    ),
    # 60 times the pool and the requests: 301 × 262 = 78,900, ± 450 × √(301 / 12) = 2,254, of 122,880
    "many of them in a large pool": Story(
        {
            "engine": "sglang",
            "engine_version": "0.5.12",
            "observed": {
                "running": 300,
                "queued": 1140,
                "cap": 1920,
                "kv_usage": 0.64,
                "kv_capacity_tokens": 122880,
            },
            "client": {"in_flight": 1440, "mean_input_tokens": 14, "mean_output_tokens": 450},
        },
        _C.ADMISSION,
        (_C.KV_POOL, _C.MAX_RUNNING_REQUESTS, _C.CLIENT_CONCURRENCY, _C.RETRACTION),
    ),
    "nothing is known": Story({"observed": {"gpu_utilization": 1.0}}, _C.UNKNOWN, tuple(_C)[:-1]),
}
