"""kill -9 at random instants, then the same command again: every prompt ends with exactly one row.

Counted at the server: the null server journals the hash of every request that it answered. The long form
(50 rounds of 2,000 rows) is bench/exactly_once.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.exactly_once import ROUND_FAULTS, check_round, kill_until_done, write_prompts
from bench.null_server import NullServer
from tests.driver_process import finished_rows, headrace

ROWS = 600
KILLED_ROUNDS = 6


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_instants_every_prompt_ends_with_exactly_one_row(
    seed: int, tmp_path: Path, null_server: Callable[..., NullServer]
) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl", ROWS, seed)
    journal = tmp_path / "journal"
    server = null_server(vary=True, journal=journal, delay_ms=40, jitter_ms=60, **ROUND_FAULTS)
    out = tmp_path / "out"

    kills = kill_until_done(out, prompts, server, kills=KILLED_ROUNDS, in_flight=32, seed=seed)

    assert kills == KILLED_ROUNDS, "the job ended before it was killed as often as wanted"
    found = check_round(out, prompts, journal)
    assert found.lost == []
    assert found.repeated == []
    assert found.rows == ROWS
    assert found.unanswered_rows == 0
    # answered but not durable at a kill: at most what was in flight, or waited to be written, each time
    assert found.answers <= ROWS + KILLED_ROUNDS * (32 + 256)


def test_a_finished_job_sends_nothing_when_run_again(
    tmp_path: Path, null_server: Callable[..., NullServer]
) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl", 200, seed=3)
    server = null_server(vary=True)
    command = ("run", "--prompts", prompts, "--server", server.url, "--out", tmp_path / "out")
    first = headrace(*command)
    assert first.returncode == 0, first.stderr
    answered = server.stats()["req"]
    assert answered == 200

    again = headrace(*command)

    assert again.returncode == 0, again.stderr
    assert server.stats()["req"] == answered
    assert len(finished_rows(tmp_path / "out")) == 200
