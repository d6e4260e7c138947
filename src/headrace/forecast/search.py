"""Which legal configuration serves most per GPU: launch lines planned, priced by the step model, compared.

Every line is checked by the engine's planner; one that the server would refuse is dropped. What an edit
gives up is kept beside it, and accuracy is never given up for the best line: such lines are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from headrace.engines import planner as planner_of
from headrace.engines import search_axes, step_options
from headrace.engines.plan import MemoryPlan, Planner
from headrace.engines.search_space import Choice
from headrace.errors import UsageError
from headrace.forecast.lengths import Lengths
from headrace.forecast.serving import running_cap, served_by
from headrace.perf.closed_loop import Served
from headrace.perf.options import StepOptions
from headrace.perf.step_model import StepModel
from headrace.quantities import Estimate

ACCURACY = 4  # the rank from which a choice gives up accuracy
_MOST_TRIED = 2_000
_SAME = 0.01  # within a hundredth the line that gives up less is better


@dataclass(frozen=True, slots=True)
class Configuration:
    """One launch line and what it serves.

    Attributes:
        change: the edit of the line as it was; "" for the line itself.
        gpus: of one replica (tensor × pipeline ranks); `replicas` of them fill the GPUs there are.
        running: requests in the batch of a scheduler.
        tokens_per_second_per_gpu: output tokens, decoding and prefill together.
    """

    change: str
    line: str
    plan: MemoryPlan
    served: Served
    gpus: int
    replicas: int
    schedulers: int  # of one replica
    gives_up: tuple[str, ...]
    rank: int
    edits: int

    @property
    def tokens_per_second_per_gpu(self) -> Estimate:
        return self.served.output_tokens_per_second.scaled(self.schedulers / self.gpus)

    @property
    def token_seconds(self) -> float:
        """Seconds per output token of one request, middle."""
        return self.served.token_seconds.mid

    def to_json(self) -> dict[str, Any]:
        """Returns the configuration as plain JSON."""
        return {
            "change": self.change,
            "flags": self.line,
            "gpus": self.gpus,
            "replicas": self.replicas,
            "running": self.served.running,
            "bound_by": str(self.plan.lowest.constraint) if self.plan.lowest else None,
            "output_tokens_per_second_per_gpu": self.tokens_per_second_per_gpu.to_json(),
            "token_seconds": self.served.token_seconds.to_json(),
            "prefill_share": self.served.prefill_share,
            "gives_up": list(self.gives_up),
            "gives_up_accuracy": self.rank >= ACCURACY,
        }


@dataclass(frozen=True, slots=True)
class Job:
    """What the lines are to do: output tokens in all, and the price of one GPU for an hour, where told."""

    output_tokens: float
    gpu_hour_price: float | None = None


@dataclass(frozen=True, slots=True)
class JobCost:
    """What a job takes under one line, in steady state: starts, last requests, failures not counted."""

    seconds: Estimate
    gpu_hours: Estimate
    price: Estimate | None

    def to_json(self) -> dict[str, Any]:
        """Returns the cost as plain JSON."""
        return {
            "seconds": self.seconds.to_json(),
            "gpu_hours": self.gpu_hours.to_json(),
            "price": self.price.to_json() if self.price else None,
        }


@dataclass(frozen=True)
class Search:
    """What a search found. The line of most tokens per second and GPU is that of least cost for any job.

    Attributes:
        now: the line as it was, None where it would not start.
        best: most output tokens per second and GPU with accuracy kept.
        best_any: the same with accuracy given up too, None where that gains nothing.
        frontier: lines (accuracy kept) of which none other is better in both tokens per second and GPU and
            seconds per token, the fastest per GPU first.
        tried, refused: lines; refused ones would not start.
    """

    now: Configuration | None
    best: Configuration | None
    best_any: Configuration | None
    frontier: tuple[Configuration, ...]
    tried: int
    refused: int
    left_out: int
    gpus: int
    job: Job | None = None

    def cost_of(self, found: Configuration) -> JobCost | None:
        """Returns what the job takes under a line; None where no job was told."""
        if self.job is None:
            return None
        each = found.tokens_per_second_per_gpu
        tokens = self.job.output_tokens / 3600.0
        hours = Estimate(tokens / each.high, tokens / each.mid, tokens / each.low, "GPU hours")
        price = self.job.gpu_hour_price
        return JobCost(
            replace(hours.scaled(3600.0 / (found.gpus * found.replicas)), unit="s"),
            hours,
            None if price is None else replace(hours.scaled(price), unit=""),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the search as plain JSON."""
        return {
            "gpus": self.gpus,
            "tried": self.tried,
            "refused": self.refused,
            "left_out": self.left_out,
            "now": self._line(self.now),
            "best": self._line(self.best),
            "best_with_accuracy_given_up": self._line(self.best_any),
            "frontier": [self._line(each) for each in self.frontier],
        }

    def _line(self, found: Configuration | None) -> dict[str, Any] | None:
        if found is None:
            return None
        cost = self.cost_of(found)
        return {**found.to_json(), **({"job": cost.to_json()} if cost else {})}


