"""What vLLM leaves for KV: the requested share of the card less weights, peak activation, other and graphs.

`v1/worker/gpu_worker.py::determine_available_memory`. Peak activation is measured by the engine with a
dummy batch and cannot be read from its source: it is estimated here, origin `assumed`, with a wide range;
where a log says "Available KV cache memory", `--kv-cache-memory-bytes` with that figure replaces the
estimate.
"""

from __future__ import annotations

from headrace.engines.plan import GIB, PlanInputs
from headrace.engines.settings import EngineSettings
from headrace.models.layers import FeedForward
from headrace.quantities import Origin, Quantity, derived

# What a process holds beside its tensors (context, NCCL, cuBLAS): three boot logs of cases with weights and
# KV stated (Qwen3-30B and -32B on a 96 GB card, 2025-12) leave 0.2 to 1.3 GiB for this and activations
# together.
OTHER_BYTES = Quantity(
    0.5 * GIB,
    "bytes",
    Origin.ASSUMED,
    "context and libraries, 0.2 to 1 GiB in boot logs",
    low=0.2 * GIB,
    high=1.0 * GIB,
)
# One boot log of a 27B hybrid with a vision tower: 2.0 GiB at no tokens (the encoder's own dummy run and
# sampling).
VISION_PEAK_BYTES = 1.6 * GIB
_GRAPHS = Quantity(
    0.5 * GIB,
    "bytes",
    Origin.ASSUMED,
    "CUDA graphs, 0.1 to 2.4 GiB in boot logs",
    low=0.1 * GIB,
    high=2.4 * GIB,
)


def peak_activation(inputs: PlanInputs, settings: EngineSettings) -> Quantity:
    """Returns the estimated bytes of the dummy batch: feed-forward and hidden rows per token, logits per
    request.
    """
    model, tp = inputs.model, int(settings["tensor_parallel_size"] or 1)
    widest = max((_feed_forward_width(layer.ffn) for layer in model.layers), default=0)
    tokens, running = (
        float(settings["max_num_batched_tokens"] or 2048),
        float(settings["max_num_seqs"] or 256),
    )
    # slope seen: 110 kB per token on a 27B hybrid (feed-forward 17408 wide); 3 × width × 2 bytes is 104 kB
    per_token = 3 * widest / tp * 2 + 4 * model.hidden * 2
    logits = min(running, tokens) * model.vocabulary / tp * 4 * 2
    value = tokens * per_token + logits + (VISION_PEAK_BYTES if settings["multimodal"] else 0.0)
    return Quantity(
        value,
        "bytes",
        Origin.ASSUMED,
        "batched tokens × feed-forward and hidden rows + logits (+ vision encoder)",
        low=0.4 * value,
        high=2.0 * value,
    )


def _feed_forward_width(part: object) -> int:
    if isinstance(part, FeedForward):
        return part.intermediate
    per_token = getattr(part, "per_token", 0) * getattr(part, "intermediate", 0)
    return int(per_token + getattr(part, "shared_intermediate", 0) + getattr(part, "dense_intermediate", 0))


def available_for_kv(
    inputs: PlanInputs, settings: EngineSettings, weights: Quantity
) -> tuple[Quantity, dict[str, Quantity]]:
    """Returns the bytes for KV on one GPU, and the parts of the card beside them by name."""
    total = inputs.device.usable_bytes
    fraction = settings.values["gpu_memory_utilization"].quantity()
    requested = derived(
        total.value * fraction.value, "bytes", "total × utilization", total=total, utilization=fraction
    )
    parts = {"requested": requested, "weights": weights, "other": OTHER_BYTES}
    parts["activation"] = peak_activation(inputs, settings)
    if not settings["enforce_eager"]:
        parts["graphs"] = _GRAPHS
    asked = settings["kv_cache_memory_bytes"]
    if asked is not None:
        return settings.values["kv_cache_memory_bytes"].quantity("bytes"), parts
    value = requested.value - sum(part.value for name, part in parts.items() if name != "requested")
    formula = "requested − weights − other − peak activation" + (" − graphs" if "graphs" in parts else "")
    return derived(value, "bytes", formula, **parts), parts
