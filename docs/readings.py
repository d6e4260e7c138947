"""The tables of the facts file's keys, for docs/facts-file.md."""

from __future__ import annotations

from docs.generate import table
from headrace.observe.facts_schema import COUNTS, TEXTS
from headrace.observe.readings import BY_RANK, CLIENT, READINGS


def top_keys() -> str:
    """The keys at the top level, sections left out."""
    rows = [(f"`{key}`", "text", meaning) for key, meaning in TEXTS.items()]
    rows += [(f"`{key}`", "whole number", meaning) for key, meaning in COUNTS.items()]
    return table(("key", "value", "meaning"), rows)


def observed_keys() -> str:
    """The readings under `observed`."""
    how = {"sum": "adds up", "mean": "", "each": ""}
    rows = [
        (f"`{word}`", meaning.unit, how[str(meaning.scope)], meaning.meaning)
        for word, meaning in READINGS.items()
    ]
    return table(("key", "unit", "over servers", "meaning"), rows)


def rank_keys() -> str:
    """The readings under `observed` that hold one value per rank."""
    return table(("key", "unit"), [(f"`{word}`", unit) for word, unit in BY_RANK.items()])


def client_keys() -> str:
    """The keys under `client`."""
    return table(("key", "unit"), [(f"`{word}`", unit) for word, unit in CLIENT.items()])
