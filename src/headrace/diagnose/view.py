"""What the rules see of one server: the evidence and what the first three steps made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.diagnose.baseline import Baseline
from headrace.diagnose.claims import Claim, Pair, Topic
from headrace.diagnose.context import Context, Planned
from headrace.diagnose.decompose import Decomposition
from headrace.diagnose.floor import Floor
from headrace.diagnose.switched import read_switched
from headrace.diagnose.trials import Trial, read_trials
from headrace.engines.signs import Sign, Signs
from headrace.observe.observation import ClientFacts, Column, Observation, ServerObservation
from headrace.quantities import Origin, Quantity

FULL = 0.95  # a pool with less than 5 % left admits no request of more than 5 % of it
PRESSED = 0.9  # SGLang's tuning page calls a pool under 0.9 with a queue too cautious, not full
ROOM = 0.7  # the hybrid rule of facts on engines §5: under it KV is not what they wait for
NEAR = 0.95  # running this close to a cap is at it: a place that was just left is being filled

_FEW = 5  # samples: fewer show no height


@dataclass(frozen=True)
class View:
    """One server, as the rules see it."""

    observation: Observation
    server: ServerObservation
    context: Context
    signs: Signs
    baseline: Baseline
    planned: Planned | None
    floor: Floor | None
    decomposition: Decomposition
    claims: tuple[Claim, ...]

    @property
    def client(self) -> ClientFacts:
        return self.observation.client or ClientFacts()

    @property
    def load_is_free(self) -> bool:
        """In flight is ours to choose: a client that is not known is taken for an offline job's."""
        return self.client.is_free

    def value(self, name: str) -> float | None:
        """A number of the baseline, else a reading of the server."""
        found = self.baseline.value(name)
        return found if found is not None else self.server.value(name)

    @property
    def running(self) -> float | None:
        return self.baseline.value("running")

    @property
    def running_is_told(self) -> bool:
        return self.server.get("running") is not None

    @property
    def flight(self) -> float | None:
        """In flight per server."""
        return self.baseline.value("in_flight_per_server")

    @property
    def queued(self) -> float | None:
        return self.server.value("queued")

    @property
    def waits(self) -> bool | None:
        """Whether requests wait in the server: None where nobody can tell.

        With no queue told, what is in flight and does not run waits somewhere: in the server, or on its way.
        """
        if self.server.value("queue_growing") == 1:
            return True
        queued = self.queued
        share = self.server.value("queue_share_of_steps")
        if queued is not None and queued >= 1:
            return True
        if share is not None:
            return share > 0.05
        if queued is not None:
            return False
        flight, running = self.flight, self.running
        if flight is None or running is None:
            return True if self.waits_before_first_token else None
        return flight > running * 1.1 + 0.5

    @property
    def waits_before_first_token(self) -> bool:
        """By Little's law over a fifth of what is in flight has no first token yet, and over two."""
        rate, first = self.server.value("requests_per_s"), self.server.value("ttft_s")
        if rate is None or first is None or self.flight is None:
            return False
        return rate * first > max(2.0, 0.2 * self.flight)

    @property
    def cap(self) -> Quantity | None:
        """The effective cap: as reported, but never above the user's own flag; None where nobody says."""
        cap, flag = self.baseline.get("cap"), self.running_flag
        if cap is not None and cap.value < 1:
            return None  # no server runs nothing: a reading from before its start
        alone = (self.server.data_parallel or 1) == 1
        if flag is not None and alone and cap is not None and flag < cap.value:
            return Quantity(float(flag), "requests", Origin.CONFIGURED, "the running flag")
        return cap

    @property
    def planned_cap(self) -> Quantity | None:
        """The cap that the plan gives: of flags that were told, and not contradicted by what runs."""
        plan = self.planned.plan if self.planned else None
        if plan is None or plan.cap is None or not self.server.flags:
            return None
        if self.running is not None and self.running > plan.cap.value * 1.02:
            return None
        return plan.cap

    @property
    def fullest_pool(self) -> tuple[str, float] | None:
        """The fuller of the token pools, by name and the share used; None where neither was told."""
        found = [
            (name, value)
            for word, name in (("kv_usage", "KV pool"), ("swa_usage", "sliding-window pool"))
            if (value := self.server.value(word)) is not None
        ]
        return max(found, key=lambda item: item[1]) if found else None

    @property
    def at_cap(self) -> bool:
        """Whether as many run as the server's cap lets."""
        return self.cap is not None and self.stands_at(self.cap.value)

    def stands_at(self, cap: float) -> bool:
        """Whether as many run as a cap lets: within 5 %, or 10 % where that is one place per rank.

        A scheduler that reads a prompt in chunks keeps that place; every data-parallel rank has its own.
        """
        running = self.running
        if running is None or cap <= 0:
            return False
        ranks = max(1, self.server.data_parallel or 1)
        return running >= NEAR * cap or (cap - running <= ranks and running >= PRESSED * cap)

    @property
    def fits_by_usage(self) -> float | None:
        """Requests that the token pool would hold at this length: running ÷ usage."""
        usages = [self.server.value(word) for word in ("kv_usage", "swa_usage")]
        used = max((usage for usage in usages if usage is not None), default=0.0)
        if self.running is None or used <= 0.01:
            return None
        return self.running / used

    def seen(self, word: str) -> Column:
        """The samples of a reading over all the evidence, without gaps; empty for typed facts."""
        column = self.server.columns.get(word)
        return column[np.isfinite(column)] if column is not None else np.empty(0)

    @property
    def running_stands(self) -> bool:
        """Running stands at one height while requests wait, as it does at a cap; True where no samples tell.

        At a cap most samples are near the highest; where a pool fills and empties they are not.
        """
        samples = self.seen("running")
        if len(samples) < _FEW or samples.max() < 1:
            return True
        return float(np.mean(samples >= NEAR * samples.max())) >= 0.5

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing is made: such a window tells of no limit."""
        rates = ("output_tokens_per_s", "prefill_tokens_per_s")
        at_rest = (self.running == 0 and self.running_is_told) or self.flight == 0
        total, done = self.client.value("prompts_total"), self.client.value("completed")
        if total and done is not None and done < total and self.claims:
            return False  # prompts are left, and somebody says what is wrong
        return at_rest and not self.queued and not any(self.server.value(word) for word in rates)

    @property
    def running_flag(self) -> int | None:
        """The user's own limit on running requests."""
        return self.signs.running_flag

    @property
    def is_hybrid(self) -> bool:
        """The model keeps recurrent states: by its config, a reading, or what was written."""
        if self.context.model is not None:
            return self.context.model.is_hybrid
        return (
            self.server.get("state_usage") is not None
            or self.server.get("state_slots") is not None
            or Sign.HYBRID in self.signs
            or re.search(r"\bGDN\b|mamba|hybrid", self.server.model or "", re.IGNORECASE) is not None
            or any(claim.says(r"\bhybrid|\bmamba|\bGDN\b|recurrent") for claim in self.claims)
        )

    @property
    def ranks(self) -> int:
        """GPUs that share every layer."""
        return max(1, self.server.tensor_parallel or 1)

    @property
    def needed_context(self) -> float | None:
        """Tokens that one request will hold at its end, as the lengths say."""
        given = self.baseline.value("mean_input_tokens")
        if given is None:
            return None
        return given + (self.baseline.value("mean_output_tokens") or 0.0)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The same load with one thing changed, as people told of it."""
        found = []
        for claim in self.claims:
            trials = [*read_trials(claim.text, self.server.engine)]
            read = {trial.thing for trial in trials}
            found += trials + [trial for trial in read_switched(claim.text) if trial.thing not in read]
        return tuple(found)

    def reading_seconds(self, word: str) -> float | None:
        """A time that the server or its client told, in seconds; `step_s` is the step's."""
        if word == "step_s":
            return self.baseline.value("step_seconds")
        return self.server.value(word)

    def rate_near(self, rate: float, *, total: bool = False, per_gpu: bool = False) -> float | None:
        """The observed rate to hold another against: of the same kind, the nearest told."""
        words: tuple[str, ...] = (
            "output_tokens_per_s",
            "per_user_tokens_per_s",
            "output_tokens_per_s_per_gpu",
        )
        if total:
            words = ("total_tokens_per_s", "total_tokens_per_s_per_gpu")
        if per_gpu:
            words = tuple(word for word in words if word.endswith("per_gpu"))
        found = [value for word in words if (value := self.server.value(word))]
        servers = max(1, self.observation.replicas)
        found += [value * servers for word in words[:1] if servers > 1 and (value := self.server.value(word))]
        if not found or rate <= 0:
            return None
        return min(found, key=lambda value: max(value / rate, rate / value))

    def pairs(self, topic: Topic) -> list[tuple[Claim, Pair]]:
        """Claims that compare the same load with one thing changed."""
        return [(claim, claim.pair) for claim in self.claims if claim.pair and claim.pair.topic is topic]

    def observed_rate(self, pair: Pair) -> float | None:
        """The observed rate to hold a paired one against: of the same kind, the nearest told."""
        if pair.rate is None or pair.rate <= 0:
            return None
        return self.rate_near(pair.rate, total=pair.total, per_gpu=pair.per_gpu)
