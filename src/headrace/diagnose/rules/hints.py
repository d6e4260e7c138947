"""Hints: what a person's words point at. The weakest evidence: it never decides against any other."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.diagnose.finding import SUGGESTED, Finding
from headrace.diagnose.view import ROOM, View
from headrace.words import Constraint

_HINT = SUGGESTED - 0.1
_WORDS: tuple[tuple[Constraint, str], ...] = (
    (
        Constraint.KV_POOL,
        r"kv (?:cache|pool|memory)\b.{0,40}\b(?:full|fills?|gone|exhausted|starved)|fill (?:up )?the kv"
        r"|pre-?allocates kv"
        r"|not enough kv|runs? out of kv|only [\d,.]+ ?k? tokens (?:fit|of kv)|reports? [\d,]{6,} tokens",
    ),
    (Constraint.RETRACTION, r"\bretract\w+|re-?prefill|recomputed from scratch"),
    (
        Constraint.LONG_TAIL,
        r"idle at the end|last few (?:requests|prompts)|straggl|long tail|slowest (?:sample|request)",
    ),
    (
        Constraint.CONFIGURATION_ERROR,
        r"(?:refuses|fails|failed|unable|does not|never|cannot|won't|can't) (?:to )?(?:start|boot|load)s?\b"
        r"|(?:out of memory|OOM|crash\w*|dies) (?:at|during|on|while) (?:start|load|boot|captur)",
    ),
    (Constraint.SERVER_DOWN, r"\b(?:hangs?|crash(?:es|ed)?|dies|unresponsive|stops? answering|segfault)\b"),
    (
        Constraint.COLD_START,
        r"first (?:few )?(?:requests?|minutes?|batch(?:es)?|runs?) (?:is|are|take)|warm-?up|JIT compil",
    ),
    (Constraint.LOAD_IMBALANCE, r"one (?:server|rank|worker)\b.{0,60}\bidle|uneven(?:ly)? (?:load|spread)"),
    (Constraint.EXPERT_IMBALANCE, r"expert (?:im)?balance|hot experts?"),
    (
        Constraint.FRONTEND,
        r"tokeni[sz]er (?:process|worker|manager)|detokeni[sz]|one http request per|uvicorn|fastapi"
        r"|api[- ]?server (?:process )?(?:is|at|uses)\b|router (?:overhead|is the)",
    ),
    (Constraint.POWER_THERMAL, r"stays hot|thermal(?:ly)? throttl|throttles?\b.{0,30}\b(?:heat|temperature)"),
    (Constraint.INTERCONNECT, r"over PCIe\b.{0,60}\bslow|all-?reduce (?:takes|dominates)"),
    (Constraint.GRAMMAR, r"with (?:the |a )?grammar|as soon as (?:the grammar|it) is set"),
    (Constraint.CUDA_GRAPH, r"without (?:a )?cuda graphs?|cuda graph:? false"),
    (Constraint.CLIENT_SIDE, r"(?:client|script|benchmark)\b.{0,40}\b(?:cannot send|is the limit|too slow)"),
)


def findings(view: View) -> Iterator[Finding]:
    """Yields one weak finding per constraint that the claims point at."""
    for constraint, pattern in _WORDS:
        found = next((claim for claim in view.claims if claim.says(pattern)), None)
        if found is not None:
            yield Finding(
                constraint,
                _HINT,
                (f"as told: {found.text[:160]}",),
                ("a reading that shows it, or does not",),
            )
    yield from _side_by_side(view)
    yield from _capacity(view)


def _side_by_side(view: View) -> Iterator[Finding]:
    """Requests do not run side by side though KV has room, on a model with recurrent states."""
    told = next(
        (
            claim
            for claim in view.claims
            if claim.says(
                r"cannot run (?:concurrently|side by side)|seriali[sz]e"
                r"|only (?:about )?\d+ of \d+ (?:requests )?run"
            )
        ),
        None,
    )
    if told is None or not view.is_hybrid:
        return
    usage = view.server.value("kv_usage")
    if (usage is not None and usage < ROOM) or told.says(r"little KV|few KV|KV (?:is )?(?:empty|free|idle)"):
        yield Finding(
            Constraint.STATE_POOL,
            SUGGESTED + 0.1,
            (f"as told: {told.text[:160]}", "the model keeps recurrent states, and KV has room"),
            ("slots ÷ slots per request from the start lines: more than run",),
        )
    else:
        yield Finding(Constraint.STATE_POOL, _HINT, (f"as told: {told.text[:160]}",), ("free state slots",))


def _capacity(view: View) -> Iterator[Finding]:
    """Narrower KV brings less room than it should: the pool is not made of KV alone."""
    for claim in view.claims:
        if not claim.says(r"fp8 kv|kv (?:in )?fp8|narrower kv") or not claim.says(
            r"capacity|concurrency|room|tokens fit"
        ):
            continue
        if view.is_hybrid or claim.says(r"\bhybrid"):
            yield Finding(
                Constraint.STATE_POOL,
                SUGGESTED + 0.1,
                (
                    "narrower KV gives less than its share of room: states set the size",
                    f"as told: {claim.text[:160]}",
                ),
                ("bytes per block with and without narrower KV: halved",),
            )
