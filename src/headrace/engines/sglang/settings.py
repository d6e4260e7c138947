"""From a launch line to what SGLang runs with: defaults, forced values, and what it refuses, by version.

The order follows the engine's own (`server_args.py::__post_init__`): memory-dependent defaults, what the
architecture forces, attention back ends and page sizes, data parallelism, pipeline, speculation.
"""

from __future__ import annotations

from headrace.engines.plan import PlanInputs
from headrace.engines.settings import EngineSettings, Resolver
from headrace.engines.sglang.fraction import default_fraction
from headrace.engines.sglang.rules import (
    DEEPSEEK_FAMILY,
    NO_STATE_CACHE_ARCHITECTURES,
    TABLE,
    TEXT_ONLY_BY_DEFAULT,
    WINDOW_POOL_ARCHITECTURES,
    MemoryRules,
    architecture_of,
    supports_extra_buffer,
)
from headrace.engines.versions import Version
from headrace.quantities import Origin

# Boot-time chunk of the linear-attention kernels, and how often states are tracked: server_args.py, 0.5.7 on.
FLA_CHUNK_TOKENS, TRACK_INTERVAL_TOKENS = 64, 256
_KV_DTYPES = ("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "fp4_e2m1", "mxfp8", "nvfp4", "fp8")
_SPECULATION = {"NEXTN": "EAGLE"}  # an alias (speculative/spec_info.py)
# Without numbers: (steps, top k, draft tokens) of auto_choose_speculative_params; Llama and Grok have a tree.
_TREE_ARCHITECTURES = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")


def resolve(inputs: PlanInputs) -> EngineSettings:
    """Returns the settings of the line on this model and device, with what the engine would say to them."""
    version = inputs.rules.version
    run = Resolver(TABLE, inputs.rules, inputs.line)
    environment = inputs.line.environment or {}
    _parallelism(run, version)
    _requests_and_pools(run, inputs)
    _speculation_words(run)
    default_fraction(run, inputs)
    _kv_dtype_and_attention(run, inputs)
    _state_strategy(run, inputs, environment)
    _page_size(run, inputs)
    if run["dp_size"] == 1 and run["attn_dp_size"] == 1:
        run.set("enable_dp_attention", False, Origin.DERIVED, "one data-parallel rank")
    if run["pp_size"] > 1 and not run["disable_overlap_schedule"]:
        run.set("disable_overlap_schedule", True, Origin.DERIVED, "pipeline parallelism has no overlap")
    _speculation(run, inputs, environment)
    _validate_slots(run, inputs, environment)
    if inputs.line.loose:
        run.note(f"not read as flags: {' '.join(inputs.line.loose)[:120]}")
    return run.result("sglang")


def _parallelism(run: Resolver, version: Version) -> None:
    tp = run.number("tp_size", 1) or 1
    run.number("pp_size", 1)
    dp = run.number("dp_size", 1) or 1
    attention_dp = run.switch("enable_dp_attention")
    wide = run.number("attn_dp_size", None)
    ranks = int(wide) if wide else (int(dp) if attention_dp else 1)
    run.set("attn_dp_size", ranks, Origin.DERIVED, "--enable-dp-attention × --dp-size")
    if ranks > 1:
        run.set("enable_dp_attention", True, Origin.DERIVED, "more than one attention rank")
        if tp % ranks:
            run.refuse(
                f"--tp-size {tp} cannot be divided by {ranks} attention ranks: the server refuses to start. "
                "Take a --dp-size that divides it."
            )
    run.set("attn_tp_size", max(1, int(tp) // ranks), Origin.DERIVED, "tp ÷ attention data-parallel ranks")


def _requests_and_pools(run: Resolver, inputs: PlanInputs) -> None:
    run.number("max_running_requests", None, "not given: bounded by the pools alone")
    run.number("max_total_tokens", None)
    run.number("max_mamba_cache_size", None)
    run.number("mamba_full_memory_ratio", 0.9, "default 0.9 (server_args.py)", whole=False)
    run.number("swa_full_tokens_ratio", 0.8, "default 0.8 (server_args.py)", whole=False)
    run.switch("disable_hybrid_swa_memory")
    run.switch("disable_radix_cache")
    run.switch("disable_overlap_schedule")
    run.switch("disable_cuda_graph")
    run.switch("language_only")
    run.switch("language_model_only")
    asked = run.switch("enable_multimodal")
    if run["language_only"] or run["language_model_only"]:
        run.set("multimodal", False, Origin.DERIVED, "the vision tower is left out")
    elif architecture_of(inputs.model) in TEXT_ONLY_BY_DEFAULT and not asked:
        run.set("multimodal", False, Origin.DEFAULT, "text only without --enable-multimodal")
    else:
        run.set("multimodal", inputs.model.is_multimodal, Origin.CONFIGURED, "the model's architecture")
    context = inputs.model.context_tokens
    length = run.number("context_length", context, "the model's config")
    if run.is_given("context_length") and context and length and length > context:
        run.refuse(
            f"--context-length {int(length):,} is over the model's {context:,}: the server refuses to start. "
            "Lower it, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1."
        )
    windows = (
        architecture_of(inputs.model) in WINDOW_POOL_ARCHITECTURES
        and inputs.model.window_tokens is not None
        and not run["disable_hybrid_swa_memory"]
    )
    run.set("window_pool", windows, Origin.DERIVED, "the architecture's sliding windows have their own pool")


def _speculation_words(run: Resolver) -> None:
    algorithm = run.word("speculative_algorithm", None)
    if algorithm is not None:
        name = algorithm.upper()
        run.set(
            "speculative_algorithm",
            _SPECULATION.get(name, name),
            Origin.CONFIGURED,
            "--speculative-algorithm",
        )


def _kv_dtype_and_attention(run: Resolver, inputs: PlanInputs) -> None:
    model, capability = inputs.model, inputs.device.compute_capability or 0.0
    latent_family = model.is_latent and architecture_of(model) in DEEPSEEK_FAMILY
    indexed = latent_family and any(getattr(a, "index_heads", 0) for a in model.attention_layers)
    dtype = run.word("kv_cache_dtype", "auto", "default auto: the model's dtype", _KV_DTYPES)
    for name in ("attention_backend", "prefill_attention_backend", "decode_attention_backend"):
        run.word(name, None)
    if indexed and dtype == "auto":
        # server_args.py::_set_default_nsa_kv_cache_dtype
        chosen = "fp8_e4m3" if capability >= 10 else "bfloat16"
        run.set("kv_cache_dtype", chosen, Origin.DEFAULT, "DeepSeek sparse attention on this GPU")
    elif dtype == "auto" and model.quantisation.kv_dtype and model.quantisation.kv_dtype.startswith("fp8"):
        # model_runner.py::configure_kv_cache_dtype reads kv_cache_quant_algo
        run.set("kv_cache_dtype", "fp8_e4m3", Origin.DEFAULT, "the checkpoint's own KV quantisation")
    run.set("indexed", indexed, Origin.DERIVED, "the architecture has an indexer")
    # nsa_… up to 0.5.12, dsa_… from 0.5.13: TensorRT-LLM's kernels read a plain row, the others scales
    # beside it
    sparse = [
        run.word(f"{kind}_{stage}_backend", None)
        for kind in ("nsa", "dsa")
        for stage in ("prefill", "decode")
    ]
    chosen_sparse = set(filter(None, sparse)) or ({"trtllm"} if capability >= 10 else {"flashmla_kv"})
    run.set("sparse_row_is_plain", "trtllm" in chosen_sparse, Origin.DERIVED, "the sparse attention back end")


def _state_strategy(run: Resolver, inputs: PlanInputs, environment: dict[str, str] | object) -> None:
    """Strategy of the state pool, and what it does to radix cache, overlap and page size."""
    model, version = inputs.model, inputs.rules.version
    environ = environment if isinstance(environment, dict) else {}
    choices = ["auto", "no_buffer", "extra_buffer"]
    if version >= Version(0, 5, 13):
        choices.append("extra_buffer_lazy")
    strategy = run.word("mamba_radix_cache_strategy", "auto", "default auto", tuple(choices))
    if environ.get("SGLANG_MAMBA_SSM_DTYPE") and not run.is_given("mamba_ssm_dtype"):
        run.set(
            "mamba_ssm_dtype", environ["SGLANG_MAMBA_SSM_DTYPE"], Origin.CONFIGURED, "SGLANG_MAMBA_SSM_DTYPE"
        )
    else:
        # configs/mamba_utils.py::mamba2_state_dtype; granitemoehybrid.py passes no config: float32
        written = None if architecture_of(model) == "GraniteMoeHybridForCausalLM" else model.state_dtype
        source = "the checkpoint's mamba_ssm_dtype" if written else "default float32 (configs/mamba_utils.py)"
        run.word("mamba_ssm_dtype", written or "float32", source, ("float32", "bfloat16", "float16"))
    conv = environ.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16")
    source = "SGLANG_MAMBA_CONV_DTYPE" if "SGLANG_MAMBA_CONV_DTYPE" in environ else "default bfloat16"
    run.set("mamba_conv_dtype", conv, Origin.DEFAULT, source)
    if not model.is_hybrid:
        if strategy in ("extra_buffer", "extra_buffer_lazy") and version >= Version(0, 5, 20):
            run.refuse(
                f"--mamba-radix-cache-strategy {strategy} needs a recurrent state, which "
                f"{architecture_of(model)} has "
                "not: the server refuses to start. Leave it out."
            )
        return
    if version < Version(0, 5, 5):
        run.set("disable_radix_cache", True, Origin.DERIVED, "hybrid models have no radix cache before 0.5.5")
        return
    if version < Version(0, 5, 14):
        _strategy_as_written(run, inputs, strategy or "auto")
    else:
        _strategy_resolved(run, inputs, strategy or "auto")


def _strategy_as_written(run: Resolver, inputs: PlanInputs, strategy: str) -> None:
    """0.5.5 to 0.5.13: `server_args.py::_handle_mamba_radix_cache`."""
    model, version = inputs.model, inputs.rules.version
    buffers = strategy.startswith("extra_buffer")
    radix_off = bool(run["disable_radix_cache"])
    page = int(run.given["page_size"][1][0]) if _whole(run, "page_size") else None
    if architecture_of(model) in NO_STATE_CACHE_ARCHITECTURES:
        run.set(
            "disable_radix_cache", True, Origin.DERIVED, "this architecture has no radix cache of states yet"
        )
        if not radix_off:
            run.warn(
                f"the radix cache is switched off: {version} cannot cache states of {architecture_of(model)}."
            )
        radix_off, buffers = True, False
    if buffers and not supports_extra_buffer(architecture_of(model), version):
        run.refuse(
            f"extra_buffer is not supported for {architecture_of(model)} by {version}: the server "
            "refuses to start. "
            "Take no_buffer, or SGLang 0.5.14 or newer."
        )
    if strategy == "auto":
        run.set(
            "mamba_radix_cache_strategy", "no_buffer", Origin.DEFAULT, "auto means no_buffer up to 0.5.13"
        )
    if buffers:
        if radix_off:
            run.refuse(
                "extra_buffer with --disable-radix-cache is refused at start. With the radix cache off, "
                "no_buffer "
                "keeps the overlap scheduler: write --mamba-scheduler-strategy no_buffer."
            )
        _check_page(run, page)
    elif not radix_off:
        if page not in (None, 1):
            run.warn(f"--page-size {page} becomes 1: no_buffer with the radix cache on needs it.")
        run.set("page_size_forced", 1, Origin.DERIVED, "no_buffer with the radix cache on")
        if run["speculative_algorithm"] is None:
            if not run["disable_overlap_schedule"]:
                run.warn(
                    "the overlap scheduler is switched off: no_buffer with the radix cache on cannot "
                    "have it. "
                    "--disable-radix-cache keeps it."
                )
            run.set("disable_overlap_schedule", True, Origin.DERIVED, "no_buffer with the radix cache on")
        else:
            run.refuse(
                "speculative decoding with no_buffer and the radix cache on is refused at start. Take "
                "extra_buffer, "
                "or --disable-radix-cache."
            )


def _strategy_resolved(run: Resolver, inputs: PlanInputs, strategy: str) -> None:
    """0.5.14 on: `_mamba_radix_cache_resolution` with `validate_mamba_extra_buffer` and
    `validate_mamba_no_buffer`.
    """
    model, version = inputs.model, inputs.rules.version
    if run["disable_radix_cache"]:
        return  # the strategy is not looked at
    able = supports_extra_buffer(architecture_of(model), version) and (
        run.word("linear_attn_backend", "triton") == "triton"
    )
    page = int(run.given["page_size"][1][0]) if _whole(run, "page_size") else None
    if strategy == "auto":
        wanted = not run["disable_overlap_schedule"] or (page is not None and page > 1)
        strategy = "extra_buffer" if wanted and able else "no_buffer"
        reason = "auto: extra_buffer where overlap or pages are wanted and the architecture can"
        run.set("mamba_radix_cache_strategy", strategy, Origin.DEFAULT, reason)
        if strategy == "no_buffer":
            run.set("disable_overlap_schedule", True, Origin.DERIVED, "auto chose no_buffer")
    if strategy == "no_buffer":
        if page not in (None, 1):
            run.refuse(
                f"no_buffer with the radix cache on works with page size 1 only, got {page}: the server "
                "refuses to "
                "start. Leave --page-size out, or --disable-radix-cache."
            )
        if not run["disable_overlap_schedule"]:
            run.refuse(
                "no_buffer with the radix cache on needs --disable-overlap-schedule: the server refuses "
                "to start. "
                "Add it, or --disable-radix-cache, which keeps the overlap scheduler."
            )
        return
    if not able:
        run.refuse(
            f"{strategy} is not supported for {architecture_of(model)} by {version}: the server refuses "
            "to start. "
            "Take no_buffer."
        )
    if strategy == "extra_buffer_lazy":
        if run["disable_overlap_schedule"]:
            run.refuse(
                "extra_buffer_lazy needs the overlap scheduler: the server refuses to start with "
                "--disable-overlap-schedule. Take extra_buffer."
            )
        if run["speculative_algorithm"] is not None and version < Version(0, 5, 15):
            run.refuse("extra_buffer_lazy with speculative decoding is refused at start. Take extra_buffer.")
    _check_page(run, page)


def _check_page(run: Resolver, page: int | None) -> None:
    """Extra buffers: the track interval is a multiple of the page, and page and chunk divide each other."""
    if page is None:
        return
    long, short = max(FLA_CHUNK_TOKENS, page), min(FLA_CHUNK_TOKENS, page)
    if TRACK_INTERVAL_TOKENS % page or long % short:
        run.refuse(
            f"--page-size {page} does not fit extra_buffer: it must divide {TRACK_INTERVAL_TOKENS}, and "
            f"{page} and "
            f"{FLA_CHUNK_TOKENS} must divide each other. Take 16, 32 or 64."
        )


def _page_size(run: Resolver, inputs: PlanInputs) -> None:
    """Page size and attention back end: `_handle_attention_backend_compatibility`, `_handle_page_size`."""
    model, version = inputs.model, inputs.rules.version
    capability = inputs.device.compute_capability or 0.0
    datacentre_blackwell = 10.0 <= capability < 12.0
    page = run.number("page_size", None)
    if "page_size_forced" in run.values:
        page = 1
        run.set("page_size", 1, Origin.DERIVED, run.values.pop("page_size_forced").source)
    if run["indexed"]:
        page = 64
        run.set("page_size", 64, Origin.DERIVED, "DeepSeek sparse attention")
    backend = run["attention_backend"]
    if backend is None:
        backend = _default_backend(run, inputs, datacentre_blackwell)
        run.set("attention_backend", backend, Origin.DEFAULT, "chosen for this model and GPU")
    used = {backend, run["decode_attention_backend"], run["prefill_attention_backend"]}
    allowed: tuple[int, ...] = ()
    if "flashmla" in used:
        allowed = (64,)
    elif "cutlass_mla" in used:
        allowed = (128,)
    elif used & {"trtllm_mla", "tokenspeed_mla", "cutedsl_mla"}:
        allowed = (32, 64)
    elif "trtllm_mha" in used:
        allowed = (16, 32, 64, 128) if version >= Version(0, 5, 20) else (16, 32, 64)
    elif "fa4" in used and not model.is_latent and datacentre_blackwell:
        allowed = (128,)
    if allowed and page not in allowed:
        forced = 128 if allowed == (128,) else 64
        if page is not None:
            run.warn(f"--page-size {page} becomes {forced}: the attention back end needs it.")
        page = forced
        run.set(
            "page_size", forced, Origin.DERIVED, f"attention back end {', '.join(sorted(filter(None, used)))}"
        )
    if backend == "fa3" and run["kv_cache_dtype"] == "fp8_e5m2":
        run.set("attention_backend", "triton", Origin.DERIVED, "fa3 has no fp8_e5m2")
    if page is None:
        run.set("page_size", 1, Origin.DEFAULT, "default 1")


def _default_backend(run: Resolver, inputs: PlanInputs, datacentre_blackwell: bool) -> str:
    """The attention back end without a flag (`_get_default_attn_backend` and the architectures' own
    choices).
    """
    model, version = inputs.model, inputs.rules.version
    hopper = inputs.device.compute_capability == 9.0
    if model.is_latent:
        if run["indexed"]:
            return "dsa" if version >= Version(0, 5, 13) else "nsa"
        if hopper:
            return "fa3"
        if datacentre_blackwell:
            return "trtllm_mla" if architecture_of(model) in DEEPSEEK_FAMILY else "flashinfer"
        return "triton"
    if architecture_of(model).startswith("Gemma4"):
        return "triton"
    if model.is_hybrid and datacentre_blackwell:
        radix = not run["disable_radix_cache"]
        buffers = str(run["mamba_radix_cache_strategy"]).startswith("extra_buffer")
        if version < Version(0, 5, 14) and not supports_extra_buffer(architecture_of(model), version):
            return "flashinfer" if architecture_of(model).startswith("NemotronH") else "triton"
        if radix and not buffers and run["speculative_algorithm"] is None:
            return "triton"
        return "trtllm_mha"
    if hopper:
        return "fa3"
    if datacentre_blackwell:
        return "trtllm_mha"
    return "flashinfer"


def _speculation(run: Resolver, inputs: PlanInputs, environment: object) -> None:
    """`_handle_speculative_decoding`: draft tokens, the running default of 48, what it does to the overlap.
    """
    version = inputs.rules.version
    environ = environment if isinstance(environment, dict) else {}
    steps = run.number("speculative_num_steps", None)
    top_k = run.number("speculative_eagle_topk", None)
    drafts = run.number("speculative_num_draft_tokens", None)
    block = run.number("speculative_dflash_block_size", None)
    algorithm = run["speculative_algorithm"]
    if algorithm is None:
        run.set("draft_tokens", 0, Origin.DERIVED, "no speculative decoding")
        return
    if run["max_running_requests"] is None:
        run.set("max_running_requests", 48, Origin.DEFAULT, "48 with speculative decoding and no flag")
    overlap_off = ""
    if algorithm == "DFLASH":
        drafts = drafts or block or 16
        overlap_off = "DFLASH" if version < Version(0, 5, 14) else ""
    elif algorithm == "NGRAM":
        drafts = drafts or 12
        overlap_off = "NGRAM" if version < Version(0, 5, 16) else ""
    else:
        if steps is None:
            tree = architecture_of(inputs.model) in _TREE_ARCHITECTURES and algorithm != "STANDALONE"
            steps, top_k, drafts = (5, 4, 8) if tree and version < Version(0, 5, 14) else (3, 1, 4)
        if (top_k or 1) == 1:
            drafts = int(steps) + 1
        v2 = environ.get("SGLANG_ENABLE_SPEC_V2")
        on_by_default = version >= Version(0, 5, 11)  # the variable's default; gone by 0.5.14
        v2_on = on_by_default if v2 is None else v2.lower() in ("1", "true", "yes", "y")
        if version < Version(0, 5, 14) and ((top_k or 1) > 1 or not v2_on):
            overlap_off = "speculative decoding of the first generation"
    run.set("draft_tokens", int(drafts or 0), Origin.DERIVED, "the speculative flags or their defaults")
    if overlap_off and not run["disable_overlap_schedule"]:
        run.set("disable_overlap_schedule", True, Origin.DERIVED, overlap_off)


def _validate_slots(run: Resolver, inputs: PlanInputs, environment: object) -> None:
    """S, the slots reserved per running request, where the model has a state."""
    if not inputs.model.is_hybrid:
        return
    environ = environment if isinstance(environment, dict) else {}
    strategy = str(run["mamba_radix_cache_strategy"])
    skip = environ.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "0").lower() in ("1", "true", "yes", "y")
    radix = not run["disable_radix_cache"]
    slots = MemoryRules(inputs.rules.version).slots_per_request(
        radix=radix,
        extra_buffer=strategy.startswith("extra_buffer"),
        lazy=strategy == "extra_buffer_lazy",
        overlap=not run["disable_overlap_schedule"],
        drafts=run["speculative_algorithm"] is not None,
        skip_lock=skip,
    )
    if not radix:
        why = "radix cache off: one working state"
    elif not strategy.startswith("extra_buffer"):
        why = "no_buffer: working state, tree checkpoint, fork"
    else:
        buffers = slots - 3
        why = f"{strategy}: 3 + {buffers} track buffer{'s' if buffers != 1 else ''}"
    run.set("slots_per_request", slots, Origin.DERIVED, why)


def _whole(run: Resolver, name: str) -> bool:
    words = run.given.get(name, ("", ()))[1]
    return bool(words) and words[0].lstrip("-").isdigit()
