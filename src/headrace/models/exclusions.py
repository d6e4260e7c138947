"""Which modules an exclusion list names: plain names, globs (modelopt) and regular expressions ("re:…").

The lists come from outside. A regular expression is only run where it is of the simple kind that
checkpoints use: at most three repetitions, none of them of a group; others are left unread. Names are
compared from "layers." on, since checkpoints of one model differ before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache

_MAX_PATTERN = 200
_MAX_REPETITIONS = 3
_GROUP_REPEATED = re.compile(r"\)[*+{?]")
# The same modules under other names.
_SPELLINGS = (
    ("block_sparse_moe.", "mlp."),
    (".ffn.", ".mlp."),
    (".attn.", ".self_attn."),
    ("mixer.in_proj", "linear_attn.in_proj_qkv"),
    ("mixer.out_proj", "linear_attn.out_proj"),
    ("mixer.shared_experts", "mlp.shared_experts"),
    ("mixer.experts", "mlp.experts"),
    ("mixer.", "self_attn."),
    ("shared_expert.", "shared_experts."),
    ("shared_expert*", "shared_experts*"),
)


def canonical(name: str) -> str:
    """Returns a module's name, or a plain pattern, from "layers." on and in the commonest spelling."""
    at = name.find("layers.")
    name = name[at:] if at >= 0 else name
    for other, usual in _SPELLINGS:
        name = name.replace(other, usual)
    return name


def excluded(name: str, patterns: Sequence[str]) -> bool:
    """Returns whether one of the patterns names this module or one that holds it."""
    short = canonical(name)
    parts = short.split(".")
    holders = {".".join(parts[: i + 1]) for i in range(len(parts))}
    plain, tests = _compiled(tuple(patterns))
    return not plain.isdisjoint(holders) or any(
        test.match(text) for test in tests for text in (*holders, name)
    )


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    plain: set[str] = set()
    tests: list[re.Pattern[str]] = []
    for pattern in patterns:
        if len(pattern) > _MAX_PATTERN:
            continue
        if pattern.startswith("re:"):
            text = pattern[3:]
            simple = sum(
                text.count(sign) for sign in "*+{"
            ) <= _MAX_REPETITIONS and not _GROUP_REPEATED.search(text)
            if simple:
                try:
                    tests.append(re.compile(text))
                except re.error:
                    continue
        elif "*" in pattern:
            if pattern.count("*") <= _MAX_REPETITIONS:
                tests.append(re.compile(translate(canonical(pattern))))
        else:
            plain.add(canonical(pattern))
    return frozenset(plain), tuple(tests)
