"""vLLM's block pool: layers in groups of equal size, one block for a group of layers, blocks per request.

Sources: `v1/core/kv_cache_utils.py` (0.20 to 0.32), `kv_cache_planning.py` (0.33), `platforms/interface.py`
(the alignment of attention blocks with state pages), `v1/kv_cache_interface.py` (what a request needs of
each kind).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from headrace.engines.plan import PlanInputs
from headrace.engines.settings import EngineSettings
from headrace.models.layers import AnyAttention, LatentAttention

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# vLLM's row of sparse MLA in FP8: 512 fp8 + 4 scales of 4 bytes + 64 rope elements of 2 bytes
SPARSE_FP8_ROW_BYTES = 656
_INDEX_BLOCK, _SCALE_BYTES = 128, 4


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table: how many, of which kind."""

    kind: str  # "full", "window" or "state"
    layers: int
    window_tokens: int | None = None


@dataclass(frozen=True)
class BlockPool:
    """The shape of the pool before its size is known."""

    groups: tuple[Group, ...]
    block_tokens: int
    block_bytes: int
    token_bytes: float  # KV of one token in the layers that keep them for good, and in windows
    state_bytes: int  # of one request, all state layers, without padding
    mode: str = "none"
    draft_tokens: int = 0
    context_ranks: int = 1
    max_batched_tokens: int = 2048  # over all steps in flight
    notes: tuple[str, ...] = field(default=())

    def blocks_for(self, tokens: float, *, longest: bool = False) -> int:
        """Returns the blocks a request of that many tokens holds; `longest` adds what a prefill chunk
        needs.
        """
        return sum(self._blocks(group, tokens, longest) for group in self.groups)

    def state_blocks(self) -> int:
        """Returns the state blocks of one request, over all groups."""
        return sum(self._blocks(group, 1, False) for group in self.groups if group.kind == "state")

    def _blocks(self, group: Group, tokens: float, longest: bool) -> int:
        if group.kind == "state":
            if self.mode == "all":
                return math.ceil(tokens / self.block_tokens)
            return (2 if self.mode == "align" else 1) + self.draft_tokens
        if group.kind == "window" and group.window_tokens:
            chunk = self.max_batched_tokens if longest else 0
            held = min(group.window_tokens - 1 + chunk, tokens)
            return math.ceil(held / self.block_tokens) + 1
        return math.ceil(math.ceil(tokens / self.context_ranks) / self.block_tokens)


def pool_shape(inputs: PlanInputs, settings: EngineSettings) -> BlockPool:
    """Returns groups, tokens and bytes of a block for this model and these settings, on one GPU."""
    model, tp = inputs.model, int(settings["tensor_parallel_size"] or 1)
    pp = int(settings["pipeline_parallel_size"] or 1)
    drafts, draft_layers = int(settings["draft_tokens"] or 0), int(settings["draft_layers"] or 0)
    stage = slice(0, math.ceil(len(model.layers) / pp))
    layers = model.layers[stage]
    kinds: Counter[tuple[int, int | None]] = Counter()  # (bytes of a token in one layer, window) → layers
    for layer in layers:
        if layer.attention is not None:
            kinds[(_token_bytes(layer.attention, settings, tp), layer.attention.window_tokens)] += 1
    if draft_layers and kinds:
        full = [key for key in kinds if key[1] is None] or list(kinds)
        kinds[full[-1]] += draft_layers
    state_layers = [layer.recurrent for layer in layers if layer.recurrent is not None]
    tokens = int(settings["block_size"] or 16)
    index_bytes = sum(
        _index_bytes(layer.attention) for layer in layers if isinstance(layer.attention, LatentAttention)
    )
    if index_bytes and draft_layers:
        index_bytes += draft_layers * max(
            _index_bytes(a) for a in model.attention_layers if isinstance(a, LatentAttention)
        )
    common = BlockPool(
        (),
        tokens,
        0,
        sum(size * count for (size, _), count in kinds.items()) + index_bytes,
        0,
        draft_tokens=drafts,
        context_ranks=int(settings["decode_context_parallel_size"] or 1),
        max_batched_tokens=int(settings["in_flight_tokens"] or 2048),
    )
    if state_layers:
        return _with_states(inputs, settings, common, kinds, len(state_layers), tp, drafts)
    windows = {window for _, window in kinds}
    if len(windows) <= 1 or settings["disable_hybrid_kv_cache_manager"]:
        total = int(common.token_bytes)
        window = next(iter(windows)) if len(windows) == 1 else None
        kind = "window" if window else "full"
        return replace(common, groups=(Group(kind, sum(kinds.values()), window),), block_bytes=total * tokens)
    return _with_windows(common, kinds, tokens)


