"""What was switched on and made it worse, as people tell it: "when X is enabled throughput drops by 20 %".

The counterpart of `trials`, which reads what became better without X. Only things that are in use here, or
that the sentence itself says are in use, and only sentences with a word for worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.diagnose.trials import Thing, Trial

_WHEN = r"(?:with|when|once|whenever|as soon as|since|after|if|enabling|using|turning on|switching on|adding)"
_ON = (
    r"(?:(?:is|are|was|gets?|being)\s+)?"
    r"(?:on|enabled|active|activated|set|switched on|turned on|added|in use)\b"
)
_THINGS: tuple[tuple[Thing, str], ...] = (
    (
        Thing.DRAFTS,
        r"(?:MTP|EAGLE-?\d?|NEXTN|DFlash\d?|DSpark|n-?gram|specul\w+(?: decod\w+)?|draft\w*(?: model)?)",
    ),
    (
        Thing.GRAMMAR,
        r"(?:grammars?|structured outputs?|guided[\w_-]*(?: \w+)?|json[- ](?:schema|mode)|xgrammar"
        r"|response_format)",
    ),
    (Thing.ADAPTER, r"(?:LoRA|adapters?)"),
    (
        Thing.HOST_CACHE,
        r"(?:LMCache|hi-?cache|hierarchical cach\w+|(?:KV|CPU|host)[- ](?:cache )?offload\w*)",
    ),
    (Thing.EAGER, r"(?:--)?(?:enforce[-_ ])?eager(?: mode)?"),
    (Thing.SAMPLING, r"(?:--)?(?:return_)?(?:log[_ ]?prob\w*|penalt\w+|logits? process\w+)"),
    (Thing.NARROW, r"(?:KV (?:cache )?)?quanti[sz]\w+"),
)
_COMPILED = tuple(
    (thing, re.compile(rf"\b{_WHEN}\b[^.;,]{{0,30}}?\b{words}\b|\b{words}\s+{_ON}", re.IGNORECASE))
    for thing, words in _THINGS
)
_WORSE = re.compile(
    r"\b(?:drops?|dropp\w+|falls?|fell|slower|slows?|lower|less|worse|halve[sd]?|degrad\w+|collaps\w+|longer"
    r"|suffers?|regress\w+|decreas\w+|reduc(?:es|ed)|only)\b",
    re.IGNORECASE,
)
_BETTER = re.compile(
    r"\b(?:faster|higher|better|improv\w+|gains?|no (?:slower|worse)|not (?:slower|worse))\b", re.IGNORECASE
)
_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_PER_CENT = re.compile(r"(\d+(?:\.\d+)?)\s*(?:%|per ?cent)", re.IGNORECASE)
_TIMES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:x|×|times)\s*(?:slower|longer|lower|less)", re.IGNORECASE)
_FROM_TO = re.compile(
    rf"\bfrom\s+(?:about |some |~)?{_NUMBER}[^.;\d]{{0,20}}\bto\s+(?:about |some |~)?{_NUMBER}", re.IGNORECASE
)
_HALF = re.compile(r"\bhalve[sd]?\b|\bhalf\b", re.IGNORECASE)


def read_switched(text: str) -> Iterator[Trial]:
    """Yields, per thing that a sentence says was switched on for the worse, a trial of going without it."""
    text = " ".join(text[:2000].split())
    if not _WORSE.search(text) or _BETTER.search(text):
        return
    for thing, pattern in _COMPILED:
        found = pattern.search(text)
        if found is not None:
            yield Trial(
                thing, f"without what “{found[0][:40]}” names", text, factor=_factor(text), better=True
            )


def _factor(text: str) -> float | None:
    """How many times better it is without, where the sentence has a figure for it; else None."""
    if (found := _FROM_TO.search(text)) is not None:
        before, after = (float(number.replace(",", "")) for number in found.groups())
        return before / after if after > 0 and before > after else None
    if (found := _TIMES.search(text)) is not None:
        return float(found[1])
    if (found := _PER_CENT.search(text)) is not None:
        left = 1.0 - float(found[1]) / 100
        return 1.0 / left if 0.01 < left < 1.0 else None
    return 2.0 if _HALF.search(text) else None
