"""What a launch line or a person's words say of how an engine runs, in words that no engine owns.

A launch line is read by flag names; what people write in place of one ("TP=2; peer access off") by a few
phrases. A sign says that something is so, not that it limits anything: `diagnose` weighs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Sign(StrEnum):
    """A fact about how a server runs."""

    EAGER = "eager"  # no captured graphs, by choice
    NO_OVERLAP = "no_overlap"  # the scheduler waits for every step
    NO_PEER_ACCESS = "no_peer_access"  # GPUs reach each other through host memory only
    SEVERAL_NODES = "several_nodes"  # one server spans machines
    SPECULATION = "speculation"  # drafts are proposed and verified
    HYBRID = "hybrid"  # the model keeps recurrent states
    HOST_CACHE = "host_cache"  # KV is kept on the host or in storage as well
    DISAGGREGATED = "disaggregated"  # prefill and decode run on different servers
    GRAMMAR = "grammar"  # output is held to a grammar
    EXPERTS_SPREAD = "experts_spread"  # expert parallelism
    NO_GPU = "no_gpu"  # the engine computes on the CPU
    SLOW_LINK = "slow_link"  # GPUs are joined by something slower than their own fabric
    NO_PREFIX_CACHE = "no_prefix_cache"  # prompts share nothing
    WEIGHTS_ON_HOST = "weights_on_host"  # some weights lie outside the GPU's memory
    ADAPTER = "adapter"  # LoRA adapters are applied beside the weights


_SIGNS: tuple[tuple[Sign, str], ...] = (
    (
        Sign.EAGER,
        r"--enforce[-_]eager\b|(?<![-\w])enforce_eager\b(?! ?= ?False)"
        r"|--disable-cuda-graph\b(?!-)|\beager mode\b",
    ),
    (Sign.NO_OVERLAP, r"--disable-overlap-schedule\b|--no-async-scheduling\b"),
    (
        Sign.NO_PEER_ACCESS,
        r"NCCL_P2P_DISABLE=[1-9]|--disable-custom-all-reduce\b|custom all-?reduce (is )?(off|disabled)"
        r"|(peer access|\bP2P)\b[^.;]{0,40}\b(off|disabled|missing|not available|unavailable)"
        r"|\b(no|without|lacks?) (PCIe )?(peer access|P2P)",
    ),
    (Sign.SEVERAL_NODES, r"--nnodes[ =]([2-9]|[1-9]\d)|\b([2-9]|[1-9]\d) nodes\b|\b(two|several) nodes\b"),
    (
        Sign.SPECULATION,
        r"--speculative[-_]\w+|--speculative-config\b|\bMTP(?! off)\b|\bEAGLE[23]?\b|\bdraft (model"
        r"|token)|\d draft|_mtp\b"
        r"|speculative decoding|\bDFlash\d?\b|\bDSpark\b",
    ),
    (Sign.HYBRID, r"--(max-)?mamba-[a-z-]+|\bmamba\b|\bGDN\b|gated delta|hybrid (model|ssm|linear)"),
    (
        Sign.HOST_CACHE,
        r"--enable-hierarchical-cache\b|--hicache-|hierarchical cache|\bhicache\b|LMCache|--kv-offloading",
    ),
    (
        Sign.DISAGGREGATED,
        r"--disaggregation-mode\b|\bPD[ -]disaggregat|disaggregat(ed|ion) (prefill|decode)|\bPD (prefill"
        r"|decode)",
    ),
    (Sign.GRAMMAR, r"\bEBNF\b|\bgrammar\b|xgrammar requests|json[- ]schema|structured outputs?\b"),
    (
        Sign.EXPERTS_SPREAD,
        r"--enable-expert-parallel\b|--ep(-size)?[ =]([2-9]|[1-9]\d)|\bEP([2-9]|1\d|\d\d)\b",
    ),
    (
        Sign.SLOW_LINK,
        r"\b(no|without) (an? )?NVLink|\bover PCIe\b|\bPCIe ?(gen ?)?[1-4](\.0)?( ?x ?(1|4|8)\b)?"
        r"|\bx(1|4) slots?\b|\bEthernet\b|\b(no|without) (RDMA|InfiniBand)|\bover TCP\b|\bThunderbolt\b",
    ),
    (Sign.NO_PREFIX_CACHE, r"--disable-radix-cache\b|--no-enable-prefix-caching\b"),
    (
        Sign.WEIGHTS_ON_HOST,
        r"--cpu-offload-gb[ =](?!0\b)[\d.]+|--n-cpu-moe[ =][1-9]\d*|--cpu-moe\b|weights? (?:are )?offload\w*"
        r"|--moe-backend[ =]offload"
        r"|\bexperts?\b[^.;]{0,25}\b(?:on|from|in) (?:the )?(?:host|CPU|RAM|system memory)"
        r"|\boffload(?:ed|ing)? (?:the )?(?:experts?|layers?)",
    ),
    (Sign.ADAPTER, r"--enable-lora\b|--lora-\w+|\bLoRA\b"),
)
_SETTINGS = {
    "device": Sign.NO_GPU,
    "device_config": Sign.NO_GPU,
    "disable_cuda_graph": Sign.EAGER,
    "enforce_eager": Sign.EAGER,
    "disable_overlap_schedule": Sign.NO_OVERLAP,
}
_OFF = re.compile(r"\b(speculation|speculative decoding|MTP) (is )?off\b", re.IGNORECASE)
_RUNNING_FLAG = re.compile(r"--max-running-requests[ =](\d+)|--max[-_]num[-_]seqs[ =](\d+)")
_GRAPH_LIMIT = re.compile(r"--cuda-graph-max-bs(?:-decode)?[ =](\d+)|--max-cudagraph-capture-size[ =](\d+)")
_CONTEXT = re.compile(r"--context-length[ =](\d+)|--max-model-len[ =](\d+)")
_BUDGET = re.compile(r"--max[-_]num[-_]batched[-_]tokens[ =](\d+)")
_RANKS = re.compile(r"--data-parallel-size[ =](\d+)|--dp-size[ =](\d+)|--dp[ =](\d+)")
_DRAFTED = re.compile(
    r"--speculative-num-steps[ =](\d+)|num_speculative_tokens\W{1,4}(\d+)"
    r"|\b(\d+) (?:speculative|draft) tokens?\b|\bn-max (\d+)|\bk ?= ?(\d+)\b"
)
_NODES = re.compile(r"--nnodes[ =](\d+)")


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs found, each with the words that say so, and the numbers of a launch line that are limits."""

    found: dict[Sign, str]
    running_flag: int | None = None
    graph_limit: int | None = None
    context_length: int | None = None
    nodes: int | None = None
    data_parallel: int | None = None  # ranks that schedule for themselves
    drafts: int | None = None  # tokens that are drafted for each step and request
    token_budget: int | None = None  # tokens that one step may compute, where decode and prompts share it

    def __contains__(self, sign: Sign) -> bool:
        return sign in self.found

    def words(self, sign: Sign) -> str:
        """The words that showed the sign, "" where it was not seen."""
        return self.found.get(sign, "")


