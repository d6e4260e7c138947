"""The plain reference of the timing core: one decode step after the other, and no closed form anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.simulate.emulate.timing import StepTimes


@dataclass
class NaiveRequest:
    """What is asked (the first four) and what became of it."""

    at: float
    prompt_tokens: int
    output_tokens: int
    abort_at: float | None = None
    admitted_at: float = -1.0
    first_token_at: float = -1.0
    finished_at: float = -1.0
    tokens: int = 0
    aborting: bool = False
    aborted: bool = False


def run_naively(
    requests: list[NaiveRequest], cap: int, kv_tokens: int, times: StepTimes, prefill_batch_tokens: int
) -> None:
    """Fills in the outcome of every request."""
    events = [(request.at, index, "submit") for index, request in enumerate(requests)]
    events += [(r.abort_at, index, "abort") for index, r in enumerate(requests) if r.abort_at is not None]
    events.sort(key=lambda event: (event[0], event[2] == "abort", event[1]))
    queue: list[NaiveRequest] = []
    running: list[NaiveRequest] = []
    prefilling: list[NaiveRequest] = []
    busy_until: float | None = None

    def reserved(of: list[NaiveRequest]) -> int:
        return sum(r.prompt_tokens + r.output_tokens for r in of)

    def begin(now: float) -> float | None:
        batch = 0
        while queue and len(running) + len(prefilling) < cap:
            first = queue[0]
            held = reserved(running) + reserved(prefilling)
            if held and held + first.prompt_tokens + first.output_tokens > kv_tokens:
                break
            if prefilling and batch + first.prompt_tokens > prefill_batch_tokens:
                break
            queue.pop(0)
            first.admitted_at = now
            prefilling.append(first)
            batch += first.prompt_tokens
        if prefilling:
            return now + times.prefill_step_seconds + times.prefill_seconds_per_token * batch
        if running:
            context = sum(r.prompt_tokens + r.tokens for r in running)
            step = times.decode_step_seconds + times.decode_seconds_per_request * len(running)
            return now + step + times.decode_seconds_per_context_token * context
        return None

    def end(now: float) -> None:
        grown = prefilling if prefilling else running
        for request in grown:
            request.tokens += 1
        for request in prefilling:
            request.first_token_at = now
        running.extend(prefilling)
        prefilling.clear()
        for request in list(running):
            if request.tokens >= request.output_tokens or request.aborting:
                request.aborted = request.tokens < request.output_tokens
                request.finished_at = now
                running.remove(request)

    for time, index, kind in [*events, (float("inf"), -1, "end")]:
        while busy_until is not None and busy_until <= time:
            end(busy_until)
            busy_until = begin(busy_until)
        if index < 0:
            break
        request = requests[index]
        if kind == "submit":
            queue.append(request)
            if busy_until is None:
                busy_until = begin(time)
        elif request in queue:
            queue.remove(request)
            request.admitted_at = request.first_token_at = request.finished_at = time
            request.aborted = True
        elif request.finished_at < 0 and request.admitted_at >= 0:
            request.aborting = True
