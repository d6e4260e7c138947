"""SGLang's metric families by version, and what they mean. Names and versions: 0.4.0 to 0.5.23 as read.

`token_usage` is the KV pool's up to 0.5.9; from 0.5.10 it is the fullest of all pools, the state pool's
included, and `full_token_usage` is the KV pool's. Decode gauges move once per --decode-log-interval (40)
steps and keep their last value when nothing runs. The effective cap is not among the metrics.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engines.metrics import Family, Page, read_page
from headrace.engines.page_lines import PageLines
from headrace.engines.versions import Version

# attn_tp_rank 0 alone reports, unless --enable-metrics-for-all-schedulers: then the others say it again
RANK_LABELS = ("dp_rank", "pp_rank", "tp_rank", "moe_ep_rank")
SPLIT_POOLS = Version(0, 5, 10)  # from here on token_usage is a maximum over pools


def _histogram(name: str, word: str, unit: str) -> dict[str, tuple[Family, ...]]:
    return {
        f"{name}_sum": (Family(f"{word}_{unit}", counter=True),),
        f"{name}_count": (Family(f"{word}_count", counter=True),),
    }


FAMILIES: Mapping[str, tuple[Family, ...]] = {
    "sglang:num_running_reqs": (Family("running"),),
    "sglang:num_queue_reqs": (Family("queued"),),
    "sglang:full_token_usage": (Family("kv_usage", "mean"),),
    "sglang:token_usage": (Family("fullest_pool_usage", "mean"),),
    "sglang:swa_token_usage": (Family("swa_usage", "mean"),),
    "sglang:mamba_usage": (Family("state_usage", "mean"),),
    "sglang:kv_used_tokens": (Family("kv_used_tokens"),),
    "sglang:num_used_tokens": (Family("used_tokens"),),
    "sglang:decode_sum_seq_lens": (Family("decode_context_tokens"),),
    "sglang:mamba_used_tokens": (Family("state_used_slots"),),
    "sglang:mamba_evictable_tokens": (Family("state_evictable_slots"),),
    "sglang:mamba_available_tokens": (Family("state_free_slots"),),
    "sglang:max_total_num_tokens": (Family("kv_capacity_tokens"),),
    "sglang:max_total_num_tokens_swa": (Family("swa_capacity_tokens"),),
    "sglang:max_running_requests": (Family("cap"),),  # 2024 only
    "sglang:context_len": (Family("max_context", "each"),),
    "sglang:gen_throughput": (Family("output_tokens_per_s"),),
    "sglang:cache_hit_rate": (Family("cache_hit_rate", "mean"),),
    "sglang:spec_accept_length": (Family("accept_length", "mean"),),
    "sglang:spec_accept_rate": (Family("accept_rate", "mean"),),
    "sglang:is_cuda_graph": (Family("cuda_graph", "mean"),),
    "sglang:hicache_host_used_tokens": (Family("host_kv_used_tokens"),),
    "sglang:hicache_host_total_tokens": (Family("host_kv_capacity_tokens"),),
    "sglang:hicache_host_mamba_used_states": (Family("host_state_used_slots"),),
    "sglang:hicache_host_mamba_total_states": (Family("host_state_slots"),),
    "sglang:num_decode_prealloc_queue_reqs": (Family("prealloc"),),
    "sglang:realtime_tokens_total": (
        Family("output_tokens", counter=True, where={"mode": "decode"}),
        Family("prefill_tokens", counter=True, where={"mode": "prefill_compute"}),
        Family("cached_tokens", counter=True, where={"mode": "prefill_cache"}),
    ),
    "sglang:generation_tokens_total": (Family("finished_output_tokens", counter=True),),
    "sglang:num_requests_total": (Family("finished_requests", counter=True),),
    "sglang:num_retracted_requests_total": (Family("retracted_requests", counter=True),),
    "sglang:cuda_graph_passes_total": (
        Family("decode_steps", counter=True, where={"mode": "decode"}),
        Family("decode_graph_steps", counter=True, where={"mode": "decode_cuda_graph"}),
    ),
    "sglang:scheduler_idle_seconds_total": (Family("idle_seconds", counter=True),),
    **_histogram("sglang:time_to_first_token_seconds", "ttft", "seconds"),
    **_histogram("sglang:e2e_request_latency_seconds", "latency", "seconds"),
    **_histogram("sglang:inter_token_latency_seconds", "itl", "seconds"),
    **_histogram("sglang:time_per_output_token_seconds", "tpot", "seconds"),  # up to 0.4
    **_histogram("sglang:request_time_per_output_token_seconds", "tpot", "seconds"),  # 0.5.23
    **_histogram("sglang:queue_time_seconds", "queue", "seconds"),
    **_histogram("sglang:prompt_tokens_histogram", "input_length", "tokens"),
    **_histogram("sglang:generation_tokens_histogram", "output_length", "tokens"),
}


def read_metrics(page: bytes | str, version: str | None = None, lines: PageLines | None = None) -> Page:
    """Returns a scrape of SGLang's /metrics in headrace's words; `seen` is 0 where it is none.

    Args:
        lines: of this server, where it is read again and again, by `page_lines`.
    """
    if lines is not None and isinstance(page, bytes):
        found, _ = lines.read(page)
    else:
        found = read_page(page, FAMILIES, RANK_LABELS)
    return settle(found, version)


def page_lines() -> PageLines:
    """For the pages of one server that is read again and again."""
    return PageLines(FAMILIES, RANK_LABELS)


def settle(found: Page, version: str | None = None) -> Page:
    """Returns the page with what its gauges mean together: which pool a usage is of, sizes from parts."""
    gauges = found.gauges
    fullest = gauges.pop("fullest_pool_usage", None)
    used = gauges.pop("used_tokens", None)
    if fullest is not None and "kv_usage" not in gauges:
        told = Version.parse(version) if version else None
        if told is None or told < SPLIT_POOLS:
            _put(found, "kv_usage", fullest, "fullest_pool_usage")
            if told is None:
                found.notes.append(
                    "token_usage is read as the KV pool's, as up to 0.5.9: no version was told."
                )
        else:
            found.notes.append(
                "token_usage is the fullest pool's from 0.5.10 on; the KV pool's own is missing."
            )
    if used is not None and "kv_used_tokens" not in gauges and "state_usage" not in gauges:
        _put(found, "kv_used_tokens", used, "used_tokens")
    _pool(gauges, found, "state_slots", ("state_used_slots", "state_evictable_slots", "state_free_slots"))
    if not gauges.get("state_slots") and not gauges.get("state_usage"):
        for word in ("state_usage", "state_used_slots", "state_slots"):
            gauges.pop(word, None)  # a model without recurrent state shows zeros
    if not gauges.get("swa_usage") and not gauges.get("swa_capacity_tokens"):
        gauges.pop("swa_usage", None)
        gauges.pop("swa_capacity_tokens", None)
    for used_word, size_word, word in (
        ("host_kv_used_tokens", "host_kv_capacity_tokens", "host_kv_usage"),
        ("host_state_used_slots", "host_state_slots", "host_state_usage"),
    ):
        used, size = gauges.pop(used_word, None), gauges.get(size_word)
        if used is not None and size:
            _put(found, word, used / size, size_word)
        elif not size:
            gauges.pop(size_word, None)
    for word in ("accept_length", "accept_rate"):
        if not gauges.get("accept_length"):
            gauges.pop(word, None)  # 0 without speculation
    found.by_rank = {word: ranks for word, ranks in found.by_rank.items() if word in gauges}
    return found


def _pool(gauges: dict[str, float], found: Page, word: str, parts: tuple[str, ...]) -> None:
    """A pool's size from its parts: held, kept for reuse, free."""
    values = [gauges.get(part) for part in parts]
    for part in parts[1:]:
        gauges.pop(part, None)
    if all(value is not None for value in values):
        _put(found, word, sum(value or 0.0 for value in values), parts[0])


def _put(found: Page, word: str, value: float, of: str) -> None:
    found.gauges[word] = value
    found.names[word] = found.names.get(of, of)
    if of in found.by_rank and word == "kv_usage":
        found.by_rank[word] = found.by_rank[of]
