"""vLLM's memory plan: the block pool, what a request holds of it, and what bounds running requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headrace.engines.flags import FlagTable
from headrace.engines.plan import (
    GIB,
    Candidate,
    MemoryPlan,
    PlanInputs,
    Pool,
    Rung,
    Solution,
    Untold,
    weights_on_gpu,
)
from headrace.engines.settings import EngineSettings, Notice, NoticeKind
from headrace.engines.versions import Rules, Version, choose_rules
from headrace.engines.vllm import levers
from headrace.engines.vllm.blocks import BlockPool, pool_shape
from headrace.engines.vllm.memory import available_for_kv
from headrace.engines.vllm.settings import NEWEST, OLDEST, TABLE, resolve
from headrace.quantities import Origin, Quantity, derived
from headrace.words import Constraint


class VllmPlanner:
    """Plans vLLM servers; see `headrace.engines.plan.Planner`."""

    engine = "vllm"
    table: FlagTable = TABLE
    oldest: Version = OLDEST
    newest: Version = NEWEST

    def rules(self, told: str) -> Rules:
        """Returns the rules for a version as told."""
        return choose_rules(told, OLDEST, NEWEST, "vLLM")

    def plan(self, inputs: PlanInputs) -> MemoryPlan:
        """Returns the memory plan of the line, on this GPU, for this model."""
        settings = resolve(inputs)
        tp, pp = int(settings["tensor_parallel_size"] or 1), int(settings["pipeline_parallel_size"] or 1)
        vision = bool(settings["multimodal"]) or not inputs.model.is_multimodal
        weights = weights_on_gpu(inputs, tp, pp, vision=vision, mtp=bool(settings["draft_layers"]))
        available, parts = available_for_kv(inputs, settings, weights)
        shape = pool_shape(inputs, settings)
        override = settings["num_gpu_blocks_override"]
        blocks = (
            int(override)
            if override is not None
            else max(0, int(available.value // max(1, shape.block_bytes)))
        )
        settings = replace(
            settings, notices=settings.notices + _notices(settings, shape, blocks, available.value)
        )
        figures = _figures(inputs, settings, shape, blocks, available, weights)
        ladder = _ladder(inputs, settings, shape, blocks, figures)
        flag = settings.values["max_num_seqs"]
        cap = derived(
            float(flag.value or 0),
            "requests",
            f"max_num_seqs ({flag.source})",
            flag=flag.quantity("requests"),
        )
        starts = not settings.refusals
        return MemoryPlan(
            inputs,
            settings,
            _pools(inputs, parts, available, figures),
            cap if starts else None,
            Constraint.MAX_RUNNING_REQUESTS if starts else Constraint.CONFIGURATION_ERROR,
            f"max_num_seqs ({flag.source})" if starts else "the server would not start",
            ladder,
            figures,
            _assumptions(inputs, settings, weights),
        )

    def candidates(self, plan: MemoryPlan) -> Iterator[Candidate]:
        """Yields the changes that might lift the cap."""
        return levers.candidates(plan)

    def untold(self, plan: MemoryPlan, reported: Mapping[str, float]) -> Iterator[Untold]:
        """Yields the settings that might be set without anybody having said so."""
        return levers.untold(plan, reported)

    def solve(self, plan: MemoryPlan, cap: int) -> Iterator[Solution]:
        """Yields, knob by knob, what would give that cap."""
        return levers.solve(plan, cap, self.plan)


PLANNER = VllmPlanner()


def _notices(settings: EngineSettings, shape: BlockPool, blocks: int, available: float) -> tuple[Notice, ...]:
    """What the engine refuses once it knows its blocks (kv_cache_utils.py, config/compilation.py)."""
    longest = int(settings["max_model_len"] or 0)
    per_request = shape.blocks_for(longest, longest=True)
    running = int(settings["max_num_seqs"] or 0)
    found = []
    if available <= 0 or blocks < per_request:
        found.append(
            f"one request of {longest:,} tokens needs {per_request * shape.block_bytes / GIB:.2f} GiB "
            "of KV, and "
            f"{max(0.0, available) / GIB:.2f} GiB are there: the server refuses to start. Lower "
            "--max-model-len, raise "
            "--gpu-memory-utilization, or use more GPUs."
        )
    elif shape.state_bytes and running > blocks and not settings["enforce_eager"]:
        found.append(
            f"max_num_seqs ({running:,}) is over the {blocks:,} state blocks: the server refuses to "
            "start. Write "
            f"--max-num-seqs {blocks} or less."
        )
    return tuple(Notice(NoticeKind.REFUSAL, text) for text in found)


def _figures(
    inputs: PlanInputs,
    settings: EngineSettings,
    shape: BlockPool,
    blocks: int,
    available: Quantity,
    weights: Quantity,
) -> dict[str, Quantity]:
    def plain(value: float, unit: str, source: str) -> Quantity:
        return Quantity(value, unit, Origin.DERIVED, source)

    longest = int(settings["max_model_len"] or 0)
    per_request = shape.blocks_for(longest, longest=True)
    block_bytes = plain(shape.block_bytes, "bytes/block", "layers of a group × tokens × KV bytes of a layer")
    count = derived(blocks, "blocks", "KV bytes ÷ bytes per block", available=available, block=block_bytes)
    concurrency = blocks / per_request if per_request else 0.0
    figures = {
        "weight_bytes": weights,
        "available_kv_bytes": available,
        "block_tokens": plain(shape.block_tokens, "tokens/block", "; ".join(shape.notes) or "block size"),
        "block_bytes": block_bytes,
        "blocks": count,
        "blocks_per_longest_request": plain(per_request, "blocks", f"one request of {longest:,} tokens"),
        "max_concurrency": derived(
            concurrency, "requests", "blocks ÷ blocks of the longest request", blocks=count
        ),
        # what the engine prints as "GPU KV cache size"
        "kv_tokens": derived(
            int(concurrency * longest), "tokens", "max concurrency × max_model_len", blocks=count
        ),
        "kv_bytes_per_token": plain(shape.token_bytes, "bytes/token", "KV of all layers"),
    }
    if shape.state_bytes:
        dtype = settings.values["mamba_ssm_cache_dtype"]
        figures["state_bytes_per_request"] = Quantity(
            shape.state_bytes,
            "bytes/request",
            Origin.DERIVED,
            f"state {dtype.value} ({dtype.source}), without padding",
        )
        figures["state_slots"] = derived(
            blocks // max(1, len([g for g in shape.groups if g.kind == "state"])),
            "slots",
            "blocks ÷ groups of state layers",
            blocks=count,
        )
        figures["slots_per_request"] = plain(
            shape.state_blocks() / max(1, len([g for g in shape.groups if g.kind == "state"])),
            "slots/request",
            f"mamba_cache_mode {shape.mode}"
            + (f" + {shape.draft_tokens} drafts" if shape.draft_tokens else ""),
        )
    return figures


def _ladder(
    inputs: PlanInputs,
    settings: EngineSettings,
    shape: BlockPool,
    blocks: int,
    figures: Mapping[str, Quantity],
) -> tuple[Rung, ...]:
    """max_num_seqs, and the blocks at the stated context (at max_model_len where none was stated)."""
    if settings.refusals:
        return ()
    flag = settings.values["max_num_seqs"]
    rungs = [
        Rung(
            Constraint.MAX_RUNNING_REQUESTS,
            flag.quantity("requests"),
            f"max_num_seqs ({flag.source})",
        )
    ]
    context = inputs.context_tokens or float(settings["max_model_len"] or 1)
    each = shape.blocks_for(context)
    state = shape.state_blocks()
    # one block of the pool is the null block (v1/core/block_pool.py)
    running = max(0, blocks - 1) // max(1, each)
    what = (
        f"{each - state} for {context:,.0f} tokens + {state} for states"
        if state
        else f"{each} for {context:,.0f} tokens"
    )
    bound = Constraint.STATE_POOL if state > each - state else Constraint.KV_POOL
    rungs.append(
        Rung(
            bound,
            derived(running, "requests", f"{blocks:,} blocks ÷ ({what})", blocks=figures["blocks"]),
            f"{blocks:,} blocks ÷ ({what})",
        )
    )
    return tuple(sorted(rungs, key=lambda rung: rung.running.value))


def _pools(
    inputs: PlanInputs, parts: Mapping[str, Quantity], available: Quantity, figures: Mapping[str, Quantity]
) -> tuple[Pool, ...]:
    pools = [Pool("weights", parts["weights"]), Pool("KV and state blocks", available, figures["blocks"])]
    names = {"activation": "peak activation", "graphs": "CUDA graphs", "other": "context and libraries"}
    pools += [Pool(text, parts[name]) for name, text in names.items() if name in parts]
    unasked = inputs.device.usable_bytes.value - parts["requested"].value
    pools.append(
        Pool(
            "left alone",
            derived(
                unasked,
                "bytes",
                "total − requested",
                total=inputs.device.usable_bytes,
                requested=parts["requested"],
            ),
        )
    )
    return tuple(pools)


def _assumptions(inputs: PlanInputs, settings: EngineSettings, weights: Quantity) -> tuple[str, ...]:
    said = [*inputs.device.assumptions, *inputs.model.caveats]
    if settings["kv_cache_memory_bytes"] is None:
        said.append(
            "peak activation, graphs and libraries are estimates: what a log calls Available KV cache "
            "memory, "
            "given as --kv-cache-memory-bytes, replaces them."
        )
    if weights.origin is Origin.ASSUMED:
        said.append(f"loading takes {weights.value / GIB:.1f} GiB per GPU (--weights-gib sets it).")
    dtype = settings.values.get("mamba_ssm_cache_dtype")
    if dtype is not None and dtype.origin is not Origin.CONFIGURED:
        said.append(f"the recurrent state is {dtype.value} ({dtype.source}).")
    if inputs.context_tokens is None:
        said.append("no context was stated: the pool's rung is at max_model_len (--context-tokens sets it).")
    return tuple(said)
