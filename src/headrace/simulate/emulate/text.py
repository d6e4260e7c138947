"""Filler answers: about four characters per token, sliced from one pool of made-up sentences."""

from __future__ import annotations

import functools
import random

CHARACTERS_PER_TOKEN = 4
VOCABULARY_TOKENS = 151_936  # a usual size; emulated token ids stay below it
END_TOKEN = 151_645

_POOL_CHARACTERS = 1 << 20
_ID_POOL = 1 << 16
_WORDS = tuple(
    """
the a of to and in that we this it is for are as with on then from each so because first next step value
number result equals divide sum product half twice total remaining count check answer question problem
given find compute multiply add subtract therefore thus hence note consider suppose since when which what
if there here all some both one two three four five six seven eight nine ten dollar hour day week price
cost rate speed distance time apple box ticket student teacher farmer train water page line area length
width side angle ratio percent fraction whole part group pair row column list order process method reason
simple clear correct wrong equal greater less more most between after before again also only still now
""".split()  # noqa: SIM905
)


@functools.cache
def _pool() -> str:
    draw = random.Random(20260501)
    sentences: list[str] = []
    size = 0
    while size < _POOL_CHARACTERS:
        words = draw.choices(_WORDS, k=draw.randint(6, 18))
        words.insert(draw.randint(1, len(words)), str(draw.randint(2, 9999)))
        sentence = " ".join(words).capitalize() + (".\n" if draw.random() < 0.2 else ". ")
        sentences.append(sentence)
        size += len(sentence)
    return "".join(sentences)


@functools.cache
def _id_pool() -> list[int]:
    draw = random.Random(20260502)
    return [draw.randrange(100, 150_000) for _ in range(_ID_POOL)]


def filler(bits: int, tokens: int) -> str:
    """Returns `4 * tokens` characters of plain ASCII text, chosen by 64 bits; never ends in white space."""
    pool = _pool()
    wanted = tokens * CHARACTERS_PER_TOKEN
    start = bits % (len(pool) - 1)
    text = pool[start : start + wanted]
    while len(text) < wanted:
        text += pool[: wanted - len(text)]
    text = text.strip()
    return text + "." * (wanted - len(text))


def filler_ids(bits: int, tokens: int) -> list[int]:
    """Returns `tokens` made-up token ids, chosen by 64 bits; they do not decode to the text."""
    pool = _id_pool()
    start = bits % len(pool)
    ids = pool[start : start + tokens]
    while len(ids) < tokens:
        ids = ids + pool[: tokens - len(ids)]
    return ids


def count_tokens(text: str) -> int:
    """Returns the emulated token count of a text: a token per four characters begun, at least 1."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))
