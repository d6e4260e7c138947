"""Real servers replayed: 300 requests each through vLLM 0.19 on RTX PRO 6000 (LLMServingSim's traces).

Measured values are read from the traces themselves. Nothing is calibrated: the step model's own seconds.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import api
from headrace.simulate.question import Variant


def replay(folder: Path, model: str) -> tuple[Variant, list[dict[str, Any]]]:
    """The trace through a server of the same settings; 0.20.2 is the oldest version whose flags are known."""
    settings = json.loads((folder / "meta.json").read_text())["engine_kwargs"]
    flags = (
        f"--max-num-seqs {settings['max_num_seqs']} --max-num-batched-tokens "
        f"{settings['max_num_batched_tokens']} --tensor-parallel-size {settings['tensor_parallel_size']}"
    )
    (variant,) = api.simulate(
        model=model, gpu="RTX PRO 6000 Blackwell Server", engine="vllm", engine_version="0.20.2", flags=flags,
        workload=[folder / "requests.jsonl"], arrivals=True,
    )  # fmt: skip
    return variant, [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("folder", "model"),
    [
        ("llmservingsim-RTXPRO6000-Llama-3.1-8B", "Llama-3.1-8B"),
        ("llmservingsim-RTXPRO6000-Qwen3-32B", "Qwen3-32B"),
    ],
)
def test_makespan_token_times_and_running_requests(folder: str, model: str, shared: Path) -> None:
    """Makespan and mean TPOT within 15 % uncalibrated; running requests off by 10 % of the cap on average."""
    variant, rows = replay(shared / "data/traces" / folder, model)
    first, last = (np.array([row[name] for row in rows]) for name in ("first_token_ts", "last_token_ts"))
    queued = np.array([row["queued_ts"] for row in rows])
    made = np.array([row["output_toks"] for row in rows])
    outcome = variant.outcome
    assert outcome.finished == 300
    assert outcome.seconds == pytest.approx(last.max() - queued.min(), rel=0.15)
    token_seconds = ((last - first)[made > 1] / (made[made > 1] - 1)).mean()
    assert outcome.mean_token_seconds == pytest.approx(token_seconds, rel=0.15)
    assert outcome.mean_first_token_seconds == pytest.approx((first - queued).mean(), rel=0.25)
    with (shared / "data/traces" / folder / "timeseries.csv").open() as lines:
        seen = [(float(row["t"]), float(row["running"])) for row in csv.DictReader(lines)]
    times, running = np.array(seen).T
    mine = np.interp(times, outcome.timeline.seconds, outcome.timeline.columns["running"][0])
    assert np.abs(mine - running).mean() < 0.1 * outcome.cap
