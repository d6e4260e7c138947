"""How vLLM V1 schedules: the numbers its scheduler goes by, from a memory plan, by version.

Source: `v1/core/sched/scheduler.py`, `v1/core/kv_cache_manager.py`, `v1/core/block_pool.py`, `config/` of
0.20.2 and 0.33.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engines.plan import MemoryPlan
from headrace.engines.vllm.blocks import BlockPool, pool_shape

# One block is never given out (v1/core/block_pool.py, null_block).
NULL_BLOCKS = 1
# A prompt is admitted only where all of it fits: scheduler_reserve_full_isl, True in both versions.
RESERVE_FULL_PROMPT = True


@dataclass(frozen=True, slots=True)
class VllmSchedule:
    """What one engine core goes by.

    A request of n tokens holds full_groups × ceil(n ÷ block_tokens) + window_groups × min(that,
    window_blocks) + state_blocks of the `blocks`.

    Attributes:
        max_num_seqs, budget_tokens: most running requests, and tokens of one step.
        prefix_tokens: cached prompts are matched in multiples of this; 0 = no prefix caching.
        align_tokens: prefill chunks end at multiples of this (mamba_cache_mode align); 0 = anywhere.
        asynchronous: the next step is scheduled before the results of the last one are read.
        draft_tokens: of speculation, per step and request.
    """

    max_num_seqs: int
    budget_tokens: int
    blocks: int
    block_tokens: int = 16
    full_groups: int = 1
    window_groups: int = 0
    window_blocks: int = 0
    state_blocks: int = 0
    state_groups: int = 0
    prefix_tokens: int = 0
    align_tokens: int = 0
    asynchronous: bool = True
    draft_tokens: int = 0

    @property
    def cap(self) -> int:
        """Most running requests."""
        return self.max_num_seqs


def schedule(plan: MemoryPlan) -> VllmSchedule:
    """Returns what the plan's server schedules by. The plan has to be one that starts."""
    settings = plan.settings
    shape = pool_shape(plan.inputs, settings)
    windows = [group for group in shape.groups if group.kind == "window" and group.window_tokens]
    off = any(flag.name.startswith("--no-enable-prefix-caching") for flag in settings.line.flags)
    # off by default only on hybrids, whose settings say so (§4.1 of the facts on engines)
    caches = bool(settings["enable_prefix_caching"]) if plan.inputs.model.is_hybrid else not off
    not_async = any(flag.name.startswith("--no-async") for flag in settings.line.flags)
    return VllmSchedule(
        max_num_seqs=int(settings["max_num_seqs"] or 1),
        budget_tokens=int(settings["max_num_batched_tokens"] or 2048),
        blocks=max(0, int(plan.figure("blocks") or 0) - NULL_BLOCKS),
        block_tokens=shape.block_tokens,
        full_groups=sum(group.kind == "full" for group in shape.groups),
        window_groups=len(windows),
        window_blocks=_window_blocks(shape),
        state_blocks=shape.state_blocks(),
        state_groups=sum(group.kind == "state" for group in shape.groups),
        prefix_tokens=shape.block_tokens if caches else 0,
        align_tokens=shape.block_tokens if shape.mode == "align" and shape.state_bytes else 0,
        asynchronous=int(settings["pipeline_parallel_size"] or 1) == 1 and not not_async,
        draft_tokens=int(settings["draft_tokens"] or 0),
    )


def _window_blocks(shape: BlockPool) -> int:
    """Most blocks that one window group holds: the window's, and one that it begins in."""
    widest = max((group.window_tokens or 0 for group in shape.groups if group.kind == "window"), default=0)
    return -(-(widest - 1) // shape.block_tokens) + 1 if widest else 0
