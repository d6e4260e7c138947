"""The memory fraction and graph sizes SGLang chooses when no flag says them.

`server_args.py::_handle_gpu_memory_settings` up to 0.5.19, `arg_groups/memory_hook.py` from 0.5.20.
"""

from __future__ import annotations

from headrace.engines.plan import PlanInputs
from headrace.engines.settings import Resolver
from headrace.engines.versions import Version
from headrace.quantities import Origin

# (card smaller than, MiB): chunked prefill tokens, largest decode graph for tp < 4, and for tp ≥ 4
_BRACKETS = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 2048, 24, 80),
    (60 * 1024, 4096, 32, 160),
    (90 * 1024, 8192, 256, 512),
    (160 * 1024, 8192, 256, 512),
)
_BIGGEST = (16384, 512, 512)
# Vision towers are compared with ViT-L/14: 24 layers of 1024 (adjust_mem_fraction_for_vlm).
_VIT_LAYERS, _VIT_HIDDEN = 24, 1024
_QWEN_VISION_HIDDEN = 1152  # the class default of Qwen3-VL's and Qwen3.5's vision configs


def default_fraction(run: Resolver, inputs: PlanInputs) -> None:
    """Sets chunked prefill size, largest decode graph and memory fraction, as given or by the rule."""
    version = inputs.rules.version
    card_mib = inputs.device.memory_bytes.value / (1 << 20)
    tp, pp = int(run["tp_size"]), int(run["pp_size"])
    chunk, graph, graph_wide = next((rest for top, *rest in _BRACKETS if card_mib < top), list(_BIGGEST))
    if version < Version(0, 5, 7) and 20 * 1024 <= card_mib < 35 * 1024:
        graph = 16  # 0.5.3 to 0.5.6
    if version >= Version(0, 5, 20) and 20 * 1024 <= card_mib < 35 * 1024:
        chunk, graph, graph_wide = 4096, 48, 160  # memory_hook.py
    rule = f"by the card's {card_mib / 1024:.0f} GiB"
    largest = graph if tp < 4 else graph_wide
    running = run["max_running_requests"]
    if version >= Version(0, 5, 20) and running is not None and not run.is_given("cuda_graph_max_bs_decode"):
        largest = min(largest, int(running))
    chunk_tokens = int(run.number("chunked_prefill_size", chunk, rule) or 0)
    largest = int(run.number("cuda_graph_max_bs_decode", largest, rule) or 0)
    reserved = 512 + (max(chunk_tokens, 2048) if chunk_tokens > 0 else 16384) * 1.5
    reserved += largest * 2 + tp * pp / 8 * 1024
    ranks = int(run["attn_dp_size"])
    if ranks > 1:
        reserved += largest * ranks * 3 + (largest * ranks * 1.5 if largest > 300 else 0)
    reserved += _prefill_graphs(run, inputs, chunk_tokens, ranks, pp)
    if card_mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    algorithm = run["speculative_algorithm"]
    if algorithm is not None and version < Version(0, 5, 14):
        eagle = 4 if version >= Version(0, 5, 10) else 2
        reserved += (6 if algorithm == "STANDALONE" else 0 if algorithm == "NGRAM" else eagle) * 1024
    run.set(
        "reserved_mib", reserved, Origin.DERIVED, "what the engine's own rule keeps out of the static part"
    )
    if run.is_given("mem_fraction_static"):
        fraction = run.number("mem_fraction_static", None, whole=False)
        if fraction is not None and not 0 < fraction < 1:
            run.refuse(f"--mem-fraction-static is a fraction between 0 and 1, got {fraction}.")
        if fraction is not None:
            return  # what is no number was refused: the sizes are then those of the default
    fraction = round((card_mib - reserved) / card_mib, 3)
    source = f"({card_mib:,.0f} − {reserved:,.0f} MiB reserved) ÷ {card_mib:,.0f} MiB, the engine's rule"
    if run["multimodal"]:
        fraction, source = fraction * _vision_factor(inputs), source + " × its factor for the vision tower"
    run.set("mem_fraction_static", fraction, Origin.DEFAULT, source)


def _prefill_graphs(run: Resolver, inputs: PlanInputs, chunk: int, ranks: int, pp: int) -> float:
    """MiB set aside for prefill graphs: by default from 0.5.10, not for vision, DP attention, pipeline."""
    if inputs.rules.version < Version(0, 5, 10) or run["multimodal"] or ranks > 1 or pp > 1:
        return 0.0
    if run.is_given("cuda_graph_backend_prefill") or run.is_given("disable_piecewise_cuda_graph"):
        return 0.0
    if inputs.model.is_latent:
        return 1.5 * 1024
    sizes = [
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, chunk + 1, 512),
    ]
    return 8.0 * len([size for size in sizes if size <= chunk])


def _vision_factor(inputs: PlanInputs) -> float:
    vision, qwen = inputs.model.vision, inputs.model.model_type.startswith("qwen")
    if vision is None and not qwen:
        return 1.0
    # the engine reads num_hidden_layers, which Qwen's vision configs call depth: it falls back to 24 there
    layers = vision.layers if vision is not None and not qwen else _VIT_LAYERS
    hidden = vision.hidden if vision is not None else _QWEN_VISION_HIDDEN
    size = layers * hidden**2 / (_VIT_LAYERS * _VIT_HIDDEN**2)
    return 0.95 * float(max(0.8, min(1.05, 1.0 - 0.1 * (size - 1.0))))
