"""Hints: what a person's words point at. The weakest evidence: it never decides against any other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, SUGGESTED, Finding
from headrace.diagnose.view import ROOM, View
from headrace.words import Constraint

_HINT = SUGGESTED - 0.1
_TRACED = (
    r"\b(?:a |the )?(?:traces?|profil\w+|nsys|nsight|flame ?graph|py-?spy)\b[^.;]{0,30}\b(?:shows?"
    r"|says?|has|finds?)"
)
# Symptoms, not suspicions: a sentence that guesses, or tells of a change that did nothing, is no hint.
_GUESS = re.compile(
    r"\blooks? like|\bsuspect\w*|\bprobabl\w+|\bseems?\b|\bmaybe\b|\bguess\w*|\bfor fear\b|\bchanges? nothing"
    r"|\bnothing changes|\bno (?:change|difference)\b|\b(?:does|do|did) not help|\bstill fails?\b"
    r"|\b(?:by|within) (?:a fraction|the noise|noise|less than a)\b|\b(?:hardly|barely|scarcely)\b"
    r"|\bmakes? no\b|\bnot (?:due|because|the cause)\b|\brul(?:es?|ed|ing) out\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:no|not|nothing(?: is| was)?|never|without(?: any)?|zero|0|n't)\s+(?:\w+\s+)?$", re.IGNORECASE
)
_WORDS: tuple[tuple[Constraint, str], ...] = (
    (
        Constraint.KV_POOL,
        r"kv (?:cache|pool|memory)\b.{0,40}\b(?:full|fills?|gone|exhausted|starved)|fill (?:up )?the kv"
        r"|pre-?allocates kv|not enough kv|runs? out of kv|only [\d,.]+ ?k? tokens (?:fit|of kv)"
        r"|reports? [\d,]{6,} tokens|kv (?:cache )?(?:usage|use)\b[^.;]{0,25}\b(?:9[5-9]|100) ?%",
    ),
    (Constraint.RETRACTION, r"\bretract\w+|re-?prefill|recomputed from scratch|\bpreempt\w*"),
    (
        Constraint.STATE_POOL,
        r"\b(?:mamba|recurrent|GDN|SSM)\b[^.;]{0,40}\b(?:full|exhaust\w*|run\w* out|too few"
        r"|limit\w*|caps?|capped)\b"
        r"|\bstate (?:slots?|pool)\b[^.;]{0,40}\b(?:full|exhaust\w*|run\w* out|too few|limit\w*)",
    ),
    (
        Constraint.MAX_RUNNING_REQUESTS,
        r"\bnever more than \d+ (?:requests? )?(?:run|are running|at a time|at once)"
        r"|\bonly \d+ (?:requests? )?(?:run|are"
        r" running|at a time) (?:although|though|while)|\bstays? at exactly \d+ running",
    ),
    (
        Constraint.PREFILL,
        r"behind (?:a |the )?(?:long|large|huge|big)\w* (?:prompts?|prefills?|inputs?)"
        r"|prompts?\b[^.;]{0,40}\bholds? up"
        r"|(?:long|large|huge|big) (?:prompts?|prefills?|inputs?)\b[^.;]{0,60}\b(?:block|stall"
        r"|starv|freez|delay|hold up)\w*"
        r"|prefill\w*\b[^.;]{0,30}\b(?:dominat|starv|saturat|takes most|blocks?)\w*"
        r"|decod\w+\b[^.;]{0,30}\b(?:starv|stall|stutter|freez)\w*\b",
    ),
    (
        Constraint.LONG_TAIL,
        r"idle at the end|last few (?:requests|prompts)|straggl|long tail|slowest (?:sample|request)"
        r"|drains? early|\blag(?:s|ged|ging)? (?:far )?behind|\blags \d|wait\w* for the (?:last"
        r"|longest|slowest)"
        r"|(?:lengths?|times?) (?:differ|var(?:y|ies))|(?:single|one|few) (?:long )?(?:answers?"
        r"|generations?|requests?)"
        r" (?:keep|hold)s?\b|only (?:one|a few) (?:requests? )?(?:left|remain)",
    ),
    (
        Constraint.CONFIGURATION_ERROR,
        r"(?:refuses|fails|failed|unable|does not|never|cannot|won't|can't) (?:to )?(?:start|boot|load)s?\b"
        r"|(?:out of memory|OOM|crash\w*|dies) (?:at|during|on|while) (?:start|load|boot|captur)",
    ),
    (
        Constraint.SERVER_DOWN,
        r"\b(?:hangs?|crash(?:es|ed)?|dies|unresponsive|stops? answering|segfault"
        r"|never (?:returns|answers|comes back))\b",
    ),
    (
        Constraint.COLD_START,
        r"first (?:few )?(?:requests?|minutes?|batch(?:es)?|runs?) (?:is|are|take|at)|warm-?up|JIT compil",
    ),
    (
        Constraint.LOAD_IMBALANCE,
        r"one (?:server|rank|worker|replica|engine|pod|card|GPU)\b.{0,60}\b(?:idle|overload\w*|full|busy)"
        r"|(?:every|all|most|the same) requests?\b[^.;]{0,50}\b(?:the same|one|a single|single"
        r"|(?:a )?few)\b[^.;]{0,20}"
        r"\b(?:replicas?|servers?|pods?|instances?|cards?|GPUs?|ranks?|engines?|workers?)"
        r"|\buneven\w*\b[^.;]{0,30}\b(?:over|across|between|among)\b"
        r"|\bsome\b[^.;]{0,40}\bwhile (?:the )?others? (?:are |sit |stay )?"
        r"idle|\bwrong (?:split|ratio)"
        r"|\bonly one (?:GPU|card|server|replica|engine|worker|rank) (?:is |at a time)"
        r"|others? (?:get none|(?:are|is|stay|sit|sits|stays) idle|have no utili[sz]ation)"
        r"|uneven(?:ly)? (?:load\w*|spread|distribut\w+)|\b(?:imbalance\w*|sticky sessions?)\b",
    ),
    (
        Constraint.EXPERT_IMBALANCE,
        r"expert (?:im)?balance|hot experts?|experts?\b[^.;]{0,30}\b(?:uneven|skew)\w*",
    ),
    (
        Constraint.FRONTEND,
        r"tokeni[sz]er (?:process|worker|manager)|detokeni[sz]|one http request per|uvicorn|fastapi"
        r"|api[- ]?server (?:process )?(?:is|at|uses)\b|router (?:overhead|is the)"
        r"|one request per (?:sample|prompt)"
        r"|(?:image|video|prompt) pre-?processing|chat template (?:render\w*|takes)",
    ),
    (
        Constraint.POWER_THERMAL,
        r"low[- ]power state|clocks? (?:do not|does not|never|won't|cannot) (?:rise|boost|go up)"
        r"|(?:does|do) not boost"
        r"|\bP[258] state|\bstuck at \d+ MHz|power draw[^.;]{0,40}\blower|stays hot"
        r"|thermal(?:ly)? throttl|throttles?\b.{0,30}\b(?:heat|temperature)"
        r"|clocks? (?:drop|fall|sink)s?\b|power brake|hw slowdown",
    ),
    (
        Constraint.INTERCONNECT,
        r"over PCIe\b.{0,60}\bslow|all-?reduce (?:takes|dominates|is)|NCCL (?:takes|dominates)",
    ),
    (
        Constraint.GRAMMAR,
        r"with (?:the |a )?grammar|as soon as (?:the grammar|it) is set"
        r"|(?:structured outputs?|guided (?:decoding|json)|json (?:schema"
        r"|mode))\b[^.;]{0,60}\b(?:slow\w*|drops?|falls?|collapses?)",
    ),
    (
        Constraint.STEP_OVERHEAD,
        r"\bsynchronous\w*|\bcop(?:y|ies|ied) (?:from|to) the (?:GPU|CPU|host)"
        r"|no longer overlaps?|(?:does|do) not overlap|blocking (?:operation|call|launch)"
        r"|gaps? between (?:steps|kernels)"
        r"|\bms of (?:every|each) step [^.;]{0,20}\b(?:host|CPU)"
        r"|\b(?:CPU|host) (?:time|work|overhead) (?:between|per|in every|of every)|\bas GPU idle"
        r"|GPU idles? [^.;]{0,30}\b(?:while|between)|\b(?:host|launch|CPU)[- ]bound"
        r"|GPU waits for the (?:CPU|host)"
        r"|\b(?:python|scheduler|launch|host) overhead|bubbles? between",
    ),
    (Constraint.CUDA_GRAPH, r"without (?:a )?cuda graphs?|cuda graph:? false"),
    (
        Constraint.SPECULATION,
        r"\baccept(?:ance|ed)?\b[^.;]{0,40}\b(?:falls?|drops?|collapses?|decays?|low)\b"
        r"|\b(?:drafts?|MTP|EAGLE\d?|specul\w+)\b[^.;]{0,50}\b(?:slower|slows|hurts?|regress\w*|halves)\b",
    ),
    (
        Constraint.PREFIX_CACHE,
        r"\bsame (?:system )?(?:prompt|prefix|history)\b[^.;]{0,80}\b(?:again|every time"
        r"|each time|from scratch)\b"
        r"|\b(?:prefix|radix)\b[^.;]{0,30}\b(?:miss\w*|evict\w*|never hits?|not reused|0 ?%)"
        r"|\b(?:evict\w*)\b[^.;]{0,40}\b(?:before|prefix\w*|cache)\b"
        r"|recomput\w+ (?:the )?(?:whole|full|entire) (?:prompt|history|prefix)",
    ),
    (
        Constraint.CLIENT_SIDE,
        r"(?:client|script|benchmark)\b.{0,40}\b(?:cannot send|is the limit|too slow|one core|100 ?%)"
        r"|\b(?:connection (?:pool|limit)|max_connections|semaphore|thread ?pool)\b",
    ),
    (
        Constraint.CLIENT_CONCURRENCY,
        r"\b(?:sent|sends?|asked|submit\w*) one (?:request |prompt )?at a time"
        r"|\bone prompt after (?:an|the )other"
        r"|\bwaits? for (?:each|every) (?:answer|response|batch) before",
    ),
)


def is_guess(text: str) -> bool:
    """Returns whether a sentence guesses, or tells of a change that did nothing."""
    return _GUESS.search(text) is not None


def _affirms(text: str, pattern: str) -> bool:
    """Whether a sentence says it without a no before it."""
    return any(
        not _NEGATED.search(text[: found.start()]) for found in re.finditer(pattern, text, re.IGNORECASE)
    )


def findings(view: View) -> Iterator[Finding]:
    """Yields one weak finding per constraint that the claims point at."""
    for constraint, pattern in _WORDS:
        found = next(
            (claim for claim in view.claims if _affirms(claim.text, pattern) and not is_guess(claim.text)),
            None,
        )
        if found is not None:
            traced = found.says(_TRACED)
            yield Finding(
                constraint,
                CONFIGURED if traced else _HINT,
                (f"as told{', from a trace' if traced else ''}: {found.text[:160]}",),
                ("a reading that shows it, or does not",),
            )
    yield from _side_by_side(view)
    yield from _capacity(view)
    yield from _elsewhere_none(view)


def _elsewhere_none(view: View) -> Iterator[Finding]:
    """Requests wait at one rank or server while the others have none: counted by whoever tells it."""
    for claim in view.claims:
        if claim.says(
            r"\bothers?\b[^.;]{0,20}\b(?:have|has|had|with|run|at) (?:none|nothing|no requests?|0)\b"
        ):
            yield Finding(
                Constraint.LOAD_IMBALANCE,
                SUGGESTED + 0.05,
                (f"as told: {claim.text[:160]}",),
                ("requests per rank or server over a minute: even",),
            )
            return


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
