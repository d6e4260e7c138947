"""The emulated engine's timing core: the simulator's own scheduler, SGLang's, with the options' times."""

from __future__ import annotations

import numpy as np

from headrace.engines.sglang.schedule import SglangSchedule
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.fleet import ServerKind
from headrace.simulate.live_scheduler import LiveScheduler
from headrace.simulate.scheduling import PrefillCosts, server_rules

_RESERVE = 2  # a page, and one more: admission wants the sum below the pool (schedule_policy.py, add_one_req)


def new_core(options: EmulatorOptions) -> LiveScheduler:
    """Returns a fresh core of one server.

    One of a launch line goes by its rules and seconds. Without a line prompts are not split, the radix cache
    is off, overlap is on.
    A KV pool that one request of the whole context would not fit is taken as just large enough: SGLang lets
    such a request wait for ever.
    """
    if options.server is not None:
        return LiveScheduler(options.server.kind)
    times = options.real_times
    pool = max(options.pool_tokens, options.context_length + _RESERVE)
    schedule = SglangSchedule(running_limit=options.cap, kv_tokens=pool, chunk_tokens=None, radix_off=True)
    prefill = PrefillCosts(times.prefill_step_seconds, times.prefill_seconds_per_token)
    batches = np.arange(options.cap + 1, dtype=np.float64)
    return LiveScheduler(
        ServerKind(
            server_rules(schedule, prefill),
            times.decode_step_seconds + times.decode_seconds_per_request * batches,
            np.full(options.cap + 1, times.decode_seconds_per_context_token),
        )
    )
