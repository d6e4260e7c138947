"""How a vLLM server's steps run, from its memory plan: for the step model."""

from __future__ import annotations

from headrace.engines.plan import MemoryPlan
from headrace.engines.step_flags import WrittenFlags, kv_bytes, state_bytes, version_of, weights_dtype
from headrace.engines.versions import Version
from headrace.engines.vllm.settings import TABLE
from headrace.models.layers import Experts
from headrace.perf.options import Speculation, StepOptions

_LARGEST_GRAPH = 512
_LARGEST_GRAPH_LATER = 1024  # from 0.33.0 on compute capability 10 (config/vllm.py)


def step_options(plan: MemoryPlan, accept_length: float | None = None) -> StepOptions:
    """Returns the options of one scheduler's steps.

    Data-parallel ranks of a mixture share its experts (tp × dp ranks); those of a dense model are replicas.

    Args:
        accept_length: tokens that a speculative step yields per request, as measured or told. Without it a
            step counts for one token, which is the least.
    """
    settings = plan.settings
    written = WrittenFlags(settings, TABLE)
    drafts = int(settings["draft_tokens"] or 0)
    tp, dp = int(settings["tensor_parallel_size"] or 1), int(settings["data_parallel_size"] or 1)
    if not any(isinstance(layer.ffn, Experts) for layer in plan.inputs.model.layers):
        dp = 1
    hybrid = plan.inputs.model.is_hybrid
    return StepOptions(
        engine="vllm",
        engine_version=version_of(settings),
        tp=tp * dp,
        pp=int(settings["pipeline_parallel_size"] or 1),
        dp=dp,
        ep=tp * dp if written.has("enable_expert_parallel") else 1,
        weights_dtype=weights_dtype(written.words("quantization")),
        kv_dtype_bytes=kv_bytes(str(settings["kv_cache_dtype"])),
        state_ssm_bytes=state_bytes(str(settings["mamba_ssm_cache_dtype"])) if hybrid else 4.0,
        state_conv_bytes=state_bytes(str(settings["mamba_cache_dtype"])) if hybrid else 2.0,
        overlap=_overlaps(written, int(settings["pipeline_parallel_size"] or 1)),
        graphs=_graphs(plan, written, drafts),
        speculation=_speculation(plan, drafts, accept_length),
        page_tokens=max(1, int(settings["block_size"] or 16)),
        chunk_tokens=max(1, int(settings["max_num_batched_tokens"] or 2048)),
        mixes_prefill=True,
        prefill_graphs=not settings["enforce_eager"],
    )


def captured_sizes(largest: int) -> tuple[int, ...]:
    """Returns the token counts captured: 1, 2, 4, 8 … 248 by 8, then by 16 (`config/vllm.py`)."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return tuple(size for size in sizes if size <= largest)


def _graphs(plan: MemoryPlan, written: WrittenFlags, drafts: int) -> tuple[int, ...] | None:
    """Batches with a full graph; a request of a speculative step counts for its drafts and the sure token."""
    settings = plan.settings
    if settings["enforce_eager"]:
        return None
    listed = written.numbers("cudagraph_capture_sizes")
    each = 1 + drafts
    if not listed:
        later = settings.rules.version >= Version(0, 33, 0)
        capability = plan.inputs.device.compute_capability or 0.0
        top = _LARGEST_GRAPH_LATER if later and 10.0 <= capability < 11.0 else _LARGEST_GRAPH
        top = written.number("max_cudagraph_capture_size", top)
        listed = captured_sizes(min(2 * int(settings["max_num_seqs"] or 256) * each, top))
    return tuple(sorted({size // each for size in listed if size >= each})) or None


def _overlaps(written: WrittenFlags, stages: int) -> bool:
    """Asynchronous scheduling is on unless it is switched off or there are pipeline stages (both 0.20 and
    0.33)."""
    off = any(given.name.startswith("--no-async") for given in written.settings.line.flags)
    return not off and stages == 1


def _speculation(plan: MemoryPlan, drafts: int, accept_length: float | None) -> Speculation | None:
    if not drafts:
        return None
    own = bool(plan.settings["draft_layers"]) and plan.inputs.model.mtp_layers > 0
    return Speculation(drafts + 1, min(drafts + 1.0, accept_length or 1.0), drafts if own else 0)
