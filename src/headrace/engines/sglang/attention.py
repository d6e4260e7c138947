"""SGLang's KV dtype, attention back end and page size, as they depend on model and GPU.

`server_args.py::_handle_model_specific_adjustments`, `_get_default_attn_backend`,
`_handle_attention_backend_compatibility`, `_handle_page_size`; from 0.5.15 the same in
`arg_groups/overrides.py`.
"""

from __future__ import annotations

from headrace.engines.plan import PlanInputs
from headrace.engines.settings import Resolver
from headrace.engines.sglang.compressed import PAGE_TOKENS, is_compressed
from headrace.engines.sglang.rules import DEEPSEEK_FAMILY, architecture_of, supports_extra_buffer
from headrace.engines.versions import Version
from headrace.quantities import Origin

_KV_DTYPES = ("auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16", "fp4_e2m1", "mxfp8", "nvfp4", "fp8")


def kv_dtype(run: Resolver, inputs: PlanInputs) -> None:
    model, capability = inputs.model, inputs.device.compute_capability or 0.0
    version = inputs.rules.version
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
    if is_compressed(model):
        run.set("kv_cache_dtype", "fp8_e4m3", Origin.DEFAULT, "DeepSeek V4's pools")
        if version > Version(0, 5, 12):
            run.warn(f"DeepSeek V4's pools are priced by the rules of 0.5.12; {version} may differ.")
    run.set("indexed", indexed, Origin.DERIVED, "the architecture has an indexer")
    # nsa_… up to 0.5.12, dsa_… from 0.5.13: TensorRT-LLM's kernels read a plain row, the others scales
    # beside it
    sparse = [
        run.word(f"{kind}_{stage}_backend", None)
        for kind in ("nsa", "dsa")
        for stage in ("prefill", "decode")
    ]
    default_sparse = "trtllm" if capability >= 10 else "flashmla_kv"
    glm = architecture_of(model) == "GlmMoeDsaForCausalLM"
    if glm and 12.0 <= capability < 13.0 and version >= Version(0, 5, 17):
        default_sparse = "flashinfer_sparse_mla"
    chosen_sparse = set(filter(None, sparse)) or {default_sparse}
    if indexed and run["kv_cache_dtype"] not in ("bf16", "bfloat16", "fp8_e4m3"):
        run.refuse(
            f"--kv-cache-dtype {run['kv_cache_dtype']} with sparse attention is refused at start. "
            "Take bfloat16 or fp8_e4m3."
        )
    run.set("sparse_row_is_plain", "trtllm" in chosen_sparse, Origin.DERIVED, "the sparse attention back end")


def page_size(run: Resolver, inputs: PlanInputs) -> None:
    """Page size and attention back end: `_handle_attention_backend_compatibility`, `_handle_page_size`."""
    model, version = inputs.model, inputs.rules.version
    capability = inputs.device.compute_capability or 0.0
    datacentre_blackwell = 10.0 <= capability < 12.0
    page = run.number("page_size", None)
    if "page_size_forced" in run.values:
        page = 1
        run.set("page_size", 1, Origin.DERIVED, run.values.pop("page_size_forced").source)
    if is_compressed(model):
        page = PAGE_TOKENS
        run.set("page_size", page, Origin.DERIVED, "DeepSeek V4's pools")
        run.set("attention_backend", "dsv4", Origin.DERIVED, "DeepSeek V4")
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
    if "trtllm_mla" in used and run["kv_cache_dtype"] not in (
        "fp8_e4m3",
        "fp4_e2m1",
        "bf16",
        "bfloat16",
        "auto",
    ):
        run.refuse(
            f"--kv-cache-dtype {run['kv_cache_dtype']} does not go with trtllm_mla, the attention back "
            "end on this "
            "GPU: the server refuses to start. Take fp8_e4m3, or --attention-backend triton."
        )
    if (
        version >= Version(0, 5, 14)
        and model.is_hybrid
        and not run["disable_radix_cache"]
        and run["mamba_radix_cache_strategy"] == "no_buffer"
        and backend == "trtllm_mha"
    ):
        run.refuse(
            "no_buffer does not go with trtllm_mha, the attention back end on this GPU: the server "
            "refuses to start. "
            "Take --attention-backend triton, extra_buffer, or --disable-radix-cache."
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
            kimi = architecture_of(model).startswith("Kimi") and version >= Version(0, 5, 14)
            return "trtllm_mla" if kimi or architecture_of(model) in DEEPSEEK_FAMILY else "flashinfer"
        return "triton"
    if architecture_of(model).startswith("Gemma4"):
        return "trtllm_mha" if datacentre_blackwell and version >= Version(0, 5, 13) else "triton"
    if architecture_of(model).startswith("MiMoV2") and datacentre_blackwell and version >= Version(0, 5, 22):
        return "fa4"
    if model.is_hybrid and datacentre_blackwell and version >= Version(0, 5, 14):
        return _hybrid_on_blackwell(run, architecture_of(model))
    if model.is_hybrid and datacentre_blackwell:
        radix = not run["disable_radix_cache"]
        buffers = str(run["mamba_radix_cache_strategy"]).startswith("extra_buffer")
        if not supports_extra_buffer(architecture_of(model), version):
            return "flashinfer" if architecture_of(model).startswith("NemotronH") else "triton"
        if not _takes_trtllm(run) or (radix and not buffers and run["speculative_algorithm"] is None):
            return "triton"
        return "trtllm_mha"
    if hopper:
        return "fa3"
    if datacentre_blackwell and _takes_trtllm(run):
        return "trtllm_mha"
    return "flashinfer"


def _hybrid_on_blackwell(run: Resolver, architecture: str) -> str:
    """From 0.5.14, by architecture (`arg_groups/model_overrides/` of 0.5.23)."""
    if architecture.startswith("NemotronH"):
        return "trtllm_mha"
    if architecture.startswith("Granite"):
        return "flashinfer"
    if architecture.startswith("FalconH1"):
        return "triton"
    # the GDN models look at the strategy as it was written: `auto` is not extra_buffer yet
    written = run.given.get("mamba_radix_cache_strategy", ("", ()))[1]
    buffers = bool(written) and written[0].startswith("extra_buffer")
    return "trtllm_mha" if _takes_trtllm(run) and (buffers or run["disable_radix_cache"]) else "triton"


def _takes_trtllm(run: Resolver) -> bool:
    """TensorRT-LLM's kernels are the default without drafts, or with --speculative-eagle-topk 1 written
    down.
    """
    if run["speculative_algorithm"] is None:
        return True
    return run.given.get("speculative_eagle_topk", ("", ()))[1] == ("1",)
