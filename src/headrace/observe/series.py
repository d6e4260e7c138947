"""An Observation's columns as a JSON document, thinned so that a page or a person can take them in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.observe.observation import Observation
from headrace.observe.readings import READINGS

MOST_POINTS = 240  # per server and column: a plot of 470 px has no more
MOST_SERVERS = 16


def series_document(observation: Observation) -> dict[str, Any] | None:
    """Returns {"servers": [{"name", "seconds", "columns": {word: [value or null, …]}}], "left_out"}.

    Samples are picked evenly and kept as they are: none is averaged. `seconds` are from each server's first
    sample on. Returns None where no server has three samples.

    `left_out` counts servers beyond the first sixteen.
    """
    told = [server for server in observation.servers if len(server.seconds) >= 3 and server.columns]
    if not told:
        return None
    servers = []
    for server in told[:MOST_SERVERS]:
        count = len(server.seconds)
        picked = np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(int))
        columns = {
            word: [_number(value) for value in values[picked]]
            for word, values in server.columns.items()
            if word in READINGS and len(values) == count
        }
        servers.append(
            {
                "name": server.name,
                "seconds": [_number(value) for value in server.seconds[picked] - server.seconds[0]],
                "columns": columns,
            }
        )
    return {"servers": servers, "left_out": max(0, len(told) - MOST_SERVERS)}


def _number(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None
