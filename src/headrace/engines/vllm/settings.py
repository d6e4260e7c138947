"""From a launch line to what vLLM runs with: defaults by card and version, cache modes, speculation."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.engines.flags import FlagTable
from headrace.engines.plan import GIB, PlanInputs
from headrace.engines.settings import EngineSettings, Resolver
from headrace.engines.versions import Version
from headrace.models.layers import LayerKind
from headrace.quantities import Origin

OLDEST, NEWEST = Version(0, 20, 2), Version(0, 33, 0)  # the first and the last that flags.tsv was read from
TABLE = FlagTable("vLLM", Path(__file__).with_name("flags.tsv"), {}, underscores=True)

# Off in 0.25.1, on in 0.28.0 (config/model.py::is_prefix_caching_supported); what lies between was not read.
PREFIX_CACHING_ON_HYBRIDS = Version(0, 26, 0)
# A window keeps the tokens of all steps in flight in 0.28.0, not in 0.25.1
# (config/vllm.py::max_in_flight_tokens).
IN_FLIGHT_STEPS = Version(0, 26, 0)
# mamba_cache_mode `all` is there in 0.30.0 and gone in 0.33.0 (config/cache.py).
NO_ALL_MODE = Version(0, 31, 0)


def resolve(inputs: PlanInputs) -> EngineSettings:
    """Returns the settings of the line on this model and device, with what the engine would say to them."""
    run = Resolver(TABLE, inputs.rules, inputs.line)
    model, version = inputs.model, inputs.rules.version
    run.number("tensor_parallel_size", 1)
    run.number("pipeline_parallel_size", 1)
    run.number("data_parallel_size", 1)
    run.number("decode_context_parallel_size", 1)
    run.number("gpu_memory_utilization", 0.92, "default 0.92 (config/cache.py)", whole=False)
    fraction = run["gpu_memory_utilization"]
    if not 0 < float(fraction) <= 1:
        run.refuse(f"--gpu-memory-utilization is a fraction up to 1, got {fraction}.")
    run.number("kv_cache_memory_bytes", None)
    run.number("num_gpu_blocks_override", None)
    run.number("max_model_len", model.context_tokens, "the model's config")
    run.switch("enforce_eager")
    run.switch("disable_hybrid_kv_cache_manager")
    run.switch("language_model_only")
    multimodal = model.is_multimodal and not run["language_model_only"]
    run.set("multimodal", multimodal, Origin.CONFIGURED, "the model's architecture")
    _batch(run, inputs)
    _cache_types(run, inputs)
    _speculation(run, inputs)
    if model.is_hybrid:
        _state_cache(run, inputs, version)
    loose = [word for word in inputs.line.loose if word.lower() not in (model.name.lower(),)]
    if loose:
        run.note(f"not read as flags: {' '.join(loose)[:120]}")
    return run.result("vllm")


def _batch(run: Resolver, inputs: PlanInputs) -> None:
    """engine/arg_utils.py::get_batch_defaults, for a served API."""
    memory = inputs.device.usable_bytes.value
    name = inputs.device.name.lower()
    big_tier = inputs.rules.version >= Version(0, 33, 0)
    if big_tier and memory >= 160 * GIB:
        tokens, running = 16384, 1024
    elif memory >= 70 * GIB and "a100" not in name and not (big_tier and "gb10" in name):
        tokens, running = 8192, 1024
    else:
        tokens, running = 2048, 256
    rule = f"by the card's {memory / GIB:.0f} GiB"
    if run.word("performance_mode", None) == "throughput":
        tokens, running, rule = 2 * tokens, 2 * running, rule + ", doubled by --performance-mode throughput"
    running_flag = run.number("max_num_seqs", running, rule)
    tokens = max(tokens, int(running_flag or 0))
    batched = int(run.number("max_num_batched_tokens", tokens, rule) or 0)
    run.switch("async_scheduling", inputs.rules.version >= IN_FLIGHT_STEPS)
    steps = max(int(run["pipeline_parallel_size"]), 2 if run["async_scheduling"] else 1)
    if inputs.rules.version < IN_FLIGHT_STEPS:
        steps = 1
    run.set("in_flight_tokens", batched * steps, Origin.DERIVED, "batched tokens × steps in flight")


def _cache_types(run: Resolver, inputs: PlanInputs) -> None:
    model = inputs.model
    dtype = run.word("kv_cache_dtype", "auto", "default auto: the model's dtype") or "auto"
    indexed = any(getattr(a, "index_heads", 0) for a in model.attention_layers)
    if dtype == "auto" and model.quantisation.kv_dtype and model.quantisation.kv_dtype.startswith("fp8"):
        dtype = "fp8"
        run.set("kv_cache_dtype", dtype, Origin.DEFAULT, "the checkpoint's own KV quantisation")
    if indexed and dtype.startswith("fp8") and dtype != "fp8_ds_mla":
        run.set("kv_cache_dtype", "fp8_ds_mla", Origin.DERIVED, "sparse MLA keeps its own FP8 row")
    # FlashMLA and the sparse back ends take blocks of 64 (v1/attention/backends/mla), others 16
    run.number("block_size", 64 if model.is_latent else 16, "default by attention back end")


def _speculation(run: Resolver, inputs: PlanInputs) -> None:
    """--speculative-config is JSON; --spec-method and the like are not read before 0.33's parser."""
    drafts, layers = 0, 0
    if run.is_given("speculative_config"):
        text = " ".join(run.given["speculative_config"][1])
        try:
            config = json.loads(text)
            drafts = int(config.get("num_speculative_tokens") or 0)
            method = str(config.get("method") or "")
        except (ValueError, AttributeError, TypeError):
            run.refuse(f"--speculative-config is not the JSON object it must be: {text[:80]}")
            method = ""
        if "mtp" in method or "nextn" in method or not method:
            layers = max(1, inputs.model.mtp_layers)
        elif "eagle" in method:
            layers = 1
    run.set("draft_tokens", drafts, Origin.CONFIGURED, "--speculative-config")
    run.set("draft_layers", layers, Origin.CONFIGURED, "--speculative-config")


