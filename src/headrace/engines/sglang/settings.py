"""From a launch line to what SGLang runs with: defaults, forced values, and what it refuses, by version.

The order follows the engine's own (`server_args.py::__post_init__`): memory-dependent defaults, what the
architecture forces, attention back ends and page sizes, data parallelism, pipeline, speculation.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engines.plan import PlanInputs
from headrace.engines.settings import EngineSettings, Resolver
from headrace.engines.sglang import attention, states
from headrace.engines.sglang.compressed import WINDOW_RATIO, is_compressed
from headrace.engines.sglang.fraction import default_fraction
from headrace.engines.sglang.rules import (
    TABLE,
    TEXT_ONLY_BY_DEFAULT,
    WINDOW_POOL_ARCHITECTURES,
    architecture_of,
)
from headrace.engines.versions import Version
from headrace.quantities import Origin

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
    attention.kv_dtype(run, inputs)
    states.state_strategy(run, inputs, environment)
    attention.page_size(run, inputs)
    if run["dp_size"] == 1 and run["attn_dp_size"] == 1:
        run.set("enable_dp_attention", False, Origin.DERIVED, "one data-parallel rank")
    if run["pp_size"] > 1 and not run["disable_overlap_schedule"]:
        run.set("disable_overlap_schedule", True, Origin.DERIVED, "pipeline parallelism has no overlap")
    _speculation(run, inputs, environment)
    states.slots_per_request(run, inputs, environment)
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
    compressed = is_compressed(inputs.model)
    ratio = WINDOW_RATIO if compressed else 0.8
    run.number("swa_full_tokens_ratio", ratio, f"default {ratio} (server_args.py)", whole=False)
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
        served = inputs.model.is_multimodal or architecture_of(inputs.model).endswith(
            "ForConditionalGeneration"
        )
        run.set("multimodal", served, Origin.CONFIGURED, "the model's architecture")
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


def _speculation(run: Resolver, inputs: PlanInputs, environment: Mapping[str, str]) -> None:
    """`_handle_speculative_decoding`: draft tokens, the running default of 48, the overlap."""
    version = inputs.rules.version
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
        v2 = environment.get("SGLANG_ENABLE_SPEC_V2")
        on_by_default = version >= Version(0, 5, 11)  # the variable's default; gone by 0.5.14
        v2_on = on_by_default if v2 is None else v2.lower() in ("1", "true", "yes", "y")
        if version < Version(0, 5, 14) and ((top_k or 1) > 1 or not v2_on):
            overlap_off = "speculative decoding of the first generation"
    run.set("draft_tokens", int(drafts or 0), Origin.DERIVED, "the speculative flags or their defaults")
    if overlap_off and not run["disable_overlap_schedule"]:
        run.set("disable_overlap_schedule", True, Origin.DERIVED, overlap_off)