def _with_windows(common: BlockPool, kinds: Counter[tuple[int, int | None]], tokens: int) -> BlockPool:
    """Full and sliding layers: blocks of layers with smaller rows hold more tokens, groups are of equal
    size.
    """
    widest = max(size for size, _ in kinds)
    by_kind: Counter[int | None] = Counter()
    for (_, window), count in kinds.items():
        by_kind[window] += count
    groups, size = _groups({("full" if w is None else "window", w): n for w, n in by_kind.items()})
    return replace(common, groups=groups, block_tokens=tokens, block_bytes=size * widest * tokens)


def _with_states(
    inputs: PlanInputs,
    settings: EngineSettings,
    common: BlockPool,
    kinds: Counter[tuple[int, int | None]],
    state_layers: int,
    tp: int,
    drafts: int,
) -> BlockPool:
    """Attention blocks grow until a page of one layer holds one layer's state; states are padded to it."""
    ssm, conv = inputs.model.state_elements_per_request(tp)
    kernel = next(layer.recurrent.conv_kernel for layer in inputs.model.layers if layer.recurrent is not None)
    if drafts and kernel > 1:
        conv = conv * (kernel - 1 + drafts) // (kernel - 1)
    total_layers = sum(layer.recurrent is not None for layer in inputs.model.layers)
    ssm_bytes = _STATE_BYTES.get(str(settings["mamba_ssm_cache_dtype"]), 4)
    conv_bytes = _STATE_BYTES.get(str(settings["mamba_cache_dtype"]), 2)
    page = math.ceil((ssm * ssm_bytes + conv * conv_bytes) / total_layers)
    per_token = max(size for size, _ in kinds) if kinds else 1
    align = common.block_tokens
    tokens = max(common.block_tokens, align * math.ceil(page / (align * per_token)))
    sizes: dict[tuple[str, int | None], int] = {("state", None): state_layers}
    for (_, window), count in kinds.items():
        key = ("full" if window is None else "window", window)
        sizes[key] = sizes.get(key, 0) + count
    groups, size = _groups(sizes)
    return replace(
        common,
        groups=groups,
        block_tokens=tokens,
        block_bytes=size * tokens * per_token,
        state_bytes=page * state_layers,
        mode=str(settings["mamba_cache_mode"]),
        notes=(f"a state page is padded by {100 * (tokens * per_token - page) / page:.2f} %",),
    )


def _groups(sizes: dict[tuple[str, int | None], int]) -> tuple[tuple[Group, ...], int]:
    """Groups of equal layer count: the least kind's, or the most's where that is under 1.5 × the least."""
    least, most = min(sizes.values()), max(sizes.values())
    size = most if most < least * 1.5 else least
    groups = [
        Group(kind, size, window)
        for (kind, window), count in sizes.items()
        for _ in range(math.ceil(count / size))
    ]
    return tuple(groups), size


def _token_bytes(attention: AnyAttention, settings: EngineSettings, tp: int) -> int:
    dtype = str(settings["kv_cache_dtype"])
    if isinstance(attention, LatentAttention) and dtype == "fp8_ds_mla":
        return SPARSE_FP8_ROW_BYTES
    width = 1 if dtype.startswith("fp8") else 2
    return int(attention.kv_elements_per_token(tp) * width)


def _index_bytes(attention: LatentAttention) -> int:
    if not attention.index_heads:
        return 0
    return attention.index_dim + attention.index_dim // _INDEX_BLOCK * _SCALE_BYTES
