"""Step 2, compare: with the floor of this GPU at this batch, and with what people claim, taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.diagnose.baseline import Baseline
from headrace.diagnose.claims import Claim
from headrace.diagnose.context import Context
from headrace.diagnose.floor import Floor, dense_rate
from headrace.hardware.device import Device
from headrace.quantities import Quantity, derived


class Answer(StrEnum):
    """What becomes of a claim."""

    HOLDS = "holds"
    DOES_NOT = "does_not_hold"
    CANNOT_TELL = "cannot_be_told"


@dataclass(frozen=True)
class ClaimAnswer:
    """A claim, what it assumes, and whether it holds: each as a sentence with its numbers."""

    claim: str
    answer: Answer
    because: tuple[str, ...]
    needs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "answer": str(self.answer),
            "because": list(self.because),
            "needs": list(self.needs),
        }


@dataclass(frozen=True)
class Comparison:
    """Where the fleet stands against its own floor and against what was claimed.

    Attributes:
        bound: output tokens/s of one server at the achievable floor of this batch; its high end is the data
            sheet's.
        reached: rate ÷ bound, as a range.
    """

    floor: Floor | None = None
    bound: Quantity | None = None
    reached: Quantity | None = None
    claims: tuple[ClaimAnswer, ...] = ()
    contradictions: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {
            "floor": self.floor.to_json() if self.floor else None,
            "bound_output_tokens_per_s": self.bound.to_json() if self.bound else None,
            "reached": self.reached.to_json() if self.reached else None,
            "claims": [answer.to_json() for answer in self.claims],
            "contradictions": list(self.contradictions),
        }


def compare(
    baseline: Baseline,
    floor: Floor | None,
    claims: Sequence[Claim],
    context: Context,
    contradiction: str = "",
) -> Comparison:
    """Returns the comparison of one server's baseline with its floor, and the answers to all claims."""
    bound = reached = None
    running, rate = baseline.get("running"), baseline.get("output_tokens_per_s")
    accepted = max(baseline.value("accept_length") or 1.0, 1.0)
    if floor is not None and running is not None:
        seconds = floor.seconds
        made = running.value * accepted
        bound = derived(
            made / seconds.value, "tokens/s", "running × accepted ÷ floor", running=running, floor=seconds
        ).with_range(made / seconds.range[1], made / floor.datasheet.value)
        if rate is not None:
            low, high = rate.range
            reached = derived(rate.value / bound.value, "fraction", "rate ÷ bound", rate=rate, bound=bound)
            reached = reached.with_range(low / bound.value, high / bound.value)
    answered = tuple(_answer(claim, claims, baseline, floor, bound, context) for claim in claims)
    told = (contradiction, _too_fast(baseline, floor), *_bandwidths(claims, floor, context))
    contradictions = tuple(text for text in told if text)
    return Comparison(
        floor, bound, reached, tuple(found for found in answered if found is not None), contradictions
    )


def _answer(
    claim: Claim,
    claims: Sequence[Claim],
    baseline: Baseline,
    floor: Floor | None,
    bound: Quantity | None,
    context: Context,
) -> ClaimAnswer | None:
    if claim.product is not None:
        return _product(claim, baseline, floor, bound, context)
    if claim.share is not None:
        return _share(claim, claims, baseline, context)
    if claim.halves and claim.gpu is not None:
        return _halves(claim, context)
    return None


def _ratios(here: Device, there: Device) -> dict[str, tuple[float, float, float]]:
    """What share of the other device this one has, by resource: (best known, low, high)."""
    found: dict[str, tuple[float, float, float]] = {}
    ours, theirs = here.memory_bytes_per_second, there.memory_bytes_per_second
    if ours is not None and theirs is not None:
        found["bandwidth"] = _ratio(ours, theirs)
    ours, theirs = dense_rate(here, "bf16"), dense_rate(there, "bf16")
    if ours is not None and theirs is not None:
        found["dense bf16 compute"] = _ratio(ours, theirs)
    return found


def _ratio(ours: Quantity, theirs: Quantity) -> tuple[float, float, float]:
    (low, high), (least, most) = ours.range, theirs.range
    return high / most, low / most, high / least


def _spelled(name: str, ratio: tuple[float, float, float], here: Device, there: Device) -> str:
    best, low, high = ratio
    spread = "" if high - low < 0.005 else f" ({low:.0%} to {high:.0%} over editions and sources)"
    if name == "bandwidth":
        ours, theirs = here.memory_bytes_per_second, there.memory_bytes_per_second
        assert ours is not None
        assert theirs is not None
        return (
            f"bandwidth {ours.range[1] / 1e12:.2f} of {theirs.range[1] / 1e12:.2f} TB/s is {best:.0%}{spread}"
        )
    ours, theirs = dense_rate(here, "bf16"), dense_rate(there, "bf16")
    assert ours is not None
    assert theirs is not None
    return f"{name} {ours.range[1] / 1e12:,.0f} of {theirs.range[1] / 1e12:,.0f} TFLOPS is {best:.0%}{spread}"


