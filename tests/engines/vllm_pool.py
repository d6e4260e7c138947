"""What vLLM itself makes of layers and memory: run by a vLLM venv's Python, a JSON line per case out.

A case: {"layers": [{"kind": "full"|"window"|"state", "heads", "key", "value", "window", "bytes"}, …],
"block_tokens", "state_page", "mode", "drafts", "available", "max_model_len", "max_batched"}. The engine's
own `get_kv_cache_groups`, `get_kv_cache_config_from_groups` and `get_max_concurrency_for_kv_cache_config`
answer; only the configuration objects around them are stand-ins.
"""

import json
import sys
from types import SimpleNamespace

import torch
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec
from vllm.v1.kv_cache_layout import KVCacheLayout

LAYOUT = KVCacheLayout.LBNHC


def spec(layer, case):
    if layer["kind"] == "state":
        return MambaSpec(
            block_size=case["block_tokens"] if case["mode"] == "align" else case["max_model_len"],
            shapes=((layer["bytes"],),),
            dtypes=(torch.uint8,),
            page_size_padded=case["state_page"],
            mamba_cache_mode=case["mode"],
            num_speculative_blocks=case["drafts"],
        )
    shape = {
        "block_size": case["block_tokens"],
        "num_kv_heads": layer["heads"],
        "head_size": layer["key"],
        "head_size_v": layer["value"],
        "dtype": torch.bfloat16,
    }
    if layer["kind"] == "window":
        return SlidingWindowSpec(**shape, sliding_window=layer["window"])
    return FullAttentionSpec(**shape)


def answer(case):
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=False,
            max_num_batched_tokens=case["max_batched"],
            max_num_scheduled_tokens=case["max_batched"],
            async_scheduling=False,
        ),
        cache_config=SimpleNamespace(
            mamba_cache_mode=case["mode"],
            num_gpu_blocks_override=None,
            get_resolved_kv_cache_layout=lambda: LAYOUT,
            enable_prefix_caching=case["mode"] != "none",
            prefix_cache_retention_interval=0,
        ),
        model_config=SimpleNamespace(max_model_len=case["max_model_len"]),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1, pipeline_parallel_size=1
        ),
        speculative_config=None,
        max_in_flight_tokens=case["max_batched"],
        kv_transfer_config=None,
        attention_config=SimpleNamespace(hisparse_config=None),
    )
    specs = {f"model.layers.{i}": spec(layer, case) for i, layer in enumerate(case["layers"])}
    groups = kv_cache_utils.get_kv_cache_groups(config, specs)
    pool = kv_cache_utils.get_kv_cache_config_from_groups(config, groups, case["available"])
    concurrency = kv_cache_utils.get_max_concurrency_for_kv_cache_config(config, pool)
    return {"groups": len(groups), "blocks": pool.num_blocks, "concurrency": concurrency}


if __name__ == "__main__":
    for one in json.load(sys.stdin):
        sys.stdout.write(json.dumps(answer(one)) + "\n")
