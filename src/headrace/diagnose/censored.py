"""A rate from finished requests alone, and what it leaves out: the tokens of those in flight."""

from __future__ import annotations

from headrace.diagnose.baseline import Collected
from headrace.quantities import Origin, Quantity, derived

# Where nobody tells the prompts' length: instruction prompts with their chat template. The range is that of
# the instruction sets of facts on the golden case (100 to 330 tokens); the audit perturbs it.
ASSUMED_PROMPT = Quantity(
    215.0,
    "tokens",
    Origin.ASSUMED,
    "instruction prompts with their template: 100 to 330 tokens; a facts file's mean_input_tokens sets it",
    low=100.0,
    high=330.0,
)
_RAMP_GENERATIONS = (
    20.0  # after so many answers per place in flight, what is in flight is under 5 % of the sum
)


def correct_censored(known: Collected) -> None:
    """A rate from finished requests leaves out what is in flight; corrected where the pool tells it.

    Holds for a window that began with nothing in flight; in a job long under way the rate stands as it
    is.
    """
    finished = _finished_rate(known)
    if finished is None:
        return
    known.set("output_tokens_per_s_finished_only_fleet", finished)
    if known.get("output_tokens_per_s") is not None:
        return
    elapsed, flight = known.client.readings.get("elapsed_s"), known.get("in_flight")
    context, completed = known.get("context_tokens"), known.client.readings.get("completed")
    generations = completed.value / flight.value if completed and flight and flight.value > 0 else None
    per_server = derived(
        finished.value / known.servers.value,
        "tokens/s",
        "tokens of finished requests ÷ seconds ÷ servers",
        finished=finished,
        servers=known.servers,
    )
    if (counted := _counted_from_the_start(known)) is not None:
        known.set("output_tokens_per_s", counted)
        known.set("output_tokens_per_s_finished_only", per_server)
        return
    if elapsed is None or flight is None or context is None or elapsed.value <= 0:
        known.lower.add("output_tokens_per_s")
        known.set("output_tokens_per_s", per_server)
        known.notes.append("the rate counts finished requests only: a lower bound")
        return
    if generations is not None and generations > _RAMP_GENERATIONS:
        known.set("output_tokens_per_s", per_server)
        return
    prompt = _prompt(known, context)
    low, high = (max(0.0, context.value - edge) for edge in reversed(prompt.range))
    middle = max(0.0, context.value - prompt.value)

    def corrected(made_each: float) -> float:
        return finished.value / known.servers.value + (
            flight.value * made_each / elapsed.value / known.servers.value
        )

    rate = derived(
        corrected(middle),
        "tokens/s",
        "(tokens of finished requests + in flight × (context − prompt)) ÷ seconds ÷ servers",
        finished_only=finished,
        in_flight=flight,
        context=context,
        prompt=prompt,
        seconds=elapsed,
        servers=known.servers,
    ).with_range(corrected(low), corrected(high))
    known.set("output_tokens_per_s", rate)
    known.set("output_tokens_per_s_finished_only", per_server)
    known.assumptions.append(
        f"the {elapsed.value:,.0f} s began with nothing in flight; in a job long under way the rate of "
        f"finished requests, {finished.value:,.0f} tok/s, would stand. One throughput figure of the "
        f"server "
        "itself settles it"
    )


def _counted_from_the_start(known: Collected) -> Quantity | None:
    """Tokens per second and server of a job that counts its own, those in flight included, from its start."""
    names = ("completed", "mean_output_tokens_finished_only", "in_flight_tokens", "elapsed_s")
    completed, each, made, elapsed = (known.client.readings.get(name) for name in names)
    if completed is None or each is None or made is None or elapsed is None or elapsed.value <= 0:
        return None
    return derived(
        (completed.value * each.value + made.value) / elapsed.value / known.servers.value,
        "tokens/s",
        "(finished × their mean tokens + tokens in flight) ÷ seconds ÷ servers",
        completed=completed,
        mean_finished=each,
        in_flight_tokens=made,
        seconds=elapsed,
        servers=known.servers,
    )


def _finished_rate(known: Collected) -> Quantity | None:
    """Tokens of finished requests per second over the whole fleet."""
    told = known.client.readings.get("output_tokens_per_s_finished_only")
    completed, made = known.client.readings.get("completed"), known.get("mean_output_tokens")
    elapsed = known.client.readings.get("elapsed_s")
    if told is not None:
        return told
    if completed is None or made is None or elapsed is None or elapsed.value <= 0:
        return None
    return derived(
        completed.value * made.value / elapsed.value,
        "tokens/s",
        "finished × output tokens ÷ seconds",
        finished=completed,
        output=made,
        seconds=elapsed,
    )


def _prompt(known: Collected, context: Quantity) -> Quantity:
    told = known.get("mean_input_tokens")
    if told is not None:
        return told
    below = known.client.readings.get("prompt_tokens_below")
    if below is not None:
        return below.with_range(min(ASSUMED_PROMPT.range[0], below.value), below.value)
    if ASSUMED_PROMPT.range[1] > context.value / 2:
        half = context.value / 2
        return Quantity(half / 2, "tokens", Origin.ASSUMED, "up to half the context", low=0.0, high=half)
    known.assumptions.append(
        f"prompts are {ASSUMED_PROMPT.range[0]:,.0f} to {ASSUMED_PROMPT.range[1]:,.0f} tokens long "
        f"(nobody "
        "told: mean_input_tokens)"
    )
    return ASSUMED_PROMPT
