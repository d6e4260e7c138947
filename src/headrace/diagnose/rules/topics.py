"""Topics: what a report is about, where nothing that was measured says what binds.

The last resort, and the weakest evidence there is: who writes of tokenizers has looked at tokenizers.
It speaks only where every other rule is silent, it never names what a reading rules out, and its confidence
says that it is a direction to look in, not a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from headrace.diagnose.finding import SUGGESTED, Finding
from headrace.diagnose.rules.hints import is_guess
from headrace.diagnose.view import ROOM, View
from headrace.words import Constraint

_C = Constraint
_LEAST = SUGGESTED - 0.14
_EACH = 0.02  # a second and third word of the same topic adds little
_MOST_WORDS = 4
# Parts of a set-up that nobody mentions unless they have to do with it; the others are symptoms as well.
_PARTS = frozenset(
    {
        _C.COLD_START,
        _C.GRAMMAR,
        _C.FRONTEND,
        _C.KV_TRANSFER,
        _C.SPECULATION,
        _C.EXPERT_IMBALANCE,
        _C.ADMISSION,
        _C.TOKEN_BUDGET,
    }
)

# Nouns of each topic. Words that belong to two topics stand in neither, or in both.
_TOPICS: tuple[tuple[Constraint, str], ...] = (
    (
        _C.COLD_START,
        r"first (?:\w+ )?(?:requests?|prefill|prompts?|calls?|runs?|batch|iteration|handful)|after (?:launch"
        r"|start-?up|a restart)|\bcold[- ]start\w*|warm-?s?(?:ed)?[- ]?up|compil(?:e[sd]?|ing|ation)\b"
        r"|\bJIT\b|autotun\w+|steady[- ]state",
    ),
    (
        _C.GRAMMAR,
        r"guided[_ -]\w+|structured[- ]\w+|\bgrammars?\b|json[- ](?:schema|mode|output)|xgrammar|outlines"
        r"|llguidance|bitmasks?|constrained decod\w+|\bFSM\b",
    ),
    (
        _C.FRONTEND,
        r"(?:de)?tokeni[sz]\w+|api[- ]?servers?|uvicorn|fastapi|http (?:server|request)\w*|chat templates?"
        r"|pre-?process\w*|router|gateway|proxy|\bZMQ\b|serialis\w+ of|front[- ]?end|asyncio|event loop"
        r"|image processor",
    ),
    (
        _C.PREFILL,
        r"\bpre-?fill\w*|long[- ](?:context |text )?(?:prompts?|inputs?|requests?)|prompt processing"
        r"|\d+ ?k[- ]token",
    ),
    (
        _C.KV_TRANSFER,
        r"KV (?:cache )?transfers?|LMCache|hi-?cache|hierarchical cach\w+|offload\w*|nixl|mooncake|\bRDMA\b"
        r"|host memory|load(?:ed|ing)? back|prefill and decode (?:workers|nodes|servers)|disaggregat\w+",
    ),
    (
        _C.PREFIX_CACHE,
        r"\bprefix\w*|hit rate|\bcache hits?|cached tokens|radix|(?:same|identical|shared|common|repeated)"
        r" (?:\d+\w? ?)?(?:\w+ )?(?:prompts?|prefix\w*|history|tokens|system prompt)|second (?:time|turn"
        r"|sighting)|repeats? the|re-?computed?|evict\w*|multi-?turn|conversation\w*",
    ),
    (
        _C.SPECULATION,
        r"\bMTP\b|\bEAGLE\w*|draft\w*|specul\w+|\baccept\w*|n-?gram|DFlash\d?|DSpark|Medusa|verif(?:y|ication)",
    ),
    (
        _C.INTERCONNECT,
        r"NVLink|\bPCIe\b|all-?reduce|\bNCCL\b|tensor[- ]parallel\w*|\bTP ?=? ?\d+|peer access|\bP2P\b"
        r"|network|ethernet|InfiniBand|inter-?node|all-?to-?all|DeepEP|pipeline[- ]parallel\w*|NUMA|switch"
        r"|experts? (?:on|from) the (?:host|CPU)|more experts fit|experts fit",
    ),
    (
        _C.KERNEL_PATH,
        r"\bkernels?\b|triton|cutlass|marlin|dequant\w*|fall-?back|back-?ends?|flash-?attention|flashinfer"
        r"|\bGEMMs?\b|tun(?:ed|ing)\b|block size|AWQ|GPTQ|\bcubins?|tensor cores|architecture|deep_?gemm"
        r"|native (?:support|code)",
    ),
    (
        _C.STEP_OVERHEAD,
        r"\bCPU\b|\bhost\b|python|schedul(?:er|ing)|launch\w*|between (?:decode |two )?(?:steps|iterations"
        r"|kernels)|synchron\w*|blocks?\b[^.;]{0,20}\bstep|copies|bubbles?|idle|\bGIL\b|post-?process\w*"
        r"|sampl(?:er|ing)|log[- _]?prob\w*|overhead",
    ),
    (_C.CUDA_GRAPH, r"cuda[- ]?graphs?|captur\w+|graph (?:replay|mode)|captured sizes?"),
    (
        _C.SERVER_DOWN,
        r"\b(?:hangs?|hung|stuck|dead ?lock\w*|crash\w*|dies|died|killed|segfault\w*|unresponsive|leaks?"
        r"|timeouts?|never (?:get|return|answer)\w*|no response)\b",
    ),
    (
        _C.POWER_THERMAL,
        r"\bpower\b|watts?\b|thermal\w*|temperature|throttl\w*|clocks?\b|\bMHz\b|cooling|airflow|P-?state",
    ),
    (_C.ADMISSION, r"conservativeness|new[- _]token[- _]ratio|admi(?:t|ssion)\w*|reserv(?:e|ed|es|ation)\b"),
    (
        _C.LOAD_IMBALANCE,
        r"\b(?:ranks?|replicas?|workers?|pods?|instances?|engines?|GPUs?)\b[^.;]{0,60}\b(?:idle\w*|uneven\w*"
        r"|others?|imbalanc\w*|overload\w*|few)\b|load[- ]balanc\w*|round[- ]robin|skew\w*|uneven\w*",
    ),
    (
        _C.EXPERT_IMBALANCE,
        r"EPLB|expert (?:load|balance|parallel)\w*|hot experts?|balancedness|redundant experts",
    ),
    (
        _C.RUNAWAY_LENGTH,
        r"never stops?|end(?:less|s? of sequence)|repeats? (?:itself|the same)|max_tokens|stop token|\bEOS\b"
        r"|go(?:es)? on for|more than \d+k? tokens|loops?\b|infinite\w*|do not follow the format",
    ),
    (
        _C.LONG_TAIL,
        r"stragglers?|long[- ]tail|\btail\b|last (?:few |\d+ )?(?:samples?|requests?|prompts?)|slowest"
        r"|longest|wait\w* for the",
    ),
    (
        _C.CLIENT_SIDE,
        r"\bclients?\b|connections?\b|load generator|benchmark script|browser|semaphore|thread ?pool|aiohttp"
        r"|httpx|data ?loader|rate limit\w*",
    ),
    (
        _C.CLIENT_CONCURRENCY,
        r"one (?:request |prompt )?at a time|sequential\w*|one after (?:the )?other|batch(?:es)? of one"
        r"|low concurrency|more (?:concurrency|requests in flight)",
    ),
    (_C.RETRACTION, r"retract\w*|preempt\w*|swap(?:ped|ping)?\b"),
    (
        _C.KV_POOL,
        r"KV (?:cache|pool|memory|blocks?|space)|out of memory|\bOOM\b|not enough (?:memory|room)"
        r"|max[- ]model[- ]len|VRAM|gpu[- _]memory[- _]utili[sz]ation|mem[- _]fraction\w*",
    ),
    (_C.STATE_POOL, r"\bmamba\b|\bSSM\b|recurrent|state (?:slots?|pool|cache)|\bGDN\b|linear attention"),
    (
        _C.MAX_RUNNING_REQUESTS,
        r"max[-_ ]num[-_ ]seqs|max[-_ ]running[-_ ]requests?|\bslots?\b"
        r"|concurrent requests? (?:is |are )?limit|batch size (?:limit|cap)\w*",
    ),
    (
        _C.TOKEN_BUDGET,
        r"max[-_ ]num[-_ ]batched[-_ ]tokens|chunked[- _]prefill[- _]size|token budget|chunk size",
    ),
    (_C.MEMORY_BANDWIDTH, r"bandwidth|roofline|GB/s|bytes per token|memory[- ]bound"),
    (_C.COMPUTE, r"FLOPS?\b|compute[- ]bound|tensor throughput"),
    (
        _C.CONFIGURATION_ERROR,
        r"(?:not|n't|fails? to|cannot|refus\w+ to) (?:start|boot|load)\w*|mis-?configur\w*|wrong (?:flag"
        r"|setting|default)s?|unsupported|invalid",
    ),
)
_OFF = re.compile(r"\s+(?:is |was )?(?:off|disabled|not used)\b", re.IGNORECASE)
_COMPILED = tuple((constraint, re.compile(pattern, re.IGNORECASE)) for constraint, pattern in _TOPICS)


def findings(view: View) -> Iterator[Finding]:
    """Yields the two topics that the claims speak of most, that no reading rules out; at most two."""
    texts = [claim.text for claim in view.claims if not is_guess(claim.text)]
    counted = _counted(view, texts)
    for place, (_, _, constraint, words) in enumerate(counted[:2]):
        more = _EACH * (min(len(words), _MOST_WORDS) - 1)
        yield Finding(
            constraint,
            _LEAST + more if place == 0 else _LEAST - 0.06,
            (f"nothing that was measured says what binds; the report speaks of {', '.join(words[:3])}",),
            ("any reading that shows another limit: see what is missing",),
        )


def _counted(view: View, texts: list[str]) -> list[tuple[float, int, Constraint, list[str]]]:
    """Topics by how many of their words stand in some texts, the most first."""
    counted = [
        (len(words) + 0.5 * (constraint in _PARTS), -at, constraint, words)
        for constraint, pattern in _COMPILED
        if not _ruled_out(view, constraint)
        for words, at in [_hits(pattern, texts)]
        if words
    ]
    counted.sort(key=lambda item: item[:2], reverse=True)
    return counted


def _hits(pattern: re.Pattern[str], texts: Iterable[str]) -> tuple[list[str], int]:
    """The different words of a topic, and where the first of them stands."""
    words: dict[str, str] = {}
    first, start = 1 << 30, 0
    for text in texts:
        for found in pattern.finditer(text):
            if _OFF.match(text, found.end()):
                continue  # what is off is not at work
            words.setdefault(found[0].lower(), found[0])
            first = min(first, start + found.start())
        start += len(text) + 1
    return list(words.values()), first


def _ruled_out(view: View, constraint: Constraint) -> bool:
    """Whether a reading speaks against a constraint, so that words alone must not name it."""
    value = view.server.value
    usage = view.fullest_pool
    if constraint in (_C.KV_POOL, _C.RETRACTION):
        return usage is not None and usage[1] < ROOM
    if constraint in (_C.INTERCONNECT, _C.EXPERT_IMBALANCE):
        return view.server.gpus == 1 and constraint is _C.EXPERT_IMBALANCE
    if constraint is _C.CLIENT_CONCURRENCY:
        return not view.load_is_free or view.waits is True
    if constraint in (_C.ADMISSION, _C.MAX_RUNNING_REQUESTS, _C.TOKEN_BUDGET):
        return view.queued == 0 or view.flight == 1
    if constraint is _C.STATE_POOL:
        return not view.is_hybrid or view.queued == 0 or view.flight == 1
    if constraint is _C.POWER_THERMAL:
        power, limit = value("gpu_power_w"), value("gpu_power_limit_w")
        cool = power is not None and limit is not None and power < 0.8 * limit
        return cool or value("throttle_power_percent") == 0
    if constraint is _C.CUDA_GRAPH:
        return value("cuda_graph") == 1 or value("cuda_graph_hit_rate") == 1
    if constraint is _C.PREFIX_CACHE:
        return (view.baseline.value("cache_hit_rate") or 0.0) > 0.9
    if constraint is _C.PREFILL:
        share = view.decomposition.prefill_share
        return share is not None and share.range[1] < 0.1
    if constraint in (_C.MEMORY_BANDWIDTH, _C.COMPUTE):
        floor = view.decomposition.floor_share
        return floor is not None and floor.range[1] < 0.4
    return False
