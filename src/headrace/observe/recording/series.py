"""The samples of one server of a recording, as the columns that readings are taken from."""

from __future__ import annotations

import numpy as np

from headrace.observe.observation import Column
from headrace.observe.recording.form import ServerAbout
from headrace.observe.recording.reading import Columns, Recording
from headrace.observe.track import Series


def series_of(recording: Recording, name: str) -> Series | None:
    """The samples of one server; None where there are none."""
    gauges = recording.gauges.get(name)
    counters = recording.counters.get(name)
    base = gauges or counters
    if base is None:
        return None
    by_rank: dict[str, dict[str, Column]] = {}
    ranks = recording.ranks.get(name)
    for key, values in (ranks.columns if ranks else {}).items():
        word, _, rank = key.partition("/")
        by_rank.setdefault(word, {})[rank] = _aligned(ranks, values, base.seconds)
    told = recording.about.servers.get(name, ServerAbout())
    return Series(
        seconds=base.seconds,
        gauges={} if gauges is None else dict(gauges.columns),
        counters={}
        if counters is None
        else {word: _aligned(counters, values, base.seconds) for word, values in counters.columns.items()},
        by_rank=by_rank,
        names=dict(told.names),
        ranks=max(1, told.ranks),
    )


def _aligned(found: Columns | None, values: Column, seconds: Column) -> Column:
    """Values at other times: those of the same moment, NaN elsewhere."""
    if found is None or (len(found.seconds) == len(seconds) and np.array_equal(found.seconds, seconds)):
        return values
    place = np.searchsorted(found.seconds, seconds)
    place = np.minimum(place, len(found.seconds) - 1)
    same = found.seconds[place] == seconds
    return np.where(same, values[place], np.nan)
