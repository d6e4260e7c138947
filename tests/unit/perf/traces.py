"""Public traces of real servers as steps: LLMServingSim's 300 requests each through vLLM 0.19.0.

The server's own log has, per second, tokens made and requests running; the requests' times give who decoded
in that second and how much context they held. Seconds per step = mean running ÷ tokens per second.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.perf.calibrate import Sample


@dataclass(frozen=True)
class Second:
    """One second of the server: mean decoding requests, their context, seconds per step, prompt tokens."""

    at: float
    running: float
    context_tokens: float
    step_seconds: float
    prompt_tokens_per_second: float

    def sample(self) -> Sample:
        return Sample(self.running, self.context_tokens, self.step_seconds)


def seconds_of(folder: Path) -> list[Second]:
    """Returns the seconds of a trace in which something decoded, in order.

    The log's clock is set against the requests' by the offset and rate at which its `running` column agrees
    best with the requests that were running.
    """
    requests = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    with (folder / "timeseries.csv").open() as stream:
        rows = list(csv.DictReader(stream))

    def column(name: str) -> np.ndarray:
        return np.array([float(request[name]) for request in requests])

    scheduled, first, last = (column(f"{name}_ts") for name in ("scheduled", "first_token", "last_token"))
    tokens_in, tokens_out = column("input_toks"), column("output_toks")
    start = column("queued_ts").min()
    ticks = np.array([float(row["t"]) for row in rows])
    logged = np.array([float(row["running"]) for row in rows])

    def disagreement(offset: float, rate: float) -> float:
        at = (start + ticks * rate + offset)[:, None]
        return float(np.abs(((scheduled <= at) & (last > at)).sum(axis=1) - logged).sum())

    offset, rate = min(
        ((o, r) for o in np.arange(-1.0, 1.0, 0.05) for r in (1.0, 1.0025, 1.005)),
        key=lambda p: disagreement(*p),
    )
    found = []
    for row, tick in zip(rows, ticks, strict=True):
        inside = start + tick * rate + offset - np.linspace(0.995, 0.005, 100)
        decoding = (first[:, None] <= inside) & (last[:, None] > inside)
        made = tokens_out[:, None] * (inside - first[:, None]) / (last - first)[:, None]
        running = float(decoding.sum()) / len(inside)
        context = float(np.where(decoding, tokens_in[:, None] + made, 0.0).sum()) / len(inside)
        rate_out = float(row["gen_throughput"])
        if running >= 1.0 and rate_out > 0.0:
            found.append(Second(tick, running, context, running / rate_out, float(row["prompt_throughput"])))
    return found