def _share(claim: Claim, claims: Sequence[Claim], baseline: Baseline, context: Context) -> ClaimAnswer:
    assert claim.share is not None
    low, _, name = claim.share
    here, there = context.device, context.find_device(name)
    if here is None or there is None:
        lacking = "this GPU" if here is None else f"the GPU {name}"
        return ClaimAnswer(
            claim.text, Answer.CANNOT_TELL, (f"{lacking} is not known",), (f"figures of {lacking}",)
        )
    ratios = _ratios(here, there)
    because = [_spelled(key, ratio, here, there) for key, ratio in ratios.items()]
    supported = any(low <= ratio[2] for ratio in ratios.values())
    if not supported:
        because.append(f"so neither ratio supports {low:.0%}")
    needs = [f"running requests per GPU of the {name} run, its model, dtype and lengths"]
    reference = next((c for c in claims if c.reference is not None and c.gpu == name), None)
    rate = baseline.get("output_tokens_per_s_per_gpu")
    if reference is not None and reference.reference is not None:
        gpus, made = reference.reference
        each = made / max(1.0, gpus)
        finished = baseline.get("output_tokens_per_s_finished_only")
        seen = []
        if finished is not None and each > 0:
            wide = (rate.value / baseline.numbers["output_tokens_per_s"].value) if rate else 1.0
            seen.append(f"{finished.value * wide / each:.0%} on finished requests only")
        if rate is not None and each > 0:
            start, end = rate.range
            about = f"{rate.value / each:.0%}"
            if end - start > 0.02 * rate.value:
                about += f" ({start / each:.1%} to {end / each:.1%}) with the tokens in flight"
            seen.append(about)
        if seen:
            because.append(f"seen: {', '.join(seen)} of the {each:,.0f} tok/s that a {name} is said to make")
    because.append(f"it assumes that both run the same batch: cannot be told without {needs[0]}")
    return ClaimAnswer(
        claim.text, Answer.CANNOT_TELL if supported else Answer.DOES_NOT, tuple(because), tuple(needs)
    )


def _halves(claim: Claim, context: Context) -> ClaimAnswer:
    here, there = context.device, context.find_device(claim.gpu or "")
    if here is None or there is None:
        return ClaimAnswer(claim.text, Answer.CANNOT_TELL, ("one of the GPUs is not known",))
    ratios = _ratios(here, there)
    kept = [key for key in ratios if any(half in key for half in claim.halves)]
    because = tuple(_spelled(key, ratios[key], here, there) for key in kept)
    holds = bool(kept) and all(ratios[key][1] <= 0.55 and ratios[key][2] >= 0.45 for key in kept)
    if not holds and kept:
        factor = 0.5 / (sum(ratios[key][0] for key in kept) / len(kept))
        because = (*because, f"half is off by a factor of {factor:.1f}")
    if not kept:
        return ClaimAnswer(claim.text, Answer.CANNOT_TELL, ("no figures to compare",))
    return ClaimAnswer(claim.text, Answer.HOLDS if holds else Answer.DOES_NOT, because)


def _product(
    claim: Claim, baseline: Baseline, floor: Floor | None, bound: Quantity | None, context: Context
) -> ClaimAnswer:
    assert claim.product is not None
    count, each, result = claim.product
    because = []
    holds = abs(count * each - result) <= 0.01 * max(result, 1.0)
    if not holds:
        because.append(f"{count:,.0f} × {each:g} is {count * each:,.0f}")
    running = baseline.get("running")
    if running is not None and abs(running.value - count) >= 1:
        because.append(f"it uses a batch of {count:,.0f}, and {running.value:,.0f} were running")
        holds = False
    implied = _implied_bandwidth(each, floor, context)
    if implied is not None:
        because.append(implied)
        holds = False
    if bound is not None and running is not None:
        _, high = bound.range
        because.append(
            f"like for like at {running.value:,.0f} running the floor gives {bound.value:,.0f} tok/s per "
            f"server "
            f"(achievable) to {high:,.0f} (data sheet)"
        )
    if not because:
        return ClaimAnswer(claim.text, Answer.CANNOT_TELL, (), ("running requests, model and GPU",))
    return ClaimAnswer(claim.text, Answer.HOLDS if holds else Answer.DOES_NOT, tuple(because))


def _implied_bandwidth(each: float, floor: Floor | None, context: Context) -> str | None:
    """A rate per request implies how fast the weights are read: against what the device has."""
    if floor is None or context.device is None or context.model is None:
        return None
    peak = context.device.memory_bytes_per_second
    if peak is None:
        return None
    implied = each * context.model.weight_bytes(1).value
    if implied < 0.8 * peak.range[0]:
        return (
            f"{each:g} tok/s per request reads the weights at {implied / 1e12:.2f} TB/s; no edition of "
            f"this card "
            f"has that: {peak.range[0] / 1e12:.2f} to {peak.range[1] / 1e12:.2f} TB/s by the data sheet"
        )
    if implied > 1.05 * peak.range[1]:
        return f"{each:g} tok/s per request would read the weights faster than the card can"
    return None


def _too_fast(baseline: Baseline, floor: Floor | None) -> str:
    """A step below the data sheet's floor cannot be: something that was told is wrong."""
    step = baseline.get("step_seconds")
    if floor is None or step is None or step.range[1] >= 0.97 * floor.datasheet.value:
        return ""
    return (
        f"a step of {step.value * 1e3:,.1f} ms is faster than its bytes can be read "
        f"({floor.datasheet.value * 1e3:,.1f} ms by the data sheet): running, rate, model or GPU is not "
        f"as told"
    )


def _bandwidths(claims: Sequence[Claim], floor: Floor | None, context: Context) -> list[str]:
    """Claims that use a bandwidth which disagrees with the data sheet's."""
    if floor is None or context.device is None or context.model is None:
        return []
    peak = context.device.memory_bytes_per_second
    if peak is None:
        return []
    found = []
    for claim in claims:
        if claim.product is None:
            continue
        implied = claim.product[1] * context.model.weight_bytes(1).value
        if implied < 0.8 * peak.range[0]:
            found.append(
                f"a claim reckons with {implied / 1e12:.2f} TB/s, the data sheet says "
                f"{peak.range[1] / 1e12:.2f}"
            )
    return found
