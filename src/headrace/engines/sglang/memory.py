"""SGLang's division of a GPU's memory, step by step as the engine does it, by version.

`rest = free after weights − free before × (1 − mem_fraction_static)`; the state pool takes its slots from
it, drafts their intermediate states, KV the remainder, in whole tokens and pages; the running cap is the
least of several terms. The floating-point order is the engine's own: sizes must agree to the token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.engines.plan import GIB, PlanInputs
from headrace.engines.settings import EngineSettings
from headrace.engines.sglang.compressed import bytes_per_full_token, is_compressed
from headrace.engines.sglang.rules import MemoryRules, architecture_of
from headrace.engines.versions import Version
from headrace.models.layers import LatentAttention

# Bytes of one element; an FP4 element is half a byte, plus a scale of one byte for 16 elements.
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_KV_BYTES = {"fp8_e4m3": 1, "fp8_e5m2": 1, "fp8": 1, "mxfp8": 1, "fp4_e2m1": 1, "nvfp4": 1}
_SCALE_BLOCK = {"fp4_e2m1": 16, "nvfp4": 16, "mxfp8": 32}
# memory_pool.py::NSATokenToKVPool.quant_block_size; scales are 4 bytes
_INDEX_BLOCK, _SCALE_BYTES = 128, 4
_EVICTION_INTERVAL = 128  # SGLANG_SWA_EVICTION_INTERVAL, environ.py


@dataclass(slots=True)
class Sizes:
    """What the engine computes, per GPU; bytes and counts as plain numbers."""

    rest_bytes: float = 0.0  # what the static part has left after the weights
    state_bytes: int = 0  # one slot
    slots: int | None = None
    slots_per_request: int | None = None
    state_pool_bytes: float = 0.0  # with the padding row where it is paid for
    draft_bytes: float = 0.0  # speculative intermediate states
    cell_bytes: float = 0.0  # KV bytes per token; with a window pool, of both pools
    kv_tokens: int = 0  # with a window pool, of the full pool
    window_tokens: int | None = None
    full_token_bytes: float = 0.0
    window_token_bytes: float = 0.0
    cap: int = 0
    terms: dict[str, int] = field(default_factory=dict)  # every bound on running, by name
    failures: list[str] = field(default_factory=list)


def size(inputs: PlanInputs, settings: EngineSettings, free_bytes: float, weight_bytes: float) -> Sizes:
    """Returns the sizes for one GPU. A size that cannot be is a failure in words, and sizing goes on from
    0.
    """
    rules = MemoryRules(inputs.rules.version)
    sizes = Sizes()
    fraction = float(settings["mem_fraction_static"] or 0.0)
    before = free_bytes / GIB
    after = before - weight_bytes / GIB
    rest = after - before * (1 - fraction)
    if settings["multimodal"]:
        rest -= rules.multimodal_reserve_bytes / GIB
    sizes.rest_bytes = rest * GIB
    stages = _stages(inputs, int(settings["pp_size"] or 1))
    if inputs.model.is_hybrid:
        rest = _state_pool(inputs, settings, rules, rest, stages, sizes)
    if weight_bytes >= free_bytes and not sizes.failures:
        sizes.failures.append(
            f"the weights take {weight_bytes / GIB:,.1f} GiB per GPU of {before:,.1f} free: the server "
            "refuses to start. Use more GPUs (--tp), or fewer bits."
        )
    if rest <= 0 and rules.caps_flag_by_tokens and not sizes.failures:
        sizes.failures.append(
            f"the weights leave nothing for KV at --mem-fraction-static {fraction:g}: the server "
            f"refuses to start. Raise it above {1 - after / before:.3f}, or use more GPUs."
        )
    available = int(rest * GIB)
    sizes.kv_tokens = _tokens(inputs, settings, available, stages, sizes)
    if sizes.kv_tokens <= 0:
        if not sizes.failures:
            sizes.failures.append(
                f"no KV tokens fit at --mem-fraction-static {fraction:g}: the server refuses to start "
                '("Not enough memory"). Raise the fraction, lower the state pool, or use more GPUs.'
            )
        sizes.kv_tokens = 0
    _running(inputs, settings, rules, sizes)
    return sizes


def _stages(inputs: PlanInputs, pp: int) -> list[slice]:
    """The layers of each pipeline stage; the last ones take the remainder
    (distributed/utils.py::get_pp_indices).
    """
    layers = len(inputs.model.layers)
    base, extra = divmod(layers, pp)
    stages, start = [], 0
    for rank in range(pp):
        end = start + base + (1 if rank >= pp - extra else 0)
        stages.append(slice(start, end))
        start = end
    return stages


# ── state pool
# ────────────────────────────────────────────────────────────────────────────────────────────────
def _state_pool(
    inputs: PlanInputs,
    settings: EngineSettings,
    rules: MemoryRules,
    rest: float,
    stages: list[slice],
    sizes: Sizes,
) -> float:
    """Sets slots and state bytes; returns the GiB left for KV (`handle_max_mamba_cache`)."""
    ssm = _STATE_BYTES.get(str(settings["mamba_ssm_dtype"]), 4)
    conv = _STATE_BYTES.get(str(settings["mamba_conv_dtype"]), 2)
    tp = int(settings["attn_tp_size"] or 1)
    whole = int(inputs.model.state_bytes_per_request(ssm, conv, tp).value)
    if rules.scales_state_by_stage and len(stages) > 1:
        # the share of the stage with most state layers, so that every stage sizes alike
        model = inputs.model
        state_layers = [sum(layer.recurrent is not None for layer in model.layers[s]) for s in stages]
        state = int(whole * (max(state_layers) / max(sum(state_layers), 1)))
    else:
        state = whole
    sizes.state_bytes = state
    per_request = int(settings["slots_per_request"] or 1)
    sizes.slots_per_request = per_request
    ranks = int(settings["attn_dp_size"] or 1)
    flag, running = settings["max_mamba_cache_size"], settings["max_running_requests"]
    running_here = int(running) // ranks if running is not None else None
    if running_here is not None and inputs.rules.version >= Version(0, 5, 23):
        running_here = max(1, running_here)
    drafts = int(settings["draft_tokens"] or 0)
    radix = not settings["disable_radix_cache"]
    padding = 1 if rules.budgets_padding_slot else 0
    ratio = float(settings["mamba_full_memory_ratio"] or 0.9)

    if not rules.splits_by_ratio or (
        not rules.reserves_drafts_by_request and not rules.solves_drafts_jointly
    ):
        slots, rest = _early_slots(rules, rest, state, flag, running, ranks, drafts, radix, ratio)
        sizes.slots = slots
        sizes.state_pool_bytes = slots * state
        sizes.draft_bytes = slots * state * drafts
        return rest
    if rules.reserves_drafts_by_request and drafts and running is not None:
        reserved = (
            state * (int(running) if rules.version < Version(0, 5, 8) else int(running) // ranks) * drafts
        )
        if rules.version >= Version(0, 5, 8) or (radix and flag is None):
            sizes.draft_bytes = float(reserved)
            rest = rest - (reserved / GIB)
    if flag is not None:
        slots = int(flag) // ranks
        if rules.solves_drafts_jointly and drafts and running_here is not None:
            capped = min(running_here, slots // per_request)
            sizes.draft_bytes = float(state * (capped + padding) * drafts)
            rest = rest - (sizes.draft_bytes / GIB)
    elif not radix and running_here is not None:
        slots = running_here
        if rules.solves_drafts_jointly and drafts:
            sizes.draft_bytes = float(state * (slots + padding) * drafts)
            rest = rest - (sizes.draft_bytes / GIB)
    elif not radix and rules.radix_off_default_slots is not None:
        slots = rules.radix_off_default_slots // ranks
    else:
        budget = rest * ratio / (1 + ratio) * GIB
        if rules.solves_drafts_jointly and drafts and running_here is not None:
            unused = state * (1 + drafts) if padding else 0
            slots = int((budget - unused) // (state * (1 + drafts / per_request)))
            capped = min(running_here, slots // per_request)
            sizes.draft_bytes = float(state * (capped + padding) * drafts)
            rest = rest - (sizes.draft_bytes / GIB)
        else:
            slots = int((budget - (state if padding else 0)) // state)
    sizes.slots = slots
    if slots <= 0:
        sizes.failures.append(
            f"no state slot fits: {state / (1 << 20):.1f} MiB each, {slots} computed; the server "
            "refuses to start. "
            "Raise --mem-fraction-static, or lower --max-running-requests or the draft tokens."
        )
    sizes.state_pool_bytes = float((slots + padding) * state)
    return rest - sizes.state_pool_bytes / GIB


def _early_slots(
    rules: MemoryRules,
    rest: float,
    state: int,
    flag: object,
    running: object,
    ranks: int,
    drafts: int,
    radix: bool,
    ratio: float,
) -> tuple[int, float]:
    """0.5.3: a fixed number of slots. 0.5.5 and 0.5.6: a share, and draft states within each slot's price."""
    if not rules.splits_by_ratio:
        slots = int(str(flag)) if flag is not None else int(str(running)) if running is not None else 512
        slots //= ranks
        return slots, rest - slots * state / GIB
    price = 1 + drafts
    if not radix:
        slots = int(str(flag)) if flag is not None else int(str(running)) if running is not None else 512
    else:
        slots = int(rest * ratio / (1 + ratio) * GIB // state // price)  # overwrites --max-mamba-cache-size
    slots //= ranks
    return slots, rest - slots * state * price / GIB


# ── KV
# ────────────────────────────────────────────────────────────────────────────────────────────────────────
def _tokens(
    inputs: PlanInputs, settings: EngineSettings, available: int, stages: list[slice], sizes: Sizes
) -> int:
    """KV tokens: the least over stages, in whole pages, not over --max-total-tokens."""
    page = int(settings["page_size"] or 1)
    limit = settings["max_total_tokens"]
    window_ratio = float(settings["swa_full_tokens_ratio"] or 0.8)
    if is_compressed(inputs.model):
        drafts = settings["speculative_algorithm"] is not None
        sizes.cell_bytes = bytes_per_full_token(inputs.model, window_ratio, drafts)
        tokens = int(available / sizes.cell_bytes) // page * page
        tokens = min(tokens, int(limit) // page * page) if limit is not None else tokens
        sizes.window_tokens = int(tokens * window_ratio) // page * page
        sizes.full_token_bytes = sizes.cell_bytes  # the window's rows are part of the price
        return tokens
    by_requests = _window_by_requests(inputs, settings, page)
    fewest: int | None = None
    for stage in stages:
        full, window = _token_bytes(inputs, settings, stage)
        if by_requests is not None and full:
            # the window pool is fixed, the full pool takes what it leaves
            cell: float = full
            tokens = int((available - by_requests * window) // full)
        elif settings["window_pool"]:
            # the mixed price is a float, as in HybridSWAPoolConfigurator; a model of windows only has no
            # ratio
            cell = full + window_ratio * window if full else window
            tokens = int(available // cell)
        else:
            cell = full
            if not cell:
                continue  # a stage without attention
            tokens = int(available // int(cell))
        if fewest is None or tokens < fewest:
            fewest, sizes.cell_bytes = tokens, cell
            sizes.full_token_bytes, sizes.window_token_bytes = full, window
    tokens = (fewest or 0) // page * page
    if limit is not None and int(limit) < tokens:
        tokens = int(limit) // page * page
    if by_requests is not None and sizes.full_token_bytes:
        limited = limit is not None and int(limit) // page * page <= tokens
        sizes.window_tokens = min(by_requests, tokens) if limited else by_requests
    elif settings["window_pool"]:
        if sizes.full_token_bytes:
            sizes.window_tokens = int(tokens * window_ratio) // page * page
        else:
            sizes.window_tokens = tokens
    return tokens


def _window_by_requests(inputs: PlanInputs, settings: EngineSettings, page: int) -> int | None:
    """Tokens of a window pool sized for the running flag, from 0.5.22 with the radix cache off.

    `pool_configurator.py::compute_swa_request_cap`: per request the window, an eviction interval for each
    draft, and pages; beside them the prefill chunks in flight.
    """
    running, chunk = settings["max_running_requests"], int(settings["chunked_prefill_size"] or 0)
    window = inputs.model.window_tokens
    rules = MemoryRules(inputs.rules.version)
    if not (settings["window_pool"] and rules.sizes_windows_by_requests and settings["disable_radix_cache"]):
        return None
    if running is None or chunk <= 0 or window is None or architecture_of(inputs.model).startswith("Llama4"):
        return None  # Llama 4 has chunks of attention, which the engine does not take for a window
    drafts = int(settings["draft_tokens"] or 0)
    trailing = window + _EVICTION_INTERVAL * max(1, drafts) + page
    decode = 2 * drafts if drafts else page
    requests = max(1, int(running) // int(settings["attn_dp_size"] or 1))
    in_flight = 1 if settings["disable_overlap_schedule"] else 2
    needed = (trailing + decode) * requests + in_flight * chunk + page
    return -(-needed // page) * page


def _token_bytes(inputs: PlanInputs, settings: EngineSettings, stage: slice) -> tuple[int, int]:
    """KV bytes of one token in the layers of a stage: (full-length layers, window layers with a pool of
    their own).
    """
    model, tp = inputs.model, int(settings["attn_tp_size"] or 1)
    dtype = str(settings["kv_cache_dtype"])
    width = _KV_BYTES.get(dtype, 2)
    full_elements = window_elements = index_bytes = 0
    layers = 0
    for layer in model.layers[stage]:
        attention = layer.attention
        if attention is None:
            continue
        layers += 1
        elements = int(attention.kv_elements_per_token(tp))
        if isinstance(attention, LatentAttention):
            scaled = MemoryRules(inputs.rules.version).prices_sparse_scales
            elements = _latent_elements(attention, settings, dtype) if scaled else elements
            index_bytes += _index_bytes(inputs, attention)
        if settings["window_pool"] and attention.window_tokens is not None:
            window_elements += elements
        else:
            full_elements += elements
    full, window = full_elements * width, window_elements * width
    if dtype in ("fp4_e2m1", "nvfp4"):
        full = full // 2 + full_elements // _SCALE_BLOCK[dtype]
        window = window // 2 + window_elements // _SCALE_BLOCK[dtype]
    elif dtype == "mxfp8":
        full += full_elements // _SCALE_BLOCK[dtype]
        window += window_elements // _SCALE_BLOCK[dtype]
    draft = _draft_layers(inputs, settings)
    if draft and layers:
        extra = int(full * draft / layers)
        if index_bytes:
            index_bytes += (
                max(_index_bytes(inputs, a) for a in model.attention_layers if isinstance(a, LatentAttention))
                * draft
            )
        full += extra
    return full + index_bytes, window


def _latent_elements(attention: LatentAttention, settings: EngineSettings, dtype: str) -> int:
    """The latent row; sparse attention in FP8 stores scales and an unquantised rope part beside it."""
    plain = attention.kv_rank + attention.rope_dim
    if not settings["indexed"] or dtype != "fp8_e4m3" or settings["sparse_row_is_plain"]:
        return plain
    return attention.kv_rank + attention.kv_rank // _INDEX_BLOCK * _SCALE_BYTES + attention.rope_dim * 2


def _index_bytes(inputs: PlanInputs, attention: LatentAttention) -> int:
    """The indexer's key of one layer, FP8 with scales; 0 where the layer keeps none."""
    own = (
        attention.index_dim + attention.index_dim // _INDEX_BLOCK * _SCALE_BYTES
        if attention.index_heads
        else 0
    )
    if own or MemoryRules(inputs.rules.version).elides_shared_indexers:
        return own
    # every layer was paid for, also those that reuse another layer's indices
    indexed = [a for a in inputs.model.attention_layers if isinstance(a, LatentAttention) and a.index_heads]
    return _index_bytes(inputs, indexed[0]) if indexed else 0


def _draft_layers(inputs: PlanInputs, settings: EngineSettings) -> int:
    """Layers that an EAGLE or MTP draft adds to the KV price, from 0.5.14.

    The engine reads `num_nextn_predict_layers`, which Qwen's configs call otherwise: there it adds none.
    """
    rules, model = MemoryRules(inputs.rules.version), inputs.model
    if not rules.counts_draft_layers or settings["speculative_algorithm"] not in (
        "EAGLE",
        "EAGLE3",
        "STANDALONE",
    ):
        return 0
    return 0 if model.model_type.startswith("qwen") else model.mtp_layers


# ── running requests
# ──────────────────────────────────────────────────────────────────────────────────────────
def _running(inputs: PlanInputs, settings: EngineSettings, rules: MemoryRules, sizes: Sizes) -> None:
    """Sets every bound on running requests and the least of them (`_resolve_max_num_reqs`)."""
    ranks = int(settings["attn_dp_size"] or 1)
    context = int(settings["context_length"] or 2048)
    estimate = max(min(int(sizes.kv_tokens / context * 512), 4096), 2048)
    flag = settings["max_running_requests"]
    terms = sizes.terms
    if flag is not None:
        terms["flag"] = int(flag) // ranks
        if inputs.rules.version >= Version(0, 5, 23):
            terms["flag"] = max(1, terms["flag"])
        if rules.caps_flag_by_estimate:
            terms["estimate"] = estimate
        if rules.caps_flag_by_tokens:
            terms["tokens"] = sizes.kv_tokens // 2
    else:
        terms["estimate"] = estimate
        terms["tokens"] = sizes.kv_tokens // 2
    if sizes.slots is not None and sizes.slots_per_request:
        terms["slots"] = max(0, sizes.slots // sizes.slots_per_request)
        if terms["slots"] <= 0 and not sizes.failures and rules.solves_drafts_jointly:
            sizes.failures.append(
                f"{sizes.slots} state slots are fewer than the {sizes.slots_per_request} one request "
                "needs: the "
                "server refuses to start. Raise --max-mamba-cache-size or --mem-fraction-static."
            )
    sizes.cap = max(0, min(terms.values()))