def _state_cache(run: Resolver, inputs: PlanInputs, version: Version) -> None:
    """model_executor/models/config.py::MambaModelConfig, and the dtypes of the state."""
    model = inputs.model
    run.switch("enable_prefix_caching", version >= PREFIX_CACHING_ON_HYBRIDS)
    mode = run.word("mamba_cache_mode", "none", "default none", ("none", "align", "all"))
    if not run["enable_prefix_caching"]:
        if mode not in ("none", None):
            run.warn("mamba_cache_mode becomes none: prefix caching is off.")
        run.set("mamba_cache_mode", "none", Origin.DERIVED, "prefix caching is off")
    elif mode == "none":
        mamba2 = any(layer.recurrent and layer.recurrent.kind is LayerKind.MAMBA2 for layer in model.layers)
        whole = version < NO_ALL_MODE and mamba2 and not run["draft_tokens"]
        run.set("mamba_cache_mode", "all" if whole else "align", Origin.DEFAULT, "prefix caching is on")
    elif mode == "all" and version >= NO_ALL_MODE:
        run.refuse("--mamba-cache-mode all is gone: the server refuses to start. Take align.")
    # NemotronHForCausalLMConfig has a default of its own; others take the model's dtype
    fallback = "float32" if model.model_type.startswith("nemotron_h") else "bfloat16"
    written = model.state_dtype or fallback
    source = "the checkpoint's mamba_ssm_dtype" if model.state_dtype else f"default for {model.model_type}"
    if run.word("mamba_ssm_cache_dtype", "auto") == "auto":
        run.set("mamba_ssm_cache_dtype", written, Origin.DEFAULT, source)
    if run.word("mamba_cache_dtype", "auto") == "auto":
        run.set("mamba_cache_dtype", "bfloat16", Origin.DEFAULT, "default auto: the model's dtype")
