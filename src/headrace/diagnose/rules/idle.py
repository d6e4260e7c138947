"""The GPU idles while requests are there: it waits for something outside it, and words may say for what."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, SUGGESTED, Finding
from headrace.diagnose.view import View
from headrace.engines.signs import Sign
from headrace.words import Constraint

# A GPU that decodes back to back reads above nine tenths; a quarter of the time without a kernel is no noise.
BUSY = 0.75
UNUSED = 0.01
# What the GPU may wait for, by what people name. Each weighs no more than a set-up that explains the reading.
_FOR: tuple[tuple[Constraint, str], ...] = (
    (
        Constraint.GRAMMAR,
        r"structured outputs?|guided (?:decoding|generation|json|grammar)|\bgrammars?\b"
        r"|json[- ](?:schema|mode)"
        r"|xgrammar|outlines|llguidance",
    ),
    (
        Constraint.FRONTEND,
        r"tokeni[sz]\w*|pre-?process\w*|(?:HF|image|video|audio) processor|chat template|api[- ]?server"
        r"|http server|front[- ]?end|uvicorn|fastapi|multimodal (?:processing|inputs)|(?:images?"
        r"|videos?|frames) (?:are|is)"
        r" (?:decoded|resized|loaded)",
    ),
    (
        Constraint.CLIENT_SIDE,
        r"(?:client|script|load generator|data ?loader)\b[^.;]{0,50}\b(?:busy|saturat\w+|limit\w*"
        r"|100 ?%|one core|too slow"
        r"|cannot|waits?)",
    ),
    (
        Constraint.KV_TRANSFER,
        r"\b(?:KV|cache) transfers?\b|nixl|mooncake|load(?:ed|ing)? (?:back )?from (?:host|CPU|disk)",
    ),
)


def findings(view: View) -> Iterator[Finding]:
    """Yields what an idle GPU shows."""
    busy = view.server.value("gpu_utilization")
    if busy is None or Sign.NO_GPU in view.signs:
        return
    rates = ("output_tokens_per_s", "output_tokens_per_s_per_gpu", "requests_per_s", "prefill_tokens_per_s")
    makes = any(view.server.value(word) for word in rates)
    if busy < UNUSED and makes:
        yield Finding(
            Constraint.CONFIGURATION_ERROR,
            CONFIGURED,
            ("tokens are made and the GPU is not used at all: the model computes elsewhere",),
            ("layers on the GPU, from the start lines: all of them",),
        )
        return
    offered = makes or bool(view.running) or bool(view.flight) or bool(view.queued) or bool(view.claims)
    if busy >= BUSY or not offered:
        return
    evidence = [f"GPUs are busy {busy:.0%} of the time while requests are there"]
    cores = view.server.value("cpu_busy_cores")
    if cores is not None and cores >= 0.9:
        evidence.append(f"{cores:,.1f} CPU cores are busy")
    named = False
    for constraint, pattern in _FOR:
        told = next((claim for claim in view.claims if claim.says(pattern)), None)
        if told is not None:
            named = True
            yield Finding(
                constraint,
                CONFIGURED - 0.05,
                (*evidence, f"as told: {told.text[:160]}"),
                ("CPU time of the process that is named: far from a core",),
            )
    if busy >= UNUSED:
        sure = SUGGESTED + 0.05 if cores is None or named else CONFIGURED
        refutes = ("a trace of one step without gaps between kernels",)
        yield Finding(Constraint.STEP_OVERHEAD, sure, tuple(evidence), refutes)
