"""The kernel's state: records of schedulers, slots, requests and rules, and the codes that stand in them.

Compiled, they are rows of numpy record arrays; in plain Python, objects in lists, which Python reads faster.
The kernel's source is the same for both: `schedulers[s].slots`, `slots[s][i].made`. `s` is a scheduler (one
data-parallel rank of a server), `i` a slot of its batch, `r` a request. Times are seconds of the simulation,
sizes tokens or pages (an engine's KV page or block).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.simulate.kernel.compiled import IS_COMPILED

SGLANG, VLLM = 0, 1
# phases of a scheduler: nothing to do, between two passes, a pass with prefill, a stretch of decode passes
IDLE, BOUNDARY, PREFILL, DECODE = 0, 1, 2, 3
# slots: running; finished, but the scheduler does not know yet (overlap); finished and freed
RUNNING, FRESH, KNOWN = 0, 1, 2
# what became of a request
PENDING, DONE, ABORTED, OUT_OF_MEMORY, ABORTING = 0, 1, 2, 3, 4
# why a batch takes no more
OPEN, FULL_SLOTS, FULL_TOKENS = 0, 1, 2
# what keeps more requests from running, or takes the time: seconds of each are kept
CAUSES = ("idle", "client", "slots", "tokens", "prefill", "tail")
C_IDLE, C_CLIENT, C_SLOTS, C_TOKENS, C_PREFILL, C_TAIL = range(6)

_INT, _FLOAT, _SMALL, _SHORT = np.int64, np.float64, np.int32, np.float32

# What an engine's scheduler and its costs go by; one record per kind of server.
RULES: Mapping[str, Any] = {
    "engine": _INT,  # SGLANG or VLLM
    "cap": _INT,  # most running requests
    # A request of n tokens holds full_groups × ceil(n ÷ page_tokens)
    # + window_groups × min(ceil(n ÷ page_tokens), window_pages) + fixed_pages, of pool_pages in all.
    "pool_pages": _INT,
    "page_tokens": _INT,
    "full_groups": _INT,
    "window_groups": _INT,
    "window_pages": _INT,
    "fixed_pages": _INT,
    "lookahead_tokens": _INT,  # held per running request beyond its length (draft tokens)
    "lag": _INT,  # 1 with overlap: results are read one pass later
    "prefix_tokens": _INT,  # cached prefixes count in multiples of this; 0 = no reuse
    # SGLang
    "prefill_first": _INT,  # 1: waiting requests go before decode; 0: only when nothing decodes
    "chunk_tokens": _INT,
    "prefill_tokens": _INT,  # most input tokens of a prefill pass
    "clip_tokens": _INT,  # bound on what admission reserves per request
    "init_ratio": _FLOAT,  # new_token_ratio: start, floor, and passes from one to the other
    "min_ratio": _FLOAT,
    "decay_steps": _INT,
    "retract_steps": _INT,  # steps ahead in the estimate after a retraction
    "eos_ignored": _INT,  # 1: ignore_eos and no radix cache: the engine's other admission
    "eos_reserve_tokens": _INT,
    "states_prefilling": _INT,  # state slots that a request holds in prefill, and after it
    "states_decoding": _INT,
    "checkpoint_tokens": _INT,  # one more after a prefill of at least so many tokens; 0 = never
    # vLLM
    "budget_tokens": _INT,  # of a step
    "lane_tokens": _INT,  # of one decode lane (1 + drafts)
    "reserve_full": _INT,  # 1: a prompt is admitted only where all of it fits
    "align_tokens": _INT,  # prefill chunks end at multiples of this (state checkpoints); 0 = anywhere
    # Seconds. A decode pass of b lanes: decode_fixed[kind, b] + decode_context[kind, b] × context tokens.
    # A prefill pass: fixed + per token + per token × context + per sequence, at least the floor. Both at
    # once: the decode pass, and what varies with the prefill + mixed_fixed where above 0 (else hidden).
    "prefill_floor": _FLOAT,
    "prefill_fixed": _FLOAT,
    "prefill_token": _FLOAT,
    "prefill_token_context": _FLOAT,
    "prefill_sequence": _FLOAT,
    "mixed_fixed": _FLOAT,
}

SCHEDULER: Mapping[str, Any] = {
    "kind": _INT,
    "slots": _INT,  # in use, in the order of admission
    "decoding": _INT,  # the first so many were merged into the running batch (vLLM: all)
    "full": _INT,
    "ratio_start": _FLOAT,
    "ratio_steps": _INT,
    "phase": _INT,
    "phase_start": _FLOAT,
    "phase_end": _FLOAT,
    "steps": _INT,
    "linear": _FLOAT,  # m passes of a stretch last (linear + quadratic × m) × m
    "quadratic": _FLOAT,
    "prefill_part": _FLOAT,  # seconds of the phase that prompt tokens take
    "cause": _INT,
    "first_waiting": _INT,
    "last_waiting": _INT,
    "waiting": _INT,
    "waiting_tokens": _FLOAT,
    "stopping": _INT,  # aborts that wait for the end of the pass
    "ended": _INT,  # requests in the scheduler's row of `ended`, which nobody has collected yet
    "shared_pages": _INT,
    "churn": _FLOAT,  # tokens that have gone into the prefix cache
    "evicted_below": _FLOAT,  # highest (churn - free tokens) so far: what was touched before is evicted
    "passes": _INT,
    "prefills": _INT,
    "generated": _FLOAT,
    "firsts": _INT,  # of these, made by prefills
    "completed": _FLOAT,  # tokens of finished requests
    "prefilled": _FLOAT,
    "cached": _FLOAT,
    "lost": _FLOAT,  # generated, then thrown away
    "retracted": _INT,
}

SLOT: Mapping[str, Any] = {
    "request": _INT,
    "input": _FLOAT,
    "asked": _FLOAT,
    "rate": _FLOAT,  # tokens per pass
    "shared": _FLOAT,  # prefix tokens that its group keeps once
    "made": _FLOAT,
    "todo": _FLOAT,  # tokens still to be prefilled
    "now": _FLOAT,  # of these, in the present pass; -1 for a decode lane that the step's budget leaves out
    "left": _INT,  # passes until the end
    "flag": _INT,
}

GROUP: Mapping[str, Any] = {"tokens": _INT, "held": _INT, "ready": _INT, "touched": _FLOAT}

REQUEST: Mapping[str, Any] = {
    "input": _SMALL,
    "output": _SMALL,
    "asked": _SMALL,  # max_new_tokens, which admission goes by
    "rate": _SHORT,  # tokens per pass, > 1 with speculation; multiples of 1/1024 keep all sums exact
    "group": _SMALL,  # of prompts with the same prefix, or -1
    "server": _SMALL,
    "retractions": _SMALL,
    "outcome": _SMALL,
    "after": _SMALL,  # the next one in its queue
    "made": _FLOAT,  # output tokens, kept over a retraction
    "submitted": _FLOAT,  # NaN until it happens, as the other times
    "admitted": _FLOAT,
    "first_token": _FLOAT,
    "finished": _FLOAT,
}


class World(NamedTuple):
    """Everything that schedulers are advanced with.

    Attributes:
        rules: by kind.
        decode_fixed, decode_context: kinds × batch sizes 0 … cap.
        schedulers, requests: records.
        slots: schedulers × (largest cap + 2); the last one is scratch.
        groups: schedulers × groups of shared prefixes (at least 1).
        ended: requests that have ended and nobody has collected yet, per scheduler.
        cause_seconds: schedulers × CAUSES.
    """

    rules: Any
    decode_fixed: NDArray[np.float64]
    decode_context: NDArray[np.float64]
    schedulers: Any
    slots: Any
    groups: Any
    ended: NDArray[np.int32]
    requests: Any
    cause_seconds: NDArray[np.float64]


def dtype_of(fields: Mapping[str, Any]) -> np.dtype[Any]:
    """Returns the record dtype of these fields."""
    return np.dtype(list(fields.items()), align=True)


def records(fields: Mapping[str, Any], shape: tuple[int, ...]) -> Any:
    """Returns records full of zeros: a numpy record array, or nested lists of objects in plain Python."""
    if IS_COMPILED:
        return np.zeros(shape, dtype_of(fields))
    kind = type("Record", (), {"__slots__": tuple(fields)})
    zeros = [(name, 0.0 if np.dtype(dtype).kind == "f" else 0) for name, dtype in fields.items()]

    def one() -> Any:
        made = kind()
        for name, zero in zeros:
            setattr(made, name, zero)
        return made

    if len(shape) == 1:
        return [one() for _ in range(shape[0])]
    return [[one() for _ in range(shape[1])] for _ in range(shape[0])]


def fill(made: Any, name: str, values: Any) -> None:
    """Sets one field of records along their only axis; a scalar fills all."""
    if IS_COMPILED:
        made[name] = values
        return
    values = np.broadcast_to(np.asarray(values), (len(made),)).tolist()
    for record, value in zip(made, values, strict=True):
        setattr(record, name, value)


def column(made: Any, name: str) -> NDArray[Any]:
    """Returns one field of records along their only axis, as an array (compiled: a view)."""
    if IS_COMPILED:
        found: NDArray[Any] = made[name]
        return found
    return np.array([getattr(record, name) for record in made])


def new_requests(
    input_tokens: Any, output_tokens: Any, asked_tokens: Any, rate: Any = 1.0, group: Any = -1
) -> Any:
    """Returns requests that nobody has sent yet; `rate` is rounded to 1/1024."""
    made = records(REQUEST, (len(input_tokens),))
    fill(made, "input", input_tokens)
    fill(made, "output", output_tokens)
    fill(made, "asked", asked_tokens)
    fill(made, "rate", np.round(np.asarray(rate, float) * 1024) / 1024)
    fill(made, "group", group)
    fill(made, "server", -1)
    fill(made, "after", -1)
    for name in ("submitted", "admitted", "first_token", "finished"):
        fill(made, name, np.nan)
    return made


def new_world(
    rules: Sequence[Mapping[str, float]],
    decode_fixed: NDArray[np.float64],
    decode_context: NDArray[np.float64],
    kinds: Sequence[int],
    requests: Any,
    group_tokens: Sequence[int] = (),
) -> World:
    """Returns idle schedulers of these kinds; `rules` has one mapping of all of RULES per kind."""
    by_kind = records(RULES, (len(rules),))
    for name in RULES:
        fill(by_kind, name, [rule[name] for rule in rules])
    width = int(max(rule["cap"] for rule in rules)) + 2
    count, groups = len(kinds), max(1, len(group_tokens))
    made = records(SCHEDULER, (count,))
    fill(made, "kind", list(kinds))
    fill(made, "ratio_start", [rules[kind]["init_ratio"] for kind in kinds])
    fill(made, "phase_end", np.inf)
    fill(made, "first_waiting", -1)
    fill(made, "last_waiting", -1)
    shared = records(GROUP, (count, groups))
    for s in range(count):
        fill(shared[s], "tokens", list(group_tokens) or 0)
    return World(
        by_kind,
        np.ascontiguousarray(decode_fixed, np.float64),
        np.ascontiguousarray(decode_context, np.float64),
        made,
        records(SLOT, (count, width)),
        shared,
        np.zeros((count, width), np.int32),
        requests,
        np.zeros((count, len(CAUSES))),
    )
