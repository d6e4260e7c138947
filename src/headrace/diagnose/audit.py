"""The assumption audit: what was assumed or left unsaid, perturbed; which of it would change the answer.

Each variant is the same evidence with one assumption replaced by another plausible value, diagnosed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headrace.diagnose.censored import ASSUMED_PROMPT
from headrace.diagnose.context import Context
from headrace.diagnose.document import Diagnosis
from headrace.observe.observation import ClientFacts, Observation
from headrace.quantities import Origin, Quantity

MOVES = 0.10  # an estimate that moves by more is worth a check
Diagnose = Callable[[Observation, Context], Diagnosis]


@dataclass(frozen=True)
class _Variant:
    """One assumption replaced."""

    text: str
    check: str
    observation: Observation
    context: Context


def audit(found: Diagnosis, observation: Observation, context: Context, again: Diagnose) -> tuple[str, ...]:
    """Returns a sentence for every perturbed assumption that changes the verdict or moves an estimate.

    Args:
        again: the pipeline without the audit.
    """
    told = []
    for variant in _variants(found, observation, context):
        other = again(variant.observation, variant.context)
        changes = _changes(found, other)
        if changes:
            told.append(f"{variant.text}: {changes}; {variant.check} settles it")
    return tuple(told)


def _variants(found: Diagnosis, observation: Observation, context: Context) -> Iterator[_Variant]:
    client = observation.client or ClientFacts()
    if client.load is None:
        other = "given" if client.is_free else "free"
        yield _Variant(
            f"if the load is {other}",
            f"--load {other}",
            replace(observation, client=replace(client, load=other)),
            context,
        )
    device = context.device
    if device is not None and device.candidates:
        for name in device.candidates[:4]:
            edition = context.find_device(name)
            if edition is not None:
                yield _Variant(
                    f"if the GPU is {name}", f'--gpu "{name}"', observation, replace(context, device=edition)
                )
    if any(text.startswith("prompts are ") for text in found.baseline.assumptions):
        for edge in ASSUMED_PROMPT.range:
            length = Quantity(edge, "tokens", Origin.ASSUMED, "audit")
            readings = {**client.readings, "mean_input_tokens": length}
            yield _Variant(
                f"if prompts are {edge:,.0f} tokens long",
                "mean_input_tokens in a facts file",
                replace(observation, client=replace(client, readings=readings)),
                context,
            )


def _changes(found: Diagnosis, other: Diagnosis) -> str:
    if other.binding.constraint is not found.binding.constraint:
        return f"the verdict becomes {other.binding.constraint}"
    ours = {proposal.levers: proposal.estimate for proposal in found.proposals if proposal.estimate}
    most = 0.0
    for proposal in other.proposals:
        estimate = ours.get(proposal.levers)
        if estimate is not None and proposal.estimate is not None and estimate.mid > 0:
            most = max(most, abs(proposal.estimate.mid - estimate.mid) / estimate.mid)
    return f"an estimate moves by {most:.0%}" if most > MOVES else ""
