"""How an SGLang server's steps run, from its memory plan: for the step model."""

from __future__ import annotations

from headrace.engines.plan import MemoryPlan
from headrace.engines.sglang.rules import TABLE
from headrace.engines.step_flags import WrittenFlags, kv_bytes, state_bytes, version_of, weights_dtype
from headrace.engines.versions import Version
from headrace.perf.options import Speculation, StepOptions

# Piecewise prefill graphs are on by default from about here, except for what `_prefill_graphs` names
# (model_executor/piecewise_cuda_graph_runner.py).
_PREFILL_GRAPHS = Version(0, 5, 10)


def step_options(plan: MemoryPlan, accept_length: float | None = None) -> StepOptions:
    """Returns the options of one scheduler's steps.

    Args:
        accept_length: tokens that a speculative step yields per request, as measured or told. Without it a
            step counts for one token, which is the least: what it costs is known, what it yields is not.
    """
    settings = plan.settings
    written = WrittenFlags(settings, TABLE)
    drafts = int(settings["draft_tokens"] or 0)
    tp, attention_ranks = int(settings["tp_size"] or 1), int(settings["attn_dp_size"] or 1)
    chunk = int(settings["chunked_prefill_size"] or 0)
    experts = written.number("ep_size", 1)
    return StepOptions(
        engine="sglang",
        engine_version=version_of(settings),
        tp=tp,
        pp=int(settings["pp_size"] or 1),
        dp=attention_ranks if tp % attention_ranks == 0 else 1,
        ep=experts if tp % experts == 0 else 1,
        weights_dtype=weights_dtype(written.words("quantization")),
        kv_dtype_bytes=kv_bytes(str(settings["kv_cache_dtype"])),
        state_ssm_bytes=state_bytes(str(settings["mamba_ssm_dtype"])),
        state_conv_bytes=state_bytes(str(settings["mamba_conv_dtype"])),
        overlap=not settings["disable_overlap_schedule"],
        graphs=_graphs(plan, written, drafts),
        speculation=_speculation(plan, drafts, accept_length),
        page_tokens=max(1, int(settings["page_size"] or 1)),
        chunk_tokens=chunk if chunk > 0 else written.number("max_prefill_tokens", 16384),
        mixes_prefill=written.has("enable_mixed_chunk") and not drafts,
        prefill_graphs=_prefill_graphs(plan, written),
    )


def captured_sizes(largest: int, drafts: int = 0) -> tuple[int, ...]:
    """Returns the batch sizes captured for decoding (`server_args.py::_generate_cuda_graph_batch_sizes`)."""
    if drafts:
        sizes = [
            *range(1, 9),
            *range(10, 33, 2),
            *range(40, 65, 4),
            *range(72, 257, 8),
            *range(272, largest + 1, 16),
        ]
    else:
        sizes = [
            1,
            2,
            4,
            8,
            12,
            *range(16, 257, 8),
            *range(272, 512, 16),
            *range(512, largest + 1, 32),
        ]
    kept = [size for size in sizes if size <= largest]
    return tuple(kept if kept and kept[-1] == largest else [*kept, largest])


def _graphs(plan: MemoryPlan, written: WrittenFlags, drafts: int) -> tuple[int, ...] | None:
    settings = plan.settings
    if settings["disable_cuda_graph"] or written.has("disable_decode_cuda_graph"):
        return None
    listed = written.numbers("cuda_graph_bs_decode")
    if listed:
        return listed
    largest = int(settings["cuda_graph_max_bs_decode"] or 0)
    return captured_sizes(largest, drafts) if largest > 0 else None


def _prefill_graphs(plan: MemoryPlan, written: WrittenFlags) -> bool:
    settings = plan.settings
    off = ("disable_piecewise_cuda_graph", "disable_prefill_cuda_graph", "disable_cuda_graph")
    if settings.rules.version < _PREFILL_GRAPHS or any(written.has(name) for name in off):
        return False
    return not (settings["multimodal"] or int(settings["attn_dp_size"] or 1) > 1 or settings["pp_size"] != 1)


def _speculation(plan: MemoryPlan, drafts: int, accept_length: float | None) -> Speculation | None:
    if not drafts:
        return None
    own = plan.settings["speculative_algorithm"] == "EAGLE" and plan.inputs.model.mtp_layers > 0
    return Speculation(drafts, min(float(drafts), accept_length or 1.0), drafts - 1 if own else 0)
