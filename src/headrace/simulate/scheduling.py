"""Compiles an engine's schedule into the rules that the kernel runs by."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.engines.plan import MemoryPlan
from headrace.engines.sglang import schedule as sglang
from headrace.engines.sglang.schedule import SglangSchedule
from headrace.engines.vllm import schedule as vllm
from headrace.engines.vllm.schedule import VllmSchedule
from headrace.errors import InputError, UsageError
from headrace.simulate.kernel.records import RULES, SGLANG, VLLM

Schedule = SglangSchedule | VllmSchedule
_UNLIMITED = 1 << 40


@dataclass(frozen=True)
class PrefillCosts:
    """Seconds of prompt tokens: a pass costs fixed + per token + per token × context + per sequence.

    It costs `floor` at least: a few tokens need the same weights read. In a decode pass (vLLM) prompt tokens
    add what varies + `mixed_fixed` where that is above 0; a negative one says how much hides behind decode.
    """

    fixed: float = 0.0
    per_token: float = 0.0
    per_token_context: float = 0.0
    per_sequence: float = 0.0
    mixed_fixed: float = 0.0
    floor: float = 0.0


_BLANK = dict.fromkeys(RULES, 0.0)


@dataclass(frozen=True)
class ServerRules:
    """One kind of server for the kernel, and the sizes that its series are read with."""

    rules: dict[str, float] = field(default_factory=dict)
    kv_capacity_tokens: float = 0.0
    state_slots: float | None = None

    @property
    def cap(self) -> int:
        return int(self.rules["cap"])


def server_rules(schedule: Schedule, prefill: PrefillCosts, *, ignore_eos: bool = False) -> ServerRules:
    """Returns the rules of one kind of server.

    Raises:
        UsageError: the schedule can run nothing.
    """
    if schedule.cap < 1:
        raise UsageError(f"the server could run {schedule.cap} requests; nothing can be simulated.")
    costs = {
        "prefill_fixed": prefill.fixed,
        "prefill_token": prefill.per_token,
        "prefill_token_context": prefill.per_token_context,
        "prefill_sequence": prefill.per_sequence,
        "mixed_fixed": prefill.mixed_fixed,
        "prefill_floor": prefill.floor,
    }
    if isinstance(schedule, SglangSchedule):
        return _sglang(schedule, costs, ignore_eos)
    return _vllm(schedule, costs)


def _sglang(plan: SglangSchedule, costs: dict[str, float], ignore_eos: bool) -> ServerRules:
    rules = _BLANK | costs | {
        "engine": SGLANG,
        "cap": plan.cap,
        "pool_pages": plan.kv_tokens // plan.page_tokens,
        "page_tokens": plan.page_tokens,
        "full_groups": 1,
        # the next step's drafts are allocated ahead (schedule_batch.py, new_tokens_required_next_decode)
        "lookahead_tokens": plan.draft_tokens,
        "lag": plan.overlap,
        "prefix_tokens": plan.prefix_tokens,
        "prefill_first": sglang.PREFILL_FIRST,
        "chunk_tokens": plan.chunk_tokens or _UNLIMITED,
        "prefill_tokens": plan.prefill_tokens,
        "clip_tokens": sglang.CLIP_TOKENS,
        "init_ratio": plan.init_ratio,
        "min_ratio": plan.min_ratio,
        "decay_steps": sglang.TOKEN_RATIO_DECAY_STEPS,
        "retract_steps": sglang.RETRACT_STEPS,
        "eos_ignored": ignore_eos and plan.radix_off,
        "eos_reserve_tokens": sglang.EOS_RESERVE_TOKENS,
        "states_prefilling": plan.states_held,
        "states_decoding": plan.states_held,
        "checkpoint_tokens": plan.checkpoint_tokens,
        "budget_tokens": _UNLIMITED,
        "lane_tokens": 1,
    }  # fmt: skip
    return ServerRules(rules, float(plan.kv_tokens), plan.state_slots)


def _vllm(plan: VllmSchedule, costs: dict[str, float]) -> ServerRules:
    if 0 < plan.budget_tokens < plan.align_tokens:
        raise UsageError(
            f"max_num_batched_tokens {plan.budget_tokens} is below the block of {plan.align_tokens} tokens: "
            "vLLM refuses to start. Raise it."
        )
    rules = _BLANK | costs | {
        "engine": VLLM,
        "cap": plan.cap,
        "pool_pages": plan.blocks,
        "page_tokens": plan.block_tokens,
        "full_groups": plan.full_groups,
        "window_groups": plan.window_groups,
        "window_pages": plan.window_blocks,
        "fixed_pages": plan.state_blocks,
        "lookahead_tokens": plan.draft_tokens,
        "lag": plan.asynchronous,
        "prefix_tokens": plan.prefix_tokens,
        "prefill_first": 0,
        "chunk_tokens": _UNLIMITED,
        "prefill_tokens": _UNLIMITED,
        "clip_tokens": 1,
        "decay_steps": 1,
        "states_prefilling": plan.state_blocks // max(1, plan.state_groups),
        "states_decoding": plan.state_blocks // max(1, plan.state_groups),
        "budget_tokens": plan.budget_tokens,
        "lane_tokens": 1 + plan.draft_tokens,
        "reserve_full": vllm.RESERVE_FULL_PROMPT,
        "align_tokens": plan.align_tokens,
    }  # fmt: skip
    slots = plan.blocks // plan.state_groups if plan.state_groups else None
    return ServerRules(rules, float(plan.blocks * plan.block_tokens), slots)


def schedule_of(plan: MemoryPlan) -> Schedule:
    """Returns the schedule of a memory plan.

    Raises:
        InputError: the plan would not start; its own words.
    """
    if not plan.would_start:
        raise InputError("the server would not start: " + " ".join(plan.refusals))
    return sglang.schedule(plan) if plan.settings.engine == "sglang" else vllm.schedule(plan)
