"""Step 1, measure: the baseline, with its window, and what a rate from finished requests leaves out.

Longer than most files: every number rests on those before it, so they are collected in one place, in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.observe.observation import ClientFacts, Observation, ServerObservation
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


@dataclass(frozen=True)
class Baseline:
    """What the fleet does, per server unless the name says `fleet` or `per_gpu`.

    Attributes:
        numbers: name → quantity; what cannot be told is absent.
        lower_bounds: names of rates that count finished requests only.
        assumptions: sentences, for the audit.
    """

    numbers: Mapping[str, Quantity]
    lower_bounds: frozenset[str] = frozenset()
    assumptions: tuple[str, ...] = ()
    window: str = ""
    notes: tuple[str, ...] = field(default=())

    def get(self, name: str) -> Quantity | None:
        return self.numbers.get(name)

    def value(self, name: str) -> float | None:
        """The plain number, None where it cannot be told."""
        found = self.numbers.get(name)
        return None if found is None else found.value

    def to_json(self) -> dict[str, Any]:
        """Returns window, every number with unit and origin, what is a lower bound, and what was assumed."""
        return {
            "window": self.window,
            "numbers": {name: quantity.to_json() for name, quantity in self.numbers.items()},
            "lower_bounds": sorted(self.lower_bounds),
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
        }


def measure(
    observation: Observation, server: ServerObservation, kv_capacity: Quantity | None = None
) -> Baseline:
    """Returns the baseline of one server and of the fleet that it stands for.

    Args:
        kv_capacity: the KV pool's tokens as the plan derives them, where the server did not say.
    """
    return _Measuring(observation, server, kv_capacity).baseline()


class _Measuring:
    """Collects the baseline's numbers, each at most once, in the order in which they rest on each other."""

    def __init__(
        self, observation: Observation, server: ServerObservation, kv_capacity: Quantity | None
    ) -> None:
        self.observation, self.server = observation, server
        self.client = observation.client or ClientFacts()
        self.numbers: dict[str, Quantity] = {}
        self.lower: set[str] = set()
        self.assumptions: list[str] = []
        self.notes: list[str] = []
        self.servers = Quantity(
            float(max(1, observation.replicas)), "servers", Origin.CONFIGURED, "servers of the fleet"
        )
        self.kv_capacity = server.get("kv_capacity_tokens") or kv_capacity

    def baseline(self) -> Baseline:
        self._copy()
        self._lengths()
        self._rate()
        self._running()
        self._context()
        self._censored()
        self._rates_of_parts()
        self._waiting()
        return Baseline(
            self.numbers, frozenset(self.lower), tuple(self.assumptions), self._window(), tuple(self.notes)
        )

    def set(self, name: str, quantity: Quantity | None) -> None:
        """Keeps a number that was not known yet; one that is out of all bounds is no number."""
        if quantity is None or name in self.numbers:
            return
        if all(math.isfinite(value) for value in (quantity.value, *quantity.range)):
            self.numbers[name] = quantity

    def get(self, name: str) -> Quantity | None:
        return self.numbers.get(name)

    def _copy(self) -> None:
        """What was told of the server, as it is."""
        for name in (
            "queued",
            "cap",
            "kv_usage",
            "swa_usage",
            "state_usage",
            "state_slots",
            "ttft_s",
            "tpot_s",
            "cache_hit_rate",
            "accept_length",
            "gpu_utilization",
            "requests_per_s",
            "prefill_tokens_per_s",
        ):
            self.set(name, self.server.get(name))
        if self.kv_capacity is not None:
            self.set("kv_capacity_tokens", self.kv_capacity)
        self.set("servers", self.servers)
        flight = self.client.readings.get("in_flight")
        if flight is not None:
            self.set("in_flight", flight)
            self.set(
                "in_flight_per_server",
                derived(
                    flight.value / self.servers.value,
                    "requests",
                    "in flight ÷ servers",
                    in_flight=flight,
                    servers=self.servers,
                ),
            )

    def _lengths(self) -> None:
        for name in ("mean_input_tokens", "mean_output_tokens"):
            self.set(name, self.client.readings.get(name) or self.server.get(name))

    def _rate(self) -> None:
        """Output tokens per second of one server, as it or the client says."""
        server = self.server
        told = server.get("output_tokens_per_s")
        per_gpu = server.get("output_tokens_per_s_per_gpu")
        if told is None and per_gpu is not None and server.gpus:
            told = derived(
                per_gpu.value * server.gpus, "tokens/s", "rate per GPU × GPUs of a server", per_gpu=per_gpu
            )
        total = server.get("total_tokens_per_s")
        given, made = self.get("mean_input_tokens"), self.get("mean_output_tokens")
        if told is None and total is not None and given is not None and made is not None:
            whole = given.value + made.value
            if whole > 0:
                told = derived(
                    total.value * made.value / whole,
                    "tokens/s",
                    "total rate × output ÷ (prompt + output)",
                    total=total,
                    prompt=given,
                    output=made,
                )
        requests = server.get("requests_per_s")
        if told is None and requests is not None and made is not None:
            told = derived(
                requests.value * made.value,
                "tokens/s",
                "requests per second × output tokens",
                requests=requests,
                output=made,
            )
        arriving = self.client.readings.get("request_rate")
        if told is None and arriving is not None and made is not None and server.value("queue_growing") != 1:
            told = derived(
                arriving.value * made.value / self.servers.value,
                "tokens/s",
                "arriving requests × output tokens ÷ servers",
                arriving=arriving,
                output=made,
                servers=self.servers,
            )
        self.set("output_tokens_per_s", told)

    def _running(self) -> None:
        told = self.server.get("running")
        if told is None:
            told = self._by_littles_law()
        self.set("running", told)

    def _by_littles_law(self) -> Quantity | None:
        """Requests in the batch = tokens per second × seconds per token of one request."""
        rate, each = self.get("output_tokens_per_s"), self.server.get("tpot_s") or self.server.get("itl_s")
        if rate is not None and each is not None:
            return derived(
                rate.value * each.value,
                "requests",
                "output tokens per second × seconds per token of one request",
                rate=rate,
                seconds_per_token=each,
            )
        user = self.server.get("per_user_tokens_per_s")
        if rate is not None and user is not None and user.value > 0:
            return derived(
                rate.value / user.value, "requests", "rate ÷ rate of one request", rate=rate, user=user
            )
        return None

    def _context(self) -> None:
        """Mean tokens resident per running request: from the pool's reading, else from the lengths."""
        running, usage, size = self.get("running"), self.get("kv_usage"), self.kv_capacity
        held = self.server.get("kv_used_tokens")
        if held is None and usage is not None and size is not None:
            held = derived(
                usage.value * size.value, "tokens", "usage × size of the pool", usage=usage, size=size
            )
        if held is not None and running is not None and running.value >= 1 and held.value >= running.value:
            self.set(
                "context_tokens",
                derived(
                    held.value / running.value,
                    "tokens/request",
                    "tokens held ÷ running",
                    held=held,
                    running=running,
                ),
            )
            return
        given, made = self.get("mean_input_tokens"), self.get("mean_output_tokens")
        if given is not None and made is not None:
            self.set(
                "context_tokens",
                derived(
                    given.value + made.value / 2,
                    "tokens/request",
                    "prompt + half the output",
                    prompt=given,
                    output=made,
                ),
            )

    def _censored(self) -> None:
        """A rate from finished requests leaves out what is in flight; corrected where the pool tells it.

        Holds for a window that began with nothing in flight; in a job long under way the rate stands as it
        is.
        """
        finished = self._finished_rate()
        if finished is None:
            return
        self.set("output_tokens_per_s_finished_only_fleet", finished)
        if self.get("output_tokens_per_s") is not None:
            return
        elapsed, flight = self.client.readings.get("elapsed_s"), self.get("in_flight")
        context, completed = self.get("context_tokens"), self.client.readings.get("completed")
        generations = completed.value / flight.value if completed and flight and flight.value > 0 else None
        per_server = derived(
            finished.value / self.servers.value,
            "tokens/s",
            "tokens of finished requests ÷ seconds ÷ servers",
            finished=finished,
            servers=self.servers,
        )
        if elapsed is None or flight is None or context is None or elapsed.value <= 0:
            self.lower.add("output_tokens_per_s")
            self.set("output_tokens_per_s", per_server)
            self.notes.append("the rate counts finished requests only: a lower bound")
            return
        if generations is not None and generations > _RAMP_GENERATIONS:
            self.set("output_tokens_per_s", per_server)
            return
        prompt = self._prompt(context)
        low, high = (max(0.0, context.value - edge) for edge in reversed(prompt.range))
        middle = max(0.0, context.value - prompt.value)

        def corrected(made_each: float) -> float:
            return finished.value / self.servers.value + (
                flight.value * made_each / elapsed.value / self.servers.value
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
            servers=self.servers,
        ).with_range(corrected(low), corrected(high))
        self.set("output_tokens_per_s", rate)
        self.set("output_tokens_per_s_finished_only", per_server)
        self.assumptions.append(
            f"the {elapsed.value:,.0f} s began with nothing in flight; in a job long under way the rate of "
            f"finished requests, {finished.value:,.0f} tok/s, would stand. One throughput figure of the "
            f"server "
            "itself settles it"
        )

    def _finished_rate(self) -> Quantity | None:
        """Tokens of finished requests per second over the whole fleet."""
        told = self.client.readings.get("output_tokens_per_s_finished_only")
        completed, made = self.client.readings.get("completed"), self.get("mean_output_tokens")
        elapsed = self.client.readings.get("elapsed_s")
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

    def _prompt(self, context: Quantity) -> Quantity:
        told = self.get("mean_input_tokens")
        if told is not None:
            return told
        below = self.client.readings.get("prompt_tokens_below")
        if below is not None:
            return below.with_range(min(ASSUMED_PROMPT.range[0], below.value), below.value)
        if ASSUMED_PROMPT.range[1] > context.value / 2:
            half = context.value / 2
            return Quantity(half / 2, "tokens", Origin.ASSUMED, "up to half the context", low=0.0, high=half)
        self.assumptions.append(
            f"prompts are {ASSUMED_PROMPT.range[0]:,.0f} to {ASSUMED_PROMPT.range[1]:,.0f} tokens long "
            f"(nobody "
            "told: mean_input_tokens)"
        )
        return ASSUMED_PROMPT

    def _rates_of_parts(self) -> None:
        rate, running = self.get("output_tokens_per_s"), self.get("running")
        low, high = rate.range if rate is not None else (0.0, 0.0)
        if rate is not None:
            fleet = self._sum_over_servers() or derived(
                rate.value * self.servers.value, "tokens/s", "rate × servers", rate=rate, servers=self.servers
            ).with_range(low * self.servers.value, high * self.servers.value)
            self.set("output_tokens_per_s_fleet", fleet)
            gpus = self.server.gpus
            if gpus:
                wide = Quantity(float(gpus), "GPUs", Origin.CONFIGURED, "GPUs of a server")
                self.set(
                    "output_tokens_per_s_per_gpu",
                    derived(
                        rate.value / gpus, "tokens/s", "rate ÷ GPUs of a server", rate=rate, gpus=wide
                    ).with_range(low / gpus, high / gpus),
                )
        self._step(rate, running)

    def _sum_over_servers(self) -> Quantity | None:
        """The fleet's rate where several servers told theirs, each with its own figure."""
        told = [(server, server.get("output_tokens_per_s")) for server in self.observation.servers]
        if len(told) < 2 or all(rate is None for _, rate in told):
            return None
        rates = {server.name: (rate, server.replicas) for server, rate in told if rate is not None}
        return derived(
            sum(rate.value * replicas for rate, replicas in rates.values()),
            "tokens/s",
            "Σ servers that told their rate",
            **{name: rate for name, (rate, _) in rates.items()},
        )

    def _step(self, rate: Quantity | None, running: Quantity | None) -> None:
        """Seconds of a step: as told, else from rates, else from the time per token."""
        told = self.server.get("step_ms")
        if told is not None:
            self.set("step_seconds", derived(told.value / 1e3, "s", "step in ms ÷ 1000", step=told))
        accepted = self.server.get("accept_length") or Quantity(
            1.0, "tokens", Origin.DEFAULT, "one token per step and request"
        )
        if rate is not None and running is not None and rate.value > 0 and running.value > 0:
            low, high = rate.range
            self.set(
                "output_tokens_per_s_per_running",
                derived(
                    rate.value / running.value, "tokens/s", "rate ÷ running", rate=rate, running=running
                ).with_range(low / running.value, high / running.value),
            )
            tokens = running.value * max(accepted.value, 1.0)
            step = derived(
                tokens / rate.value,
                "s",
                "running × accepted tokens ÷ rate",
                running=running,
                accepted=accepted,
                rate=rate,
            )
            if low > 0 and low < high:
                step = step.with_range(tokens / high, tokens / low)
            self.set("step_seconds", step)
        each = self.server.get("tpot_s") or self.server.get("itl_s")
        if each is not None:
            self.set(
                "step_seconds",
                derived(
                    each.value * max(accepted.value, 1.0),
                    "s",
                    "seconds per token × accepted tokens",
                    seconds_per_token=each,
                    accepted=accepted,
                ),
            )
        user = self.server.get("per_user_tokens_per_s")
        if user is not None and user.value > 0:
            self.set(
                "step_seconds",
                derived(
                    max(accepted.value, 1.0) / user.value,
                    "s",
                    "accepted tokens ÷ rate of one request",
                    accepted=accepted,
                    user=user,
                ),
            )

    def _waiting(self) -> None:
        """Requests that wait in the server: as told; else those in flight that do not run."""
        queued = self.get("queued")
        if queued is not None:
            self.set("waiting", queued)
            return
        if self.server.value("queue_growing") == 1:
            self.set(
                "waiting",
                Quantity(1.0, "requests", Origin.REPORTED, "the queue grows", low=1.0, high=float("1e9")),
            )
            return
        flight, running = self.get("in_flight_per_server"), self.get("running")
        if flight is not None and running is not None:
            self.set(
                "not_running",
                derived(
                    max(0.0, flight.value - running.value),
                    "requests",
                    "in flight per server − running",
                    in_flight=flight,
                    running=running,
                ),
            )

    def _window(self) -> str:
        window = self.server.window
        if window is not None and window.samples > 1:
            return f"{window.seconds:,.0f} s, {window.samples:,} samples"
        elapsed = self.client.value("elapsed_s")
        if elapsed:
            return f"{elapsed:,.0f} s, as told"
        return "one snapshot" if window is not None else "as told"
