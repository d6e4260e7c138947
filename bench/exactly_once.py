"""Exactly once, counted at the server: python bench/exactly_once.py [--rounds 50] [--servers 3].

Each round is a new job of distinct prompts against a null server with 5 % of 503, 2 % of dropped
connections and 3 % of truncated answers. The driver's process group is killed with SIGKILL at random
instants, the same command is given again, until it ends by itself. With --servers it is the servers that
are killed, one at a time, and come back on their ports; the driver must end by itself, at the first go. Then
the ids and prompts in the shards, read by plain pyarrow, are set against the input and against the servers'
journals of what they answered.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.null_server import Missing, NullServer, build
from tests.driver_process import finished_rows, kill_group, start

ROUND_FAULTS = {"fail_pct": 5, "drop_pct": 2, "length_pct": 3}


@dataclass(frozen=True)
class Found:
    """What a round left behind.

    Attributes:
        rows: in the shards.
        lost, repeated: prompts of the input with no row, with more than one.
        answers: lines in the server's journal, one per request that it answered.
        unanswered_rows: rows for which the server has not answered a request: must be 0.
    """

    rows: int
    lost: list[str]
    repeated: list[str]
    answers: int
    unanswered_rows: int


def write_prompts(file: Path, count: int, seed: int) -> Path:
    """Writes `count` distinct prompts; returns the file."""
    lines = (json.dumps({"prompt": f"Question {seed}.{at}: what is {at} + {seed}?"}) for at in range(count))
    file.write_text("\n".join(lines) + "\n")
    return file


def kill_until_done(
    out: Path, prompts: Path, server: NullServer, *, kills: int, in_flight: int, seed: int
) -> int:
    """Runs the job, killing it `kills` times at random instants of its work, then lets it end.

    Returns how often it was killed at work. Raises AssertionError when it ends otherwise than by a kill or
    with exit code 0.
    """
    rng = random.Random(seed)
    log = out.with_name(f"{out.name}.log")
    command = ("run", "--prompts", prompts, "--server", server.url, "--out", out, "--in-flight", in_flight)
    rows = len(prompts.read_text().splitlines())
    killed = 0
    while True:
        asked_before = server.stats()["req"]
        process = start(*command, log=log)
        try:
            if killed < kills:
                # some kills fall into the start (index, recovery), the others after a share of the rows
                share = 0 if rng.random() < 0.2 else rng.randrange(rows // (2 * kills))
                wait_for_requests(process, server, asked_before + share)
                time.sleep(rng.uniform(0, 0.3))
                if process.poll() is None:
                    kill_group(process)
                    killed += 1
                    continue
            code = process.wait(300)
        finally:
            kill_group(process)
        assert code == 0, f"exit code {code}\n{log.read_text()[-4000:]}"
        return killed


def kill_servers_until_done(
    out: Path, prompts: Path, binary: Path, *, servers: int, in_flight: int, seed: int
) -> int:
    """Runs the job once while its servers are killed and come back; how often one was killed.

    Each incarnation has a journal of its own beside `out`. Raises AssertionError when the job does not end by
    itself with exit code 0.
    """
    rng = random.Random(seed)
    log, killed = out.with_name(f"{out.name}.log"), 0
    faults = {"vary": True, "delay_ms": 100, "jitter_ms": 200, **ROUND_FAULTS}

    def begin(at: int, port: int | None) -> NullServer:
        journal = out.with_name(f"journal-{at}-{killed}")
        return NullServer(binary, first_port=port, journal=journal, **faults).__enter__()

    running = [begin(at, None) for at in range(servers)]
    named = [part for server in running for part in ("--server", server.url)]
    process = start("run", "--prompts", prompts, *named, "--out", out, "--in-flight", in_flight, log=log)
    try:
        wait_for_requests(process, running[0], 1)
        deadline = time.monotonic() + 200
        while process.poll() is None:
            assert time.monotonic() < deadline, f"not at its end after 200 s\n{log.read_text()[-4000:]}"
            time.sleep(rng.uniform(0.1, 0.8))
            at = rng.randrange(servers)
            running[at].kill()
            killed += 1
            time.sleep(rng.uniform(0, 1.0))
            running[at] = begin(at, running[at].first_port)
        assert process.returncode == 0, f"exit code {process.returncode}\n{log.read_text()[-4000:]}"
    finally:
        kill_group(process)
        for server in running:
            server.stop()
    return killed


def wait_for_requests(process: object, server: NullServer, wanted: int) -> None:
    """Returns when the server has been asked `wanted` times, or the process has ended, or after 60 s."""
    deadline = time.monotonic() + 60
    while server.stats()["req"] < wanted and process.poll() is None:  # type: ignore[attr-defined]
        if time.monotonic() > deadline:
            raise AssertionError(f"{server.stats()['req']} requests after 60 s; {wanted} were awaited")
        time.sleep(0.01)


def check_round(out: Path, prompts: Path, *journals: Path) -> Found:
    """Sets input, shards and journals against each other."""
    wanted = [json.loads(line)["prompt"] for line in prompts.read_text().splitlines()]
    rows = finished_rows(out)
    asked = Counter(row["prompt"] or row["messages"][-1]["content"] for row in rows)
    ids = Counter(row["id"] for row in rows)
    answered = [line for journal in journals for line in journal.read_text().split() if len(line) == 16]
    # the body of a prompt is the same at every try, so distinct hashes are distinct prompts
    return Found(
        rows=len(rows),
        lost=[prompt for prompt in wanted if not asked[prompt]],
        repeated=[prompt for prompt in asked if asked[prompt] > 1] + [id for id in ids if ids[id] > 1],
        answers=len(answered),
        unanswered_rows=max(0, len(rows) - len(set(answered))),
    )


def main() -> int:
    """Returns 0 when no prompt was lost or repeated in any round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=3, help="kills in each round")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--servers", type=int, default=0, help="kill these instead, so many of them")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    bad = kills = redone = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        binary = build(Path(scratch))
        for number in range(options.rounds):
            folder = Path(scratch) / f"round-{number}"
            folder.mkdir()
            seed = options.seed + number
            prompts = write_prompts(folder / "prompts.jsonl", options.rows, seed)
            journal, out = folder / "journal-0-0", folder / "out"
            how = {"in_flight": options.in_flight, "seed": seed}
            faults = {"vary": True, "journal": journal, "delay_ms": 20, "jitter_ms": 40, **ROUND_FAULTS}
            if options.servers:
                kills += kill_servers_until_done(out, prompts, binary, servers=options.servers, **how)
            else:
                with NullServer(binary, **faults) as server:
                    kills += kill_until_done(out, prompts, server, kills=options.kills, **how)
            found = check_round(out, prompts, *folder.glob("journal-*"))
            redone += found.answers - found.rows
            wrong = found.lost or found.repeated or found.rows != options.rows or found.unanswered_rows
            bad += bool(wrong)
            print(
                f"round {number + 1} (seed {seed}): {found.rows} rows, {len(found.lost)} lost, "
                f"{len(found.repeated)} repeated, {found.answers - found.rows} answers asked again",
                flush=True,
            )
    print(
        f"{options.rounds} rounds of {options.rows} rows, {kills} kills, {redone} answers asked again, "
        f"{bad} rounds wrong, {time.monotonic() - began:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Missing as missing:
        sys.exit(str(missing))
