"""Trials: what made the same load faster by its absence, or by another in its place, is what binds."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, PAIRED, SUGGESTED, Finding
from headrace.diagnose.floor import dtype_bytes
from headrace.diagnose.trials import Thing, Trial
from headrace.diagnose.view import View
from headrace.engines.signs import Sign
from headrace.words import Constraint

# thing → (what binds, how to see that it does not). An engine in place of another changes everything at once.
_MEANS: dict[Thing, tuple[Constraint, str]] = {
    Thing.DRAFTS: (Constraint.SPECULATION, "acceptance on other traffic: it decides whether drafts pay"),
    Thing.GRAMMAR: (Constraint.GRAMMAR, "CPU time of the grammar's process: little"),
    Thing.ADAPTER: (Constraint.KERNEL_PATH, "the adapter merged into the weights: no faster"),
    Thing.EAGER: (Constraint.STEP_OVERHEAD, "a trace of one step without gaps between kernels"),
    Thing.PREFIX_CACHE: (Constraint.PREFIX_CACHE, "prompts that differ from their first token on"),
    Thing.KERNEL: (
        Constraint.KERNEL_PATH,
        "the same pair at another batch and context: a crossover is a matter of shapes",
    ),
    Thing.FORMAT: (
        Constraint.KERNEL_PATH,
        "the same pair at another batch and context: a crossover is a matter of shapes",
    ),
    Thing.ENGINE: (
        Constraint.KERNEL_PATH,
        "both engines with the same back ends, graphs and running requests",
    ),
    Thing.RANKS: (Constraint.INTERCONNECT, "a trace of one step: all-reduce under a tenth of it"),
    Thing.PROCESSOR: (Constraint.STEP_OVERHEAD, "a trace of one step without gaps between kernels"),
    Thing.CLIENT: (Constraint.CLIENT_SIDE, "the first client's CPU and connections: far from their limits"),
    Thing.SERVED: (Constraint.FRONTEND, "CPU time of the server's front-end processes: far from a core each"),
    Thing.SAMPLING: (Constraint.STEP_OVERHEAD, "time between the last layer and the next step: little"),
    Thing.LAYOUT: (Constraint.INTERCONNECT, "a trace of one step: traffic between GPUs under a tenth of it"),
    Thing.HOST_CACHE: (Constraint.KV_TRANSFER, "time spent moving KV between host and GPU: little"),
    Thing.NARROW: (
        Constraint.KERNEL_PATH,
        "the same pair at another batch and context: a crossover is a matter of shapes",
    ),
    Thing.VERSION: (
        Constraint.KERNEL_PATH,
        "both versions with the same back ends, graphs and running requests, by their start lines",
    ),
    Thing.NO_RADIX: (Constraint.STATE_POOL, "the cap on running requests with and without it: the same"),
    Thing.COMPANY: (Constraint.SPECULATION, "the same two loads without drafts: it falls as well"),
}
_LEAST = 1.07  # under it, two runs of the same set-up differ as much
_LEAST_OF = {Thing.DRAFTS: 1.02}  # drafts that do not pay cost memory and complexity for nothing
# Another engine's figure tells that software is at fault, not which part: it never outweighs a reading.
_WEAK = {Thing.ENGINE: 0.27, Thing.VERSION: SUGGESTED}


def findings(view: View) -> Iterator[Finding]:
    """Yields what the trials show."""
    for trial in view.trials:
        if trial.knob is not None:
            constraint, refutes = (
                trial.knob,
                "the same change once more, with nothing else changed: no better",
            )
        elif trial.thing in _MEANS:
            constraint, refutes = _MEANS[trial.thing]
        else:
            continue
        if trial.thing is Thing.EAGER and Sign.EAGER not in view.signs:
            constraint = Constraint.CUDA_GRAPH
        if trial.thing is Thing.VERSION and any(claim.says(r"\beager\b") for claim in view.claims):
            constraint = Constraint.STEP_OVERHEAD
        if not _applies(view, trial):
            continue
        gain = advantage(view, trial)
        if gain is None and trial.better and not trial.same:
            sure, told = SUGGESTED, "it is told to be better so"
        elif gain is not None and gain >= _least(view, trial):
            sure, told = PAIRED, f"{gain:.1f} times better so"
        else:
            continue
        sure = min(sure, _WEAK.get(trial.thing, 1.0)) if gain is None or trial.thing in _WEAK else sure
        if trial.thing is Thing.ENGINE and gain is None:
            continue
        if trial.thing in (Thing.COMPANY, Thing.HOST_CACHE):
            sure = min(sure, CONFIGURED + 0.1)
        yield Finding(
            constraint,
            sure,
            (f"the same load, {trial.words}: {told}", f"as told: {trial.text[:160]}"),
            (refutes,),
            gain=(1.0, gain, 1.1 * gain) if gain is not None else None,
        )


def _least(view: View, trial: Trial) -> float:
    """The least gain that counts: of a form that moves more bytes, any at all is against what bytes say."""
    if trial.thing is Thing.FORMAT:
        own = (dtype_bytes(view.server.weights_dtype), dtype_bytes(view.server.kv_dtype))
        there = dtype_bytes(trial.words)
        if there is not None and any(width is not None and width < 0.75 * there for width in own):
            return _LEAST_OF[Thing.DRAFTS]
    return _LEAST_OF.get(trial.thing, _LEAST)


def _applies(view: View, trial: Trial) -> bool:
    """Whether the change is one for this server, and speaks for its constraint alone."""
    thing = trial.thing
    if thing is Thing.RANKS:
        return view.ranks > 1
    if thing is Thing.LAYOUT:
        return (view.server.gpus or 1) > 1 or view.ranks > 1
    if thing is Thing.NO_RADIX:
        return view.is_hybrid and Sign.NO_PREFIX_CACHE not in view.signs
    if thing is Thing.PREFIX_CACHE:
        return Sign.NO_PREFIX_CACHE in view.signs or (view.baseline.value("cache_hit_rate") or 0.0) < 0.05
    if thing is Thing.ADAPTER:
        return Sign.ADAPTER in view.signs or "lora" in trial.text.lower()
    if thing is Thing.COMPANY:
        # decoding in company never makes less in all, but for drafts, which are verified for every request
        return Sign.SPECULATION in view.signs and trial.rate is not None
    if thing is Thing.FORMAT:
        here, there = dtype_bytes(view.server.weights_dtype), dtype_bytes(trial.words)
        narrower = here is not None and there is not None and there < 0.75 * here
        measured = trial.seconds or trial.factor or trial.of_prompts or trial.of_requests
        return bool(measured) and not narrower and not _own_format(view, trial)
    return True


def _own_format(view: View, trial: Trial) -> bool:
    name = trial.words.lower()
    own = (view.server.weights_dtype, view.server.kv_dtype, view.server.model)
    return any(name in (told or "").lower() for told in own)


def advantage(view: View, trial: Trial) -> float | None:
    """Returns how many times better the changed run was, None where no figures can be compared."""
    if trial.factor is not None:
        return trial.factor
    if trial.thing is Thing.COMPANY:
        here = view.server.value("output_tokens_per_s")  # of all together, not of one of them
        return trial.rate / here if here and trial.rate else None
    if trial.rate is not None:
        if trial.of_requests:
            here = view.server.value("requests_per_s") or trial.here
        elif trial.of_prompts:
            here = view.server.value("prefill_tokens_per_s") or trial.here
        else:
            here = view.rate_near(trial.rate, total=trial.total) or trial.here
        if here:
            return trial.rate / here
    for words, seconds in trial.seconds.items():
        here = next((value for word in words if (value := view.reading_seconds(word))), None)
        if here and seconds > 0:
            return here / seconds
    if trial.share is not None:
        here = trial.share_here or view.server.value("gpu_utilization")
        if here:
            return trial.share / here
    return None