def search(
    plan: MemoryPlan,
    lengths: Lengths,
    *,
    gpus: int | None = None,
    in_flight: float | None = None,
    accept_length: float | None = None,
    most: int = 1_000,
    job: Job | None = None,
) -> Search:
    """Returns the best legal lines around a plan's own.

    Args:
        gpus: GPUs there are, for ranks × replicas; None: those of the line as it is.
        in_flight: requests that the client keeps open per scheduler; None: as many as each line can run.
        most: lines tried at most; those with the fewest edits come first.
        job: prices each line for it.
    """
    if not 1 <= most <= _MOST_TRIED:
        raise UsageError(f"a search over {most:,} lines; between 1 and {_MOST_TRIED:,} can be tried")
    own = step_options(plan)
    there = gpus or own.tp * own.pp
    planner = planner_of(plan.settings.engine)
    lines = sorted(
        product(*(axis.choices for axis in search_axes(plan, there))),
        key=lambda choices: (sum(1 for choice in choices if choice.change), sum(c.rank for c in choices)),
    )
    pricing = _Pricing(planner, plan, lengths, there, in_flight, accept_length)
    found = [each for choices in lines[:most] if (each := pricing.configuration(choices)) is not None]
    tried = min(most, len(lines))
    now = found[0] if found and not found[0].change else None
    keeps = [each for each in found if each.rank < ACCURACY]
    best, best_any = _best(keeps), _best(found)
    gains = best_any is not None and (best is None or _rate(best_any) > (1 + _SAME) * _rate(best))
    return Search(
        now,
        best,
        best_any if gains else None,
        tuple(_frontier(keeps)),
        tried,
        tried - len(found),
        len(lines) - tried,
        there,
        job,
    )


class _Pricing:
    """Plans and prices lines; step models and served loads are made once per different options."""

    def __init__(
        self,
        planner: Planner,
        plan: MemoryPlan,
        lengths: Lengths,
        gpus: int,
        in_flight: float | None,
        accept_length: float | None,
    ) -> None:
        self.planner, self.plan, self.lengths = planner, plan, lengths
        self.gpus, self.in_flight, self.accept_length = gpus, in_flight, accept_length
        self.models: dict[StepOptions, StepModel] = {}
        self.loads: dict[tuple[StepOptions, float, float], Served] = {}

    def configuration(self, choices: Sequence[Choice]) -> Configuration | None:
        """Returns the line with these choices; None where the server would refuse it or it does not fit."""
        plan = self.plan
        change = " ".join(choice.change for choice in choices if choice.change)
        if change:
            try:
                line = plan.inputs.line.changed(change, self.planner.table, plan.inputs.rules.version)
            except UsageError:
                return None
            plan = self.planner.plan(plan.inputs.with_line(line))
        if not plan.would_start or plan.lowest is None or plan.lowest.running.value < 1:
            return None
        options = step_options(plan, self.accept_length)
        ranks = options.tp * options.pp
        if ranks > self.gpus:
            return None
        made = [choice for choice in choices if choice.change]
        return Configuration(
            change,
            plan.inputs.line.text(),
            plan,
            self._served(plan, options),
            ranks,
            self.gpus // ranks,
            options.dp,
            tuple(dict.fromkeys(choice.gives_up for choice in made if choice.gives_up)),
            max((choice.rank for choice in made), default=0),
            len(made),
        )

    def _served(self, plan: MemoryPlan, options: StepOptions) -> Served:
        cap = running_cap(plan)
        in_flight = min(cap, self.in_flight) if self.in_flight else cap
        radix_off = "disable_radix_cache" in plan.settings.values and plan.settings["disable_radix_cache"]
        cached = 0.0 if radix_off else self.lengths.cached_tokens
        key = (options, in_flight, cached)
        if key not in self.loads:
            if options not in self.models:
                inputs = plan.inputs
                self.models[options] = StepModel(inputs.model, inputs.device, options)
            lengths = Lengths(self.lengths.input_tokens, self.lengths.output_tokens, cached)
            self.loads[key] = served_by(self.models[options], lengths, in_flight, None)
        return self.loads[key]


def _rate(configuration: Configuration) -> float:
    return configuration.tokens_per_second_per_gpu.mid


def _best(found: Sequence[Configuration]) -> Configuration | None:
    """The most per GPU; of those within a hundredth the one that gives up least with the fewest edits."""
    if not found:
        return None
    most = max(_rate(each) for each in found)
    near = [each for each in found if _rate(each) >= (1 - _SAME) * most]
    return min(near, key=lambda each: (each.rank, len(each.gives_up), each.edits, -_rate(each)))


def _frontier(found: Sequence[Configuration]) -> Iterator[Configuration]:
    """Lines of which none other is better both ways; steps of less than a hundredth are one."""
    quickest = float("inf")
    order = sorted(found, key=lambda each: (-_rate(each), each.token_seconds, each.rank, each.edits))
    for each in order:
        if each.token_seconds < (1 - _SAME) * quickest:
            quickest = each.token_seconds
            yield each
