"""What the step model says of one server: its step by physics, then other batches and settings.

Beside the floor, which nothing beats, stands what a step of this model on this GPU under this engine usually
takes. One observed step corrects it, and the corrected model prices rungs and proposals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headrace.diagnose.baseline import Baseline
from headrace.diagnose.context import Planned
from headrace.diagnose.floor import served_width
from headrace.engines import step_options
from headrace.engines.plan import MemoryPlan
from headrace.engines.signs import Sign, Signs
from headrace.errors import UsageError
from headrace.observe.observation import ServerObservation
from headrace.perf.calibrate import Calibration, Sample
from headrace.perf.closed_loop import prefill_added_seconds
from headrace.perf.step_model import StepModel, StepTime
from headrace.perf.widths import dtype_named
from headrace.quantities import Estimate, Origin, Quantity, derived

# With one measured point of a server given, its other loads are off by 6.8 % (median of 885 public rows,
# docs/accuracy.md): of a normal spread the median is 0.6745 deviations.
_OTHER_LOAD_SPREAD = 0.068 / 0.6745
_EIGHTY = 1.2816  # standard deviations to the 10th and 90th percentile
Gain = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Prompts:
    """What prompts add to a step: from lengths where they are known, else from the share of time told.

    Attributes:
        fresh_tokens, cached_tokens, output_tokens: of a request; output 0 where a length is not known.
        seconds_each: seconds of prompts per step and running request, used where the lengths are not known.
    """

    fresh_tokens: float = 0.0
    cached_tokens: float = 0.0
    output_tokens: float = 0.0
    seconds_each: float = 0.0

    def seconds(self, model: StepModel, running: float, context: float, decode: float) -> float:
        """Returns the seconds of prompts per step with `running` requests that hold `context` tokens."""
        if self.output_tokens <= 0.0:
            return running * self.seconds_each
        one = prefill_added_seconds(model, running, context, self.fresh_tokens, self.cached_tokens, decode)
        return running * one * model.options.yield_per_request / self.output_tokens


@dataclass(frozen=True)
class Expected:
    """The step model of one server at its observed load.

    Attributes:
        physics: the model before anything was observed; `corrected` the same after it, physics where nothing
            was observed, or nothing that can be used.
        step: seconds of a step by physics, the prompts' part of it included, with its range.
        calibration: what the observed step says of the model; None where no step was observed.
        ranks: schedulers that share the server's requests.
    """

    physics: StepModel
    corrected: StepModel
    step: Quantity
    calibration: Calibration | None
    context_tokens: float
    prompts: Prompts
    ranks: int
    weights_dtype: str | None

    @property
    def extrapolates(self) -> bool:
        """Whether other batches can be priced: not where the observed step does not fit the model."""
        return self.calibration is None or self.calibration.correction is not None

    def seconds(self, running: float, model: StepModel | None = None) -> float:
        """Returns the seconds from one token of a request to its next step, prompts of others included."""
        return _whole(model or self.corrected, running / self.ranks, self.context_tokens, self.prompts)

    def rate(self, running: float) -> Estimate:
        """Returns output tokens per second of the server with so many running, by the model alone."""
        each, total = running / self.ranks, running / self.ranks * self.context_tokens
        one = self.corrected.decode_estimate(each, total)
        made = running * self.corrected.options.yield_per_request / self.seconds(running)
        return Estimate(made * one.mid / one.high, made, made * one.mid / one.low, "tokens/s")

    def gain(self, now: float, running: float, after: StepModel | None = None) -> Gain:
        """Returns the factor (low, mid, high) on throughput from `now` running to `running`.

        Args:
            after: the corrected model under other settings; None: as they are.
        """
        here, there = self.seconds(now), self.seconds(running, after)
        made = (after or self.corrected).options.yield_per_request / self.corrected.options.yield_per_request
        middle = running / now * made * here / there
        # next to the observed batch the error is that of the observation, from twice the batch on all of it
        away = min(1.0, abs(math.log(running / now)) / math.log(2.0))
        spread = _EIGHTY * _OTHER_LOAD_SPREAD * away
        below, above = (0.0, 0.0) if after is None else self._host_spread(running, after, there)
        low = middle * math.exp(-math.hypot(spread, below))
        return low, middle, middle * math.exp(math.hypot(spread, above))

    def _host_spread(self, running: float, after: StepModel, seconds: float) -> tuple[float, float]:
        """How far the host's range moves the change of settings: as logs, below and above the middle."""
        each = running / self.ranks
        hosts = [
            model.corrected(None).decode(each, each * self.context_tokens).host_seconds
            for model in (self.physics, after)
        ]
        slower = abs((hosts[1].high - hosts[1].mid) - (hosts[0].high - hosts[0].mid))
        faster = abs((hosts[1].mid - hosts[1].low) - (hosts[0].mid - hosts[0].low))
        return math.log1p(slower / seconds), math.log1p(faster / seconds)

    def under(self, plan: MemoryPlan) -> StepModel | None:
        """Returns the corrected model under the settings of another plan of the same server.

        What the host takes per request shows in a step without the overlap: it comes on top of what was seen.
        """
        try:
            accepted = self.physics.options.yield_per_request
            options = step_options(plan, accepted if accepted > 1.0 else None)
        except UsageError:
            return None
        if options.speculation is not None and self.physics.options.speculation is None:
            return None
        model = StepModel(
            self.physics.model, self.physics.device, replace(options, weights_dtype=self.weights_dtype)
        )
        correction = self.corrected.correction
        if correction is None:
            return model
        more = model.host.per_request().value - self.physics.host.per_request().value
        each = max(0.0, correction.per_request_seconds + more)
        return model.corrected(replace(correction, per_request_seconds=each))


