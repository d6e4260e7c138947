"""llama.cpp's metric families, and what they mean. Read: the page of a server of 2026.

Token counters grow when a request ends, not while it runs; `n_decode_total` and the mean of busy slots grow
with every forward pass, prompts' included. The cap is the number of slots, of /props.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engines.metrics import Family, Page, read_page

FAMILIES: Mapping[str, tuple[Family, ...]] = {
    "llamacpp:requests_processing": (Family("running"),),
    "llamacpp:requests_deferred": (Family("queued"),),
    "llamacpp:kv_cache_usage_ratio": (Family("kv_usage", "mean"),),  # up to mid 2025
    "llamacpp:kv_cache_tokens": (Family("kv_used_tokens"),),
    "llamacpp:n_busy_slots_per_decode": (Family("busy_slots", "mean"),),
    "llamacpp:tokens_predicted_total": (Family("finished_output_tokens", counter=True),),
    "llamacpp:prompt_tokens_total": (Family("prefill_tokens", counter=True),),
    "llamacpp:prompt_tokens_cached_total": (Family("cached_tokens", counter=True),),
    "llamacpp:prompt_seconds_total": (Family("prefill_seconds", counter=True),),
    "llamacpp:n_decode_total": (Family("steps", counter=True),),
    "llamacpp:spec_decode_num_drafts_total": (Family("drafts", counter=True),),
    "llamacpp:spec_decode_num_draft_tokens_total": (Family("draft_tokens", counter=True),),
    "llamacpp:spec_decode_num_accepted_tokens_total": (Family("accepted_tokens", counter=True),),
}


def read_metrics(page: bytes | str) -> Page:
    """Returns a scrape of llama.cpp's /metrics in headrace's words; `seen` is 0 where it is none."""
    found = read_page(page, FAMILIES, ("rank",))
    mean = found.gauges.pop("busy_slots", None)
    if mean is not None and "steps" in found.counters:
        found.counters["busy_slots_steps"] = mean * found.counters["steps"]
        found.names["busy_slots_steps"] = "llamacpp:n_busy_slots_per_decode"
    return found