def read_signs(
    line: str, prose: tuple[str, ...] = (), settings: Mapping[str, str | float | bool] | None = None
) -> Signs:
    """Returns the signs in a launch line, and in what people wrote about the set-up.

    Args:
        line: flags, environment assignments, or prose in their place; at most 100,000 characters are read.
        settings: the engine's settings as the server told them, by its own names.
        prose: notes. Claims do not belong here: they speak of other servers as well.
    """
    found: dict[Sign, str] = {}
    for text in (line[:100_000], *(note[:10_000] for note in prose)):
        off = _OFF.search(text) is not None
        for sign, pattern in _SIGNS:
            if sign is Sign.SPECULATION and off:
                continue
            match = re.search(pattern, text, re.IGNORECASE)
            if match and sign not in found:
                found[sign] = match.group(0).strip()
    for name, value in (settings or {}).items():
        shown = _SETTINGS.get(name)
        if shown is None or shown in found:
            continue
        if value == "cpu" if shown is Sign.NO_GPU else bool(value):
            found[shown] = f"{name}: {value if isinstance(value, str) else 'on'}"
    return Signs(
        found,
        _number(_RUNNING_FLAG, line),
        _number(_GRAPH_LIMIT, line),
        _number(_CONTEXT, line),
        _number(_NODES, line),
        _number(_RANKS, line),
        _number(_DRAFTED, line),
        _number(_BUDGET, line),
    )


def _number(pattern: re.Pattern[str], line: str) -> int | None:
    match = pattern.search(line)
    if match is None:
        return None
    return int(next(group for group in match.groups() if group)[:12])
