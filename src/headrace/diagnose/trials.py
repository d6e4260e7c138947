"""Trials that people tell of: the same load with one thing changed, and what came of it.

Whatever makes the same load faster by its absence, or by another in its place, is what binds: that needs no
model of the step. A sentence is read for the thing that was changed, the figure that stands nearest to it,
and words of comparison. What fits no form is no trial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest

from headrace.engines.knobs import FORCES_A_KERNEL, WITHOUT_RADIX, knobs
from headrace.words import Constraint

# ── what is changed ───────────────────────────────────────────────────────────────────────────────────────
_OFF = (
    r"(?:without|no|w/o|disabling|removing|dropping|switching off|turning off|minus)\s+(?:the\s+"
    r"|any\s+|a\s+)?"
)
_GONE = r"\s+(?:is\s+|are\s+|being\s+|turned\s+|switched\s+)?(?:off|disabled|removed|gone)\b"
_ON = r"(?:with|using|enabling|turning on|switching on|adding)\s+(?:the\s+|a\s+)?"
_DRAFTS = (
    r"(?:MTP|EAGLE-?\d?|NEXTN|DFlash\d?|DSpark|n-?gram|Medusa|specul\w+(?: decod\w+)?|spec(?:[- ]dec\w*)?"
    r"|draft\w*)"
)
_FORMS = r"(?:grammars?|structured outputs?|guided[\w_-]*(?: \w+)?|json[- ]schema|xgrammar|constrain\w+)"
_KERNELS = (
    r"(?:flash-?infer|flash-?attention|flash_attn|FA[234]|triton|trtllm\w*|TRT-?LLM kernels?"
    r"|cutlass|cute ?dsl|AITER(?: kernels?)?"
    r"|marlin|machete|deep_?gemm|aiter|xformers|flash_?mla|torch[_ ]native|sdpa|cublas\w*"
    r"|tuned (?:config\w*|one\b|kernels?|block sizes?))"
)
_ENGINES = r"(?:vLLM|SGLang|TensorRT-?LLM|TRT-?LLM|llama\.?cpp|LMDeploy|TGI|ExLlama\w*|another engine)"
_FORMATS = r"(?:AWQ|GPTQ|GGUF|NVFP4|MXFP4|INT4|INT8|FP8|BF16|FP16|F16|Q\d_(?:K\w*|\d)|W4A16|W8A8)"
_HOST = r"(?:LMCache|hi-?cache|hierarchical cach\w+|(?:KV|CPU|host)[- ]offload\w*)"


class Thing(StrEnum):
    """What a trial changes."""

    DRAFTS = "drafts"  # off
    GRAMMAR = "grammar"  # off
    ADAPTER = "adapter"  # LoRA off
    EAGER = "eager"  # captured graphs on
    PREFIX_CACHE = "prefix_cache"  # on
    KERNEL = "kernel"  # another back end, or the flag that forces this one gone
    FORMAT = "format"  # another form of the weights
    ENGINE = "engine"
    RANKS = "ranks"  # fewer GPUs share a layer
    PROCESSOR = "processor"  # a faster CPU
    CLIENT = "client"
    SERVED = "served"  # the engine without its server
    COMPANY = "company"  # one request alone, or fewer
    VERSION = "version"  # another version of the same engine
    NO_RADIX = "no_radix"  # the prefix cache off: fewer states are kept for a request
    HOST_CACHE = "host_cache"  # off: KV stays on the GPU
    NARROW = "narrow"  # weights or KV in their own form, not narrowed
    SAMPLING = "sampling"  # less asked of the sampler
    LAYOUT = "layout"  # the GPUs shared out in another way
    KNOB = "knob"  # a setting of the engine, turned


_PATTERNS: tuple[tuple[Thing, str], ...] = (
    (
        Thing.DRAFTS,
        rf"\b(?:{_OFF}{_DRAFTS}\b|{_DRAFTS}{_GONE}|(?:vanilla|plain|normal|autoregressive|non-?speculative)"
        r" (?:decoding|decode|generation|run))",
    ),
    (
        Thing.NO_RADIX,
        WITHOUT_RADIX,
    ),
    (Thing.GRAMMAR, rf"\b(?:{_OFF}{_FORMS}\b|{_FORMS}{_GONE}|free text|plain text|unconstrained)"),
    (
        Thing.ADAPTER,
        r"\b(?:"
        + _OFF
        + (
            r"(?:--(?:enable-)?)?(?:LoRA|adapters?)\b|(?:base|merged) (?:model|weights)|(?:LoRA"
            r"|adapters?) (?:is |are )?merged)"
        ),
    ),
    (
        Thing.EAGER,
        rf"\b(?:{_OFF}(?:--)?(?:enforce[-_])?eager(?:[-_ ]mode)?\b|{_ON}(?:CUDA )?graphs?\b"
        rf"|(?:enforce[-_])?eager(?: mode)?{_GONE}|(?:CUDA )?graphs? (?:on|enabled))",
    ),
    (
        Thing.PREFIX_CACHE,
        rf"\b(?:{_ON}(?:prefix|radix)[- ]cach\w+|(?:prefix |radix )?cach(?:e|ing) (?:on|enabled))\b",
    ),
    (
        Thing.KERNEL,
        rf"\b(?:{_ON}{_KERNELS}\b|on {_KERNELS}\b|{_KERNELS} (?:attention |MoE "
        rf"|GEMM )?(?:back ?end|kernels?)\b"
        rf"|{_OFF}{FORCES_A_KERNEL}\b)",
    ),
    (
        Thing.SAMPLING,
        rf"\b(?:{_OFF}(?:--)?(?:(?:return|top|prompt|input)[_ ])*(?:log[_ ]?prob\w*|penalt\w+"
        rf"|logits? process\w+)"
        rf"|(?:with|at) (?:--)?(?:logprobs?|top[-_ ]?[kpn])\b)",
    ),
    (
        Thing.LAYOUT,
        r"\b(?:(?:tensor|pipeline|expert|data) parallel\w*|TP ?= ?\d+|PP ?= ?\d+"
        r"|one server per GPU|replicas of one GPU)"
        r"[^.;]{0,60}\b(?:same|instead|in place)\b|\b(?:tensor|pipeline|expert"
        r"|data) parallel\w* over the same",
    ),
    (Thing.HOST_CACHE, rf"\b(?:{_OFF}{_HOST}\b|{_HOST}{_GONE})"),
    (Thing.NARROW, rf"\b{_OFF}(?:KV )?(?:cache )?quanti[sz]\w+"),
    (Thing.FORMAT, rf"\b{_FORMATS}\b"),
    (
        Thing.RANKS,
        r"\b(?:(?:one|a single|single|1)[- ]"
        r"(?:GPU|card|device|(?:RTX |GTX |Arc )?[ABHLPTV]?[1-9]0[0-9]0?)s?\b"
        r"|TP ?= ?1\b|(?:without|no) tensor parallel\w*)",
    ),
    (
        Thing.PROCESSOR,
        r"\b(?:(?:a |with )(?:faster|newer|better|stronger|higher-clocked) (?:host )?CPU"
        r"|CPU (?:was )?(?:upgrad\w+|swap\w*"
        r"|exchanged))",
    ),
    (
        Thing.CLIENT,
        r"\b(?:k6|wrk|oha|locust|another (?:\w+ )?(?:client|transport|load generator|script)|(?:a"
        r"|the) second client"
        r"|the (?:engine's )?(?:own )?bench(?:mark)? (?:client|script|tool)s?|curl in a loop)\b",
    ),
    (
        Thing.SERVED,
        r"\b(?:LLM class|offline (?:engine|inference|batch\w*|mode|runs?|API)|in-process engine"
        r"|engine (?:directly|alone)"
        r"|LLM\.generate|native engine)\b",
    ),
    (
        Thing.COMPANY,
        r"\b(?:(?:a |one )?single (?:session|request|stream|user)|one (?:session|request|stream|user) alone"
        r"|(?:stream|request|session|user) alone|alone|one at a time|sequentially)\b",
    ),
    (
        Thing.VERSION,
        r"\b(?:(?:the )?(?:previous|older|earlier|last) (?:release|version|build|image)"
        r"|(?:before|prior to) (?:the )?(?:upgrade|update)|main ?line|the V0 engine|V0\b"
        r"|(?:version |v|release |on )?\d+\.\d+(?:\.\d+)?(?:\.post\d+)?(?= (?:gives|gave|makes|made"
        r"|reach(?:es|ed)|does|did|has|had|achieve[sd]|runs|ran|the same)\b))",
    ),
    (Thing.ENGINE, rf"\b{_ENGINES}(?![\w-])"),
)
_COMPILED = tuple((thing, re.compile(pattern, re.IGNORECASE)) for thing, pattern in _PATTERNS)

# ── figures and comparisons ───────────────────────────────────────────────────────────────────────────────
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_RATE = re.compile(
    _NUMBER + r"\+?\s*(output |total |generated |prompt )?(t|tok(?:ens?)?|req(?:uest)?s?)(?:/s\b"
    r"| per second| a second|ps\b)"
    r"( in (?:total|all))?",
    re.IGNORECASE,
)
_OF_PROMPTS = re.compile(
    r"\b(?:reads?|prefill\w*|prompt (?:processing|throughput|eval)|pp\d+)\b|\bprompts? (?:are|is) read",
    re.IGNORECASE,
)
_METRIC = re.compile(
    r"\b(TTFT|time to first token|ITL|inter-token latency|TPOT|time per token|step|latency)\b", re.IGNORECASE
)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)(?:\s*[-–]\s*\d+(?:\.\d+)?)?\s*(ms|s|seconds?)\b", re.IGNORECASE)
_TOOK = re.compile(
    r"\b(?:takes?|took|needs?|(?:finish(?:es)?|answers?) (?:in|after))\s+(\d+(?:\.\d+)?)\s*"
    r"(ms|s|seconds?)\b",
    re.IGNORECASE,
)
_METRICS = {
    "ttft": ("ttft_s",),
    "time to first token": ("ttft_s",),
    "itl": ("itl_s", "tpot_s"),
    "inter-token latency": ("itl_s", "tpot_s"),
    "tpot": ("tpot_s", "itl_s"),
    "time per token": ("tpot_s", "itl_s"),
    "latency": ("latency_s",),
    "step": ("step_s",),
}
_SHARE = re.compile(
    r"(\d+(?:\.\d+)?)\s*%[^.;%]{0,12}?\butili[sz]ation|utili[sz]ation[^.;%\d]{0,20}(\d+(?:\.\d+)?)\s*%",
    re.IGNORECASE,
)
_NUMBERS = {
    "two": 2.0,
    "three": 3.0,
    "four": 4.0,
    "five": 5.0,
    "six": 6.0,
    "eight": 8.0,
    "ten": 10.0,
    "twice": 2.0,
    "double": 2.0,
}
_FACTOR = re.compile(
    r"\b(\d+(?:\.\d+)?|two|three|four|five|six|eight|ten)(?:\s*[x×]|\s+times|\s*-?fold)\s*(?:as\s+)?"
    r"(?:faster|higher|better|more|as fast|the (?:rate|throughput|speed))",
    re.IGNORECASE,
)
_TIMES = re.compile(
    r"\b(twice|double)\b[^.;]{0,12}\b(?:as (?:fast|high|much|many)|the (?:rate|throughput|speed))",
    re.IGNORECASE,
)
_PER_CENT = re.compile(
    r"(\d+(?:\.\d+)?)\s*%\s*(below|slower|lower|less|faster|higher|more|better)", re.IGNORECASE
)
_PARTS = {
    "half": 2.0,
    "one third": 3.0,
    "a third": 3.0,
    "a quarter": 4.0,
    "one quarter": 4.0,
    "one fifth": 5.0,
    "a fifth": 5.0,
    "one tenth": 10.0,
    "a tenth": 10.0,
}
_PART = re.compile(r"\b(" + "|".join(_PARTS) + r")\b[^.;]{0,30}\bof\b", re.IGNORECASE)
_WORSE_THAN = re.compile(
    r"\b(?:slower|no faster|not (?:any )?faster|worse|lower|less|below|behind)\b[^.;]{0,45}$", re.IGNORECASE
)
_IS_BETTER = re.compile(
    r"^[^.;]{0,60}?\b(?:faster|better|higher|more|has no such|have no such"
    r"|no (?:such )?(?:problem|gap)|(?:it )?does not\b|works? (?:well|fine)|scales)\b",
    re.IGNORECASE,
)
_IS_SAME = re.compile(
    r"\b(?:nothing|the same|no (?:change|difference|gain)|not? help\w*|unchanged)\b", re.IGNORECASE
)
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class Trial:
    """The same load with `thing` changed.

    Attributes:
        words: the words that name the change.
        knob: what turning that knob speaks for, of `KNOB` alone.
        rate: tokens per second with the change; `total` counts prompts too, `of_prompts` prompts alone;
            requests per second where `of_requests`.
        here: the other rate of the sentence, where it has just one more: without the change.
        seconds: readings' words → seconds with the change, of which one may be told for this server.
        share: GPU utilisation with the change, and `share_here` without it.
        factor: how many times better it is with the change, as told.
        better: the sentence says that it is better with the change, in words.
        same: the sentence says that it makes no difference.
    """

    thing: Thing
    words: str
    text: str
    knob: Constraint | None = None
    rate: float | None = None
    here: float | None = None
    total: bool = False
    of_prompts: bool = False
    of_requests: bool = False
    seconds: dict[tuple[str, ...], float] = field(default_factory=dict)
    share: float | None = None
    share_here: float | None = None
    factor: float | None = None
    better: bool = False
    same: bool = False


def read_trials(text: str, engine: str | None = None) -> Iterator[Trial]:
    """Yields the trials of one sentence or claim, at most one per thing; 2,000 characters are read.

    Args:
        engine: this server's engine: its own name is no other engine.
    """
    text = " ".join(text[:_LONGEST].split())
    for thing, pattern in _COMPILED:
        for match in pattern.finditer(text):
            if thing is Thing.ENGINE and _same_engine(match[0], engine):
                continue
            found = _trial(thing, match, text)
            if found is not None:
                yield found
                break
    for constraint, match in knobs(text):
        turned = _trial(Thing.KNOB, match, text)
        if turned is not None:
            yield replace(turned, knob=constraint)


def _same_engine(name: str, engine: str | None) -> bool:
    return engine is not None and re.sub(r"\W", "", name.lower()) == re.sub(r"\W", "", engine.lower())


def _trial(thing: Thing, match: re.Match[str], text: str) -> Trial | None:
    before, after = text[: match.start()], text[match.end() :]
    rates = [(found, _value(found[1])) for found in _RATE.finditer(text)]
    near = min(rates, key=lambda item: _distance(match, item[0]), default=None)
    others = [value for found, value in rates if near is None or found is not near[0]]
    shares = [_value(found[1] or found[2]) / 100 for found in _SHARE.finditer(text)]
    better = bool(_WORSE_THAN.search(before) or _IS_BETTER.match(after))
    factor = _factor(before, after)
    unit = _unit(near[0]) if near else ""
    trial = Trial(
        thing,
        match[0],
        text,
        rate=near[1] if near else None,
        here=others[0] if len(others) == 1 else None,
        total=unit == "total",
        of_prompts=unit != "total" and _OF_PROMPTS.search(text) is not None,
        of_requests=unit == "requests",
        seconds=_seconds(text),
        share=shares[0] if shares else None,
        share_here=shares[1] if len(shares) == 2 else None,
        factor=factor,
        better=better,
        same=bool(_IS_SAME.search(text)),
    )
    told = (trial.rate, trial.factor, trial.share)
    return trial if any(told) or trial.seconds or better or trial.same else None


def _unit(rate: re.Match[str]) -> str:
    """`total`, `requests`, or "" for output tokens."""
    if (rate[3] or "").lower().startswith("req"):
        return "requests"
    return "total" if (rate[2] or "").lower().startswith("total") or rate[4] else ""


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _distance(match: re.Match[str], other: re.Match[str]) -> int:
    """Characters between a thing and a figure; one that follows is nearer, one past a comma farther."""
    follows = other.start() >= match.end()
    between = (
        match.string[match.end() : other.start()] if follows else match.string[other.end() : match.start()]
    )
    return len(between) + (0 if follows else 5) + (10 if re.search(r"[,;]", between) else 0)


def _seconds(text: str) -> dict[tuple[str, ...], float]:
    """Times by what they measure: the first time after the metric's name, else the last one before it."""
    found: dict[tuple[str, ...], float] = {}
    names = [*_METRIC.finditer(text)]
    for name, later in zip_longest(names, names[1:]):
        end = later.start() if later is not None else len(text)
        words = _METRICS[name[1].lower()]
        time = _SECONDS.search(text, name.end(), min(end, name.end() + 40))
        if time is None:
            earlier = [*_SECONDS.finditer(text, max(0, name.start() - 20), name.start())]
            time = earlier[-1] if earlier else None
            if time is not None and re.search(r"\b(?:of|in|to)\b", text[time.end() : name.start()]):
                time = None  # "2 ms of every step" is a part of it
        if time is not None:
            found.setdefault(words, float(time[1]) * (1e-3 if time[2].lower() == "ms" else 1.0))
    if not names and (took := _TOOK.search(text)):
        found[("latency_s", "ttft_s")] = float(took[1]) * (1e-3 if took[2].lower() == "ms" else 1.0)
    return found


def _factor(before: str, after: str) -> float | None:
    """How many times better the change is: words after its name are of it, those before of this server."""
    if found := _FACTOR.search(after):
        return _NUMBERS.get(found[1].lower()) or float(found[1])
    if found := _TIMES.search(after):
        return _NUMBERS[found[1].lower()]
    if (found := _PER_CENT.search(after)) and found[2].lower() in ("faster", "higher", "more", "better"):
        return 1.0 + float(found[1]) / 100
    if (found := _PER_CENT.search(before)) and found[2].lower() in ("below", "slower", "lower", "less"):
        left = 1.0 - float(found[1]) / 100
        return 1.0 / left if left > 0.01 else None
    if found := _PART.search(before):
        return _PARTS[found[1].lower()]
    return None
