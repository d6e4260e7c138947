"""The prefix cache: prompts that share a beginning and find nothing, states that are gone before their KV."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, COUNTED, PAIRED, Finding
from headrace.diagnose.view import FULL, View
from headrace.engines.signs import Sign
from headrace.words import Constraint

_MISSES = r"hit rate|prefix(?:es)? hits?|cache hits?|\b0 (?:host )?hits\b|0 hits|never (?:records? )?a hit"
_SHARED = (
    r"\b(?:same|identical|common|repeated|shared?)\b[^.;]{0,30}\b(?:prompts?|prefix\w*|tokens|history)"
    r"|system prompt|repeats? (?:the|all|its)\b|multi-?turn|\bsent (?:again|twice|(?:two|three|\d+) times)"
    r"|\bfrom (?:its|the) (?:first|very first) token\b"
)
# the same prompt once more, and as long again
_AGAIN = (
    r"(\d+(?:\.\d+)?) ?s\b[^.;]{0,30}\bcold\b|\bcold\b[^.;]{0,40}?(\d+(?:\.\d+)?) ?s\b|read again from the"
    r" (?:beginning|start)|\bread (?:again|anew)\b|identical prefix[^.;]{0,40}\bagain\b"
)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def findings(view: View) -> Iterator[Finding]:
    """Yields what the prefix cache shows."""
    yield from _host_states_full(view)
    yield from _switched_off(view)
    yield from _block_too_long(view)
    yield from _read_again(view)
    yield from _nothing_found(view)
    yield from _falls_with_load(view)


def _host_states_full(view: View) -> Iterator[Finding]:
    """Host states are used up while host KV is not: KV without its state cannot be restored."""
    states, tokens = view.server.value("host_state_usage"), view.server.value("host_kv_usage")
    if states is None or states < FULL or (tokens is not None and tokens >= FULL):
        return
    slots = view.server.value("host_state_slots")
    evidence = [
        f"host state pool {states:.0%} used"
        + (f" ({slots:,.0f} slots)" if slots else "")
        + (f", host KV {tokens:.0%}" if tokens is not None else "")
        + ": KV without its state cannot be restored"
    ]
    hits = view.baseline.value("cache_hit_rate")
    if hits is not None and hits < 0.05:
        evidence.append(f"hit rate {hits:.0%}")
    yield Finding(
        Constraint.PREFIX_CACHE, COUNTED, tuple(evidence), ("more host states with the same hit rate",)
    )
    yield Finding(Constraint.STATE_POOL, CONFIGURED, tuple(evidence), ("free host state slots",))


def _switched_off(view: View) -> Iterator[Finding]:
    """Prompts share much of themselves, and the cache that would find it is off by choice."""
    shared = view.client.value("shared_prefix_fraction")
    if Sign.NO_PREFIX_CACHE not in view.signs or shared is None or shared < 0.3:
        return
    yield Finding(
        Constraint.PREFIX_CACHE,
        CONFIGURED,
        (f"prompts share {shared:.0%}, and prefix reuse is off ({view.signs.words(Sign.NO_PREFIX_CACHE)})",),
        ("time spent on prompts: little",),
        gain=None,
    )


def _block_too_long(view: View) -> Iterator[Finding]:
    """A prefix counts from a whole block on, and no request can be as long as a block."""
    block, hits = view.server.value("attention_block_tokens"), view.baseline.value("cache_hit_rate")
    longest = view.signs.context_length or view.client.value("prompt_tokens_below")
    if block is None or longest is None or longest > block or (hits is not None and hits > 0.05):
        return
    yield Finding(
        Constraint.PREFIX_CACHE,
        COUNTED if hits is not None else CONFIGURED,
        (
            f"a prefix counts from a whole block of {block:,.0f} tokens on, and requests have at most "
            f"{longest:,.0f}",
        ),
        ("hits with these two sizes",),
    )


def _read_again(view: View) -> Iterator[Finding]:
    """The same prompt takes as long the second time as the first."""
    told = next((claim for claim in view.claims if claim.says(_AGAIN)), None)
    if told is None or Sign.NO_PREFIX_CACHE in view.signs:
        return
    now = view.server.value("ttft_s")
    cold = [float(found) for pair in re.findall(_AGAIN, told.text, re.IGNORECASE) for found in pair if found]
    if cold and (now is None or now < 0.7 * cold[0]):
        return
    yield Finding(
        Constraint.PREFIX_CACHE,
        CONFIGURED,
        (f"a prompt that was read before takes as long again: {told.text[:160]}",),
        ("cached tokens of the second request: nearly all of its prompt",),
    )


def _nothing_found(view: View) -> Iterator[Finding]:
    """Prompts share a prefix, by what was told, and none of it is found."""
    hits = view.baseline.value("cache_hit_rate")
    if hits is None or hits > 0.05 or Sign.NO_PREFIX_CACHE in view.signs:
        return
    shared = view.client.value("shared_prefix_fraction")
    block = view.server.value("attention_block_tokens")
    complaint = next((claim for claim in view.claims if claim.says(_MISSES) or claim.says(_SHARED)), None)
    below = view.client.value("prompt_tokens_below")
    too_short = block is not None and below is not None and below <= block
    if (shared is None or shared < 0.2) and complaint is None and not too_short:
        return
    evidence = [f"hit rate {hits:.0%}"]
    if shared is not None:
        evidence[0] += f" of prompts that share {shared:.0%}"
    if complaint is not None:
        evidence.append(f"as told: {complaint.text[:160]}")
    if block is not None and block > 64:
        evidence.append(f"a prefix counts from a whole block of {block:,.0f} tokens on")
    yield Finding(
        Constraint.PREFIX_CACHE,
        COUNTED,
        tuple(evidence),
        ("prompts that differ from their first token on: then there is nothing to find",),
    )


def _falls_with_load(view: View) -> Iterator[Finding]:
    """The hit rate falls as more run: what they share is evicted before it is used again."""
    hits = view.baseline.value("cache_hit_rate")
    for claim in view.claims:
        if not claim.says("hit rate") or not claim.says(r"in flight|concurren|running|users"):
            continue
        told = [float(found) / 100 for found in _PERCENT.findall(claim.text)]
        if len(told) < 2 or max(told) - min(told) < 0.1:
            continue
        evidence = (
            f"the hit rate falls from {max(told):.0%} to {hits if hits is not None else min(told):.0%} "
            f"as more are in "
            "flight: prefixes are gone before they are used again",
            f"as told: {claim.text[:160]}",
        )
        yield Finding(Constraint.PREFIX_CACHE, PAIRED, evidence, ("evictions: none between the two loads",))
        if view.is_hybrid or claim.says(r"full-attention KV|KV can still|recurrent|mamba"):
            yield Finding(
                Constraint.STATE_POOL,
                CONFIGURED,
                (
                    "a hybrid model's prefix needs its state checkpoint; KV is said to be still there",
                    *evidence[1:],
                ),
                ("free state slots at the higher load",),
            )
        return
