"""How SGLang schedules: the numbers its scheduler goes by, from a memory plan, by version.

Source: the wheel 0.5.12, `managers/scheduler.py`, `managers/schedule_policy.py::PrefillAdder`,
`managers/schedule_batch.py::retract_decode`, `environ.py`, `server_args.py`; the same numbers in the wheels
0.5.3 to 0.5.23. What the numbers mean in time is for `headrace.simulate`; here are no times.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engines.plan import MemoryPlan
from headrace.engines.settings import EngineSettings
from headrace.engines.sglang.rules import TABLE
from headrace.engines.sglang.states import FLA_CHUNK_TOKENS

# A prefill that can run goes before decode (scheduler.py::get_next_batch_to_run).
PREFILL_FIRST = True
# new_token_ratio: the share of what requests asked for that admission reserves. environ.py,
# SGLANG_INIT_NEW_TOKEN_RATIO, …_MIN_NEW_TOKEN_RATIO_FACTOR, …_NEW_TOKEN_RATIO_DECAY_STEPS.
INIT_TOKEN_RATIO = 0.7
MIN_TOKEN_RATIO_FACTOR = 0.14
TOKEN_RATIO_DECAY_STEPS = 600
# Most tokens reserved for one request: SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION (schedule_policy.py).
CLIP_TOKENS = 4096
# Steps ahead in the estimate after a retraction: SGLANG_RETRACT_DECODE_STEPS.
RETRACT_STEPS = 20
# IGNORE_EOS_RESERVE_TOKENS (schedule_policy.py).
EOS_RESERVE_TOKENS = 1
# Input tokens of one prefill pass: server_args.py, max_prefill_tokens.
MAX_PREFILL_TOKENS = 16_384
# Slots of states that a request holds, in prefill and after it, without the checkpoint in the tree:
# HybridReqToTokenPool.alloc takes a working state and the track buffers (0.5.12).
_HELD = {"radix_off": 1, "no_buffer": 1, "one_buffer": 2, "two_buffers": 3}


@dataclass(frozen=True, slots=True)
class SglangSchedule:
    """What one scheduler (data-parallel rank) goes by.

    Attributes:
        running_limit: most running requests without regard to states.
        state_slots, slots_per_request: of the state pool; None and 1 where the model has no state.
        kv_tokens, page_tokens: of the KV pool.
        chunk_tokens: of a prefill chunk, None where prompts are not split.
        conservativeness: scales new_token_ratio.
        overlap: the next pass is launched before the results of the last one are read.
        prefix_tokens: cached prompts are matched in multiples of this; 0 = shared prompts are not reused.
        states_held: slots held by a running request, beside the checkpoint.
        checkpoint_tokens: a checkpoint is held after the prefill of at least so many tokens; 0 = never.
        draft_tokens: verified per step and request; 0 without speculation.
        radix_off: no radix cache: with ignore_eos admission reserves everything.
    """

    running_limit: int
    kv_tokens: int
    page_tokens: int = 1
    state_slots: int | None = None
    slots_per_request: int = 1
    chunk_tokens: int | None = 8192
    prefill_tokens: int = MAX_PREFILL_TOKENS
    conservativeness: float = 1.0
    overlap: bool = True
    prefix_tokens: int = 0
    states_held: int = 0
    checkpoint_tokens: int = 0
    draft_tokens: int = 0
    radix_off: bool = False

    @property
    def cap(self) -> int:
        """The most requests that run: `_resolve_max_num_reqs`."""
        if self.state_slots is None:
            return self.running_limit
        return min(self.running_limit, self.state_slots // self.slots_per_request)

    @property
    def init_ratio(self) -> float:
        """new_token_ratio at the start and when idle."""
        return min(INIT_TOKEN_RATIO * self.conservativeness, 1.0)

    @property
    def min_ratio(self) -> float:
        """The floor of new_token_ratio."""
        return self.init_ratio * MIN_TOKEN_RATIO_FACTOR


def schedule(plan: MemoryPlan) -> SglangSchedule:
    """Returns what the plan's server schedules by. The plan has to be one that starts."""
    settings = plan.settings
    slots = plan.figure("state_slots")
    radix_off = bool(settings["disable_radix_cache"])
    strategy = "" if radix_off or slots is None else str(settings["mamba_radix_cache_strategy"])
    each = int(plan.figure("slots_per_request") or 1)
    page = max(1, int(settings["page_size"] or 1))
    held, checkpoint, prefix = _states(strategy, each, radix_off, slots is not None, page)
    cap = plan.cap.value if plan.cap is not None else 0.0
    chunk = int(settings["chunked_prefill_size"] or 0)
    return SglangSchedule(
        running_limit=int(cap),
        kv_tokens=int(plan.figure("kv_tokens") or 0),
        page_tokens=page,
        state_slots=None if slots is None else int(slots),
        slots_per_request=each,
        chunk_tokens=chunk if chunk > 0 else None,
        prefill_tokens=int(written(settings, "max_prefill_tokens", MAX_PREFILL_TOKENS)),
        conservativeness=written(settings, "schedule_conservativeness", 1.0),
        overlap=not settings["disable_overlap_schedule"],
        prefix_tokens=prefix,
        states_held=held,
        checkpoint_tokens=checkpoint,
        draft_tokens=int(settings["draft_tokens"] or 0),
        radix_off=radix_off,
    )


def _states(
    strategy: str, slots_per_request: int, radix_off: bool, hybrid: bool, page: int
) -> tuple[int, int, int]:
    """(slots held, tokens from which a checkpoint is held too, unit of prefix reuse)."""
    if not hybrid:
        return 0, 0, 0 if radix_off else page
    if radix_off:
        return _HELD["radix_off"], 0, 0
    if not strategy.startswith("extra_buffer"):
        # checkpoints lie at exact ends: another prompt with the same beginning finds none
        return _HELD["no_buffer"], 1, 0
    held = _HELD["two_buffers"] if slots_per_request >= 5 else _HELD["one_buffer"]
    return held, max(FLA_CHUNK_TOKENS, page), max(FLA_CHUNK_TOKENS, page)


def written(settings: EngineSettings, name: str, default: float) -> float:
    """Returns a numeric flag as written on the line, or its default."""
    for flag in reversed(settings.line.flags):
        found = TABLE.find(flag.name, settings.rules.version)
        if found is not None and TABLE.field(found.name) == name and flag.words:
            try:
                return float(flag.words[0])
            except ValueError:
                return default  # the settings have refused it
    return default
