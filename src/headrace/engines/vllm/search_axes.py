"""What a search may vary on a vLLM server."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.engines.plan import MemoryPlan
from headrace.engines.search_space import AS_IS, Axis, Choice, tensor_parallel_sizes
from headrace.engines.vllm.levers import MOST_UTILIZATION

_RUNNING = (32, 64, 96, 128, 192, 256, 384, 512)
_BATCHED_TOKENS = (2048, 8192, 16384)


def axes(plan: MemoryPlan, gpus: int) -> tuple[Axis, ...]:
    """Returns the axes: ranks × replicas, memory, running requests, tokens per step, prefix cache, dtypes."""
    return tuple(axis for axis in _axes(plan, gpus) if len(axis.choices) > 1)


def _axes(plan: MemoryPlan, gpus: int) -> Iterator[Axis]:
    settings, model = plan.settings, plan.inputs.model
    now = int(settings["tensor_parallel_size"] or 1)
    sizes = [size for size in tensor_parallel_sizes(model, gpus) if size != now]
    yield Axis("ranks", (AS_IS, *(Choice(f"--tensor-parallel-size {size}") for size in sizes)))
    if float(settings["gpu_memory_utilization"] or 0) < MOST_UTILIZATION:
        more = Choice(f"--gpu-memory-utilization {MOST_UTILIZATION}", "memory headroom", 1)
        yield Axis("memory", (AS_IS, more))
    flag = int(settings["max_num_seqs"] or 0)
    yield Axis(
        "running", (AS_IS, *(Choice(f"--max-num-seqs {count}") for count in _RUNNING if count != flag))
    )
    tokens = int(settings["max_num_batched_tokens"] or 0)
    others = [count for count in _BATCHED_TOKENS if count != tokens]
    yield Axis("tokens per step", (AS_IS, *(Choice(f"--max-num-batched-tokens {count}") for count in others)))
    if model.is_hybrid and settings["enable_prefix_caching"]:
        yield Axis("prefix cache", (AS_IS, Choice("--no-enable-prefix-caching", "prefix reuse", 2)))
    if settings["enforce_eager"]:
        yield Axis("graphs", (AS_IS, Choice("-enforce-eager", "graph memory", 1)))
    if str(settings["kv_cache_dtype"]) == "auto":
        yield Axis("KV dtype", (AS_IS, Choice("--kv-cache-dtype fp8", "accuracy of attention", 4)))
    if model.is_hybrid and str(settings["mamba_ssm_cache_dtype"]) == "float32":
        bf16 = Choice("--mamba-ssm-cache-dtype bfloat16", "accuracy of the recurrent state", 4)
        yield Axis("state dtype", (AS_IS, bf16))
