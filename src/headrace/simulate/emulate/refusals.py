"""What an engine says as it refuses to start, in its own words where these are known.

Sources: SGLang 0.5.12's server_args.py and model_runner.py, vLLM 0.20.2's v1/core/kv_cache_utils.py and
config/compilation.py, as the failure catalogues of `engines` know them; others are told in headrace's words.
"""

from __future__ import annotations

from headrace.engines.plan import MemoryPlan

GIB = 1 << 30


def refusal_text(plan: MemoryPlan) -> str:
    """Returns the last line of the trace with which the planned server would end."""
    return _sglang(plan) if plan.settings.engine == "sglang" else _vllm(plan)


def _sglang(plan: MemoryPlan) -> str:
    values = {name: setting.value for name, setting in plan.settings.values.items()}
    strategy = str(values.get("mamba_radix_cache_strategy"))
    slots, each = plan.figure("state_slots"), plan.figure("slots_per_request")
    if slots is not None and values.get("disable_radix_cache") and strategy.startswith("extra_buffer"):
        return "AssertionError: extra_buffer is not compatible with --disable-radix-cache."
    if slots is not None and strategy == "no_buffer" and not values.get("disable_overlap_schedule"):
        return "AssertionError: no_buffer do not support overlap schedule."
    if (slots is not None and slots <= 0) or (plan.figure("kv_tokens") or 0) <= 0:
        fraction = values.get("mem_fraction_static")
        return (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={fraction}"
        )
    if slots is not None and each and slots < each:
        return (
            "ValueError: The mamba state cache is too small to serve any requests: "
            f"max_mamba_cache_size={int(slots)}, mamba_ratio={int(each)}."
        )
    return f"ValueError: {plan.refusals[0]}"


def _vllm(plan: MemoryPlan) -> str:
    available, blocks = plan.figure("available_kv_bytes"), plan.figure("blocks")
    each, block_bytes = plan.figure("blocks_per_longest_request"), plan.figure("block_bytes")
    longest, running = plan.settings["max_model_len"], plan.settings["max_num_seqs"]
    if available is None or blocks is None or each is None or block_bytes is None:
        return f"ValueError: {plan.refusals[0]}"
    if available <= 0:
        return (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
            "when initializing the engine."
        )
    if blocks < each:
        return (
            f"ValueError: To serve at least one request with the models's max seq len ({longest}), "
            f"({each * block_bytes / GIB:.2f} GiB KV cache is needed, which is larger than the available KV "
            f"cache memory ({available / GIB:.2f} GiB). Try increasing `gpu_memory_utilization` or "
            "decreasing `max_model_len` when initializing the engine."
        )
    if plan.figure("state_slots") is not None and isinstance(running, int) and running > blocks:
        return f"ValueError: max_num_seqs ({running}) exceeds available Mamba cache blocks ({int(blocks)})."
    return f"ValueError: {plan.refusals[0]}"
