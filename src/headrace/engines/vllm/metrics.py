"""vLLM's metric families, V0 and V1, and what they mean. Read: 0.20.2, 0.33.0; V0 and 0.10 by their pages.

`kv_cache_usage_perc` is 0…1 despite its name, and counts blocks of the prefix cache that nobody refers to
as free. State of recurrent layers lies in the same blocks: there is no state pool. The cap of running
requests (max_num_seqs) is not among the metrics.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engines.metrics import Family, Page, add_up, samples
from headrace.engines.page_lines import PageLines

RANK_LABELS = ("engine",)
CONFIG = "vllm:cache_config_info"
ALLOWED = (
    "block_size",
    "effective_attention_block_size",
    "cache_dtype",
    "enable_prefix_caching",
    "gpu_memory_utilization",
    "kv_cache_max_concurrency",
    "kv_cache_memory_bytes",
    "kv_cache_size_tokens",
    "mamba_block_size",
    "mamba_cache_dtype",
    "mamba_cache_mode",
    "mamba_ssm_cache_dtype",
    "num_gpu_blocks",
    "sliding_window",
)
"""Labels of cache_config_info that are kept."""
_LARGEST_PLAIN_BLOCK = 256  # tokens; larger ones are aligned to the state of recurrent layers


def _histogram(name: str, word: str, unit: str) -> dict[str, tuple[Family, ...]]:
    return {
        f"{name}_sum": (Family(f"{word}_{unit}", counter=True),),
        f"{name}_count": (Family(f"{word}_count", counter=True),),
    }


FAMILIES: Mapping[str, tuple[Family, ...]] = {
    "vllm:num_requests_running": (Family("running"),),
    "vllm:num_requests_waiting": (Family("queued"),),
    "vllm:kv_cache_usage_perc": (Family("kv_usage", "mean"),),
    "vllm:gpu_cache_usage_perc": (Family("kv_usage", "mean"),),  # V0, and V1 up to 0.11
    "vllm:avg_generation_throughput_toks_per_s": (Family("output_tokens_per_s"),),  # V0
    "vllm:avg_prompt_throughput_toks_per_s": (Family("prefill_tokens_per_s"),),  # V0
    "vllm:gpu_prefix_cache_hit_rate": (Family("cache_hit_rate", "mean"),),  # V0; -1 where off
    "vllm:generation_tokens_total": (Family("output_tokens", counter=True),),
    "vllm:prompt_tokens_total": (Family("prefill_tokens", counter=True),),
    "vllm:prompt_tokens_cached_total": (Family("cached_tokens", counter=True),),
    "vllm:prefix_cache_queries_total": (Family("queried_tokens", counter=True),),
    "vllm:prefix_cache_hits_total": (Family("hit_tokens", counter=True),),
    "vllm:gpu_prefix_cache_queries_total": (Family("queried_tokens", counter=True),),  # up to 0.11
    "vllm:gpu_prefix_cache_hits_total": (Family("hit_tokens", counter=True),),
    "vllm:num_preemptions_total": (Family("retracted_requests", counter=True),),
    "vllm:request_success_total": (Family("finished_requests", counter=True),),
    "vllm:iteration_tokens_total_count": (Family("steps", counter=True),),
    "vllm:spec_decode_num_drafts_total": (Family("drafts", counter=True),),
    "vllm:spec_decode_num_draft_tokens_total": (Family("draft_tokens", counter=True),),
    "vllm:spec_decode_num_accepted_tokens_total": (Family("accepted_tokens", counter=True),),
    **_histogram("vllm:time_to_first_token_seconds", "ttft", "seconds"),
    **_histogram("vllm:e2e_request_latency_seconds", "latency", "seconds"),
    **_histogram("vllm:inter_token_latency_seconds", "itl", "seconds"),
    **_histogram("vllm:time_per_output_token_seconds", "itl", "seconds"),  # its name up to 0.10
    **_histogram("vllm:request_time_per_output_token_seconds", "tpot", "seconds"),
    **_histogram("vllm:request_queue_time_seconds", "queue", "seconds"),
    **_histogram("vllm:request_prompt_tokens", "input_length", "tokens"),
    **_histogram("vllm:request_generation_tokens", "output_length", "tokens"),
}


def page_lines() -> PageLines:
    """For the pages of one server that is read again and again."""
    return PageLines(FAMILIES, RANK_LABELS, (CONFIG,))


def read_metrics(page: bytes | str, lines: PageLines | None = None) -> Page:
    """Returns a scrape of vLLM's /metrics in headrace's words; `seen` is 0 where it is none.

    Args:
        lines: of this server, where it is read again and again, by `page_lines`.
    """
    if lines is not None and isinstance(page, bytes):
        found, configured = lines.read(page)
    else:
        read = list(samples(page, {**FAMILIES, CONFIG: None}))
        configured = [sample for sample in read if sample[0] == CONFIG]
        found = add_up((sample for sample in read if sample[0] != CONFIG), FAMILIES, RANK_LABELS)
    counters, gauges = found.counters, found.gauges
    hits = counters.pop("hit_tokens", None)
    if hits is not None:
        counters["cached_tokens"] = hits  # the pair of queried_tokens
        found.names["cached_tokens"] = found.names["hit_tokens"]
    if gauges.get("cache_hit_rate", 0.0) < 0:
        del gauges["cache_hit_rate"]
    engines = 0
    for _, labels, _ in configured:
        engines += 1
        found.settings.update({key: labels[key][:64] for key in ALLOWED if labels.get(key, "None") != "None"})
    _sizes(found, engines)
    return found


def _sizes(found: Page, engines: int) -> None:
    """The pool's blocks, and its tokens where they mean tokens."""
    blocks = _number(found.settings, "num_gpu_blocks")
    block = _number(found.settings, "effective_attention_block_size") or _number(found.settings, "block_size")
    if not blocks or not block:
        return
    found.gauges["pool_blocks"] = blocks * engines
    found.gauges["attention_block_tokens"] = block
    tokens = _number(found.settings, "kv_cache_size_tokens")
    hybrid = block > _LARGEST_PLAIN_BLOCK or (
        tokens is not None and abs(tokens - blocks * block) > 0.02 * tokens
    )
    if hybrid:
        found.notes.append(
            "the pool's size in tokens is not told: blocks hold recurrent state or windowed layers too."
        )
    else:
        found.gauges["kv_capacity_tokens"] = blocks * block * engines
    for word in ("pool_blocks", "attention_block_tokens", "kv_capacity_tokens"):
        if word in found.gauges:
            found.names[word] = CONFIG


def _number(settings: Mapping[str, str], name: str) -> float | None:
    text = settings.get(name, "")
    return float(text) if text.replace(".", "", 1).isascii() and text.replace(".", "", 1).isdigit() else None
