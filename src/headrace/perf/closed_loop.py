"""Throughput and latency with N requests always in flight: prefill share, caps, queueing by Little's law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headrace.errors import UsageError
from headrace.perf.step_model import StepModel
from headrace.quantities import Estimate


@dataclass(frozen=True, slots=True)
class Served:
    """One scheduler under a closed loop, in steady state.

    Attributes:
        running: requests in the batch; the rest of those in flight is queued.
        bound_by: "in_flight", "cap" or "kv_tokens": what set `running`.
        step_seconds: a decode step alone; token_seconds: seconds per output token of a request, the prompts
            of others included (TPOT).
        first_token_seconds: from sending to the first token, waiting included.
        prefill_share: of the time.
    """

    running: float
    bound_by: str
    step_seconds: Estimate
    token_seconds: Estimate
    output_tokens_per_second: Estimate
    total_tokens_per_second: Estimate
    first_token_seconds: Estimate
    prefill_share: float

    def to_json(self) -> dict[str, Any]:
        """Returns the figures as plain JSON."""
        return {
            "running": self.running,
            "bound_by": self.bound_by,
            "step_seconds": self.step_seconds.to_json(),
            "token_seconds": self.token_seconds.to_json(),
            "output_tokens_per_second": self.output_tokens_per_second.to_json(),
            "total_tokens_per_second": self.total_tokens_per_second.to_json(),
            "first_token_seconds": self.first_token_seconds.to_json(),
            "prefill_share": self.prefill_share,
        }


def closed_loop(
    step: StepModel,
    in_flight: float,
    *,
    input_tokens: float,
    output_tokens: float,
    cap: float | None = None,
    kv_tokens: float | None = None,
    cached_tokens: float = 0.0,
) -> Served:
    """Returns what one scheduler serves with `in_flight` requests always sent, each of the same lengths.

    A request takes T = output ÷ yield × step + R × prefill, R requests running together: while it decodes,
    each of the others is admitted once. Output tokens per second are R × output ÷ T.

    Args:
        in_flight: requests that the client keeps open.
        cap: running requests that the plan allows; None: as many as are sent.
        kv_tokens: tokens that the KV pool holds; a request holds its prompt and on average half its output.
        cached_tokens: of a prompt, found in the prefix cache: held, but not computed.
    """
    if in_flight < 1 or input_tokens < 0 or output_tokens < 1:
        raise UsageError(
            f"a closed loop of {in_flight:g} in flight with {input_tokens:g} tokens in and "
            f"{output_tokens:g} out: at least one in flight and one token out are needed"
        )
    held = input_tokens + output_tokens / 2.0
    limits = {"in_flight": float(in_flight)}
    if cap is not None:
        limits["cap"] = float(cap)
    if kv_tokens is not None:
        limits["kv_tokens"] = kv_tokens / held
    bound_by = min(limits, key=lambda name: limits[name])
    running = max(1.0, limits[bound_by])
    new = max(0.0, input_tokens - cached_tokens)
    one = step.decode_estimate(running, running * held)
    mid = one.mid
    per_token = mid / step.options.yield_per_request
    prefill = prefill_added_seconds(step, running, running * held, new, cached_tokens, mid)
    whole = output_tokens * per_token + running * prefill
    spread = (one.low / mid, one.high / mid)
    token = per_token + (running - 1.0) * prefill / output_tokens
    request_rate = running / whole
    output = running * output_tokens / whole
    total = running * (output_tokens + input_tokens) / whole
    # Little: those in flight ÷ rate is the time from sending to the end; what is not spent running is waiting
    waiting = max(0.0, in_flight / request_rate - whole)
    own = prefill if step.options.mixes_prefill else prefill + mid / 2.0
    return Served(
        running,
        bound_by,
        one,
        _times(token, spread, "s"),
        _rate(output, spread, "tokens/s"),
        _rate(total, spread, "tokens/s"),
        _times(waiting + own, spread, "s"),
        running * prefill / whole,
    )


def prefill_added_seconds(
    step: StepModel, running: float, context: float, new_tokens: float, prior_tokens: float, decode: float
) -> float:
    """Returns the seconds that admitting one request adds: its prompt, chunk by chunk.

    Alone (SGLang) each chunk is a pass of its own. Mixed (vLLM) the chunk rides in decode steps, which read
    the weights anyway: what it adds is the longer steps' difference.
    """
    if new_tokens <= 0.0:
        return 0.0
    options = step.options
    room = float(options.chunk_tokens)
    if options.mixes_prefill:
        room = max(1.0, room - running * options.tokens_per_request)
    chunks = math.ceil(new_tokens / room)
    size = new_tokens / chunks
    total = 0.0
    for number in range(chunks):
        prior = prior_tokens + number * size
        if options.mixes_prefill:
            total += max(0.0, float(step.mixed_seconds(running, context, size, prior)[0]) - decode)
        else:
            total += step.prefill_seconds(size, prior)
    return total


def _times(value: float, spread: tuple[float, float], unit: str) -> Estimate:
    return Estimate(value * spread[0], value, value * spread[1], unit)


def _rate(value: float, spread: tuple[float, float], unit: str) -> Estimate:
    return Estimate(value / spread[1], value, value / spread[0], unit)