def expected(
    server: ServerObservation,
    signs: Signs,
    baseline: Baseline,
    plan: Planned | None,
    prefill_share: Quantity | None,
) -> Expected | None:
    """Returns the step model of a server at its load; None where it cannot judge.

    It needs a memory plan (model, device, settings), how many run and their context; with drafts also the
    acceptance length. It does not know weights that lie on the host, nor engines without a GPU.
    """
    running, context = baseline.get("running"), baseline.get("context_tokens")
    if plan is None or running is None or running.value <= 0 or context is None or context.value <= 0:
        return None
    if Sign.NO_GPU in signs or Sign.WEIGHTS_ON_HOST in signs:
        return None
    inputs = plan.plan.inputs
    if inputs.device.memory_bytes_per_second is None:
        return None
    accepted = baseline.value("accept_length") or server.value("accept_length")
    try:
        options = step_options(plan.plan, accepted)
    except UsageError:
        return None
    if (options.speculation is not None and accepted is None) or (
        options.speculation is None and (accepted or 1.0) > 1.0
    ):
        return None  # drafts whose yield nobody told, or a yield of drafts whose cost nobody knows
    width = options.weights_dtype
    if width is None and served_width(inputs.model, server.weights_dtype) is not None:
        width = dtype_named(server.weights_dtype)
    physics = StepModel(inputs.model, inputs.device, replace(options, weights_dtype=width))
    ranks = max(1, server.data_parallel or 1)
    each = running.value / ranks
    total = each * context.value
    time = physics.decode(each, total)
    one = time.seconds
    prompts = _prompts(baseline, prefill_share, one.mid / each)
    whole = _whole(physics, each, context.value, prompts)
    if not math.isfinite(whole):
        return None  # figures that no server has
    factor = whole / one.mid
    step = derived(
        whole,
        "s",
        "operators + host + prompts, by the step model",
        operators=_operators(time, running, context),
        host=Quantity(
            time.host_seconds.mid,
            "s",
            Origin.DERIVED,
            "gap between steps, and what the overlap does not hide",
        ).with_range(time.host_seconds.low, time.host_seconds.high),
        prompts=Quantity(whole - one.mid, "s", Origin.DERIVED, "prompts of others, per step"),
    ).with_range(one.low * factor, one.high * factor)
    sample = sample_of(baseline, each, context.value, 1.0 / factor)
    calibration = physics.calibrate([sample]) if sample is not None else None
    corrected = physics.corrected(calibration.correction) if calibration is not None else physics
    return Expected(physics, corrected, step, calibration, context.value, prompts, ranks, width)


def _operators(time: StepTime, running: Quantity, context: Quantity) -> Quantity:
    """What the GPU takes: an input per operator, with its bytes, its roof and how much of that it reaches."""
    parts = {}
    for operator in time.operators:
        reached = f" at {operator.achieved_fraction:.0%}" if operator.achieved_fraction is not None else ""
        name = operator.name if operator.name not in parts else f"{operator.name}, other dtype"
        work = f"{operator.bytes / 1e9:,.2f} GB, {operator.flops / 1e12:,.2f} TFLOP"
        said = f"{operator.dtype}, {work}; {operator.roof}{reached}"
        seconds = operator.seconds
        parts[name] = Quantity(seconds.mid, "s", operator.origin, f"{said}: {operator.source}").with_range(
            seconds.low, seconds.high
        )
    gpu = time.gpu_seconds
    return derived(
        gpu.mid, "s", "one after the other, per scheduler", running=running, context=context, **parts
    ).with_range(gpu.low, gpu.high)


def sample_of(baseline: Baseline, batch: float, context: float, decode_share: float) -> Sample | None:
    """Returns the observed step as a sample for the step model; None where no step was seen.

    A rate of finished requests only bounds the step from one side: that is no sample.

    Args:
        batch, context: requests of one scheduler, tokens of each.
        decode_share: of a step that was reckoned from rates, what decoding takes by physics.
    """
    step = baseline.get("step_seconds")
    if step is None or step.value <= 0:
        return None
    if "rate" in step.inputs and "output_tokens_per_s" in baseline.lower_bounds:
        return None
    share = 1.0 if "step" in step.inputs else decode_share  # a step that was timed has no prompts in it
    return Sample(batch, batch * context, step.value * share)


def _prompts(baseline: Baseline, share: Quantity | None, decode_each: float) -> Prompts:
    given, made = baseline.value("mean_input_tokens"), baseline.value("mean_output_tokens")
    if given is not None and made is not None and made > 0:
        cached = given * min(max(baseline.value("cache_hit_rate") or 0.0, 0.0), 1.0)
        return Prompts(given - cached, cached, made)
    if share is None or share.value >= 0.9:
        return Prompts()
    return Prompts(seconds_each=decode_each * share.value / (1.0 - share.value))


def _whole(model: StepModel, each: float, context: float, prompts: Prompts) -> float:
    decode = model.decode_seconds(each, each * context)
    return decode + prompts.seconds(model, each, each * context, decode)
