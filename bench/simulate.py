"""The simulator's figures: python bench/simulate.py golden|big|linear|all.

    golden  654,676 prompts x 2,473 mean tokens x 8 servers, the golden fleet's line
    big     10,000,000 prompts x 100 servers
    linear  20,000 to 640,000 prompts on 8 servers: seconds against prompts, a straight line through them

Each prints lines for the table in bench/README.md. Run it twice: the first run compiles the kernel.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from headrace import api
from headrace.simulate.kernel.compiled import IS_COMPILED
from headrace.simulate.question import Variant

FLAGS = (
    "--context-length 8192 --attention-backend flashinfer --mamba-scheduler-strategy extra_buffer "
    "--max-running-requests 64 --mem-fraction-static 0.85 --mamba-ssm-dtype bfloat16"
)


def simulated(count: int, replicas: int) -> tuple[Variant, float, float]:
    """(the outcome, wall seconds, CPU seconds) of the golden line with so many prompts and servers."""
    wall, cpu = time.monotonic(), time.process_time()
    (variant,) = api.simulate(
        model="Qwen3.6-27B",
        gpu="RTX PRO 6000 Blackwell Server",
        engine_version="0.5.12",
        flags=FLAGS,
        free_gib=94.3,
        weights_gib=51.1,
        replicas=replicas,
        in_flight=32,
        count=count,
        input_tokens=150,
        output_tokens=2473,
        step_seconds="32:0.050",
    )
    return variant, time.monotonic() - wall, time.process_time() - cpu


def told(name: str, count: int, replicas: int) -> None:
    """Prints one run."""
    variant, wall, cpu = simulated(count, replicas)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"{name}: {count:,} prompts, {replicas} servers: {wall:.1f} s wall, {cpu:.1f} s CPU, {memory:,.0f} "
        f"MB at most; {variant.outcome.seconds / 3600:.1f} h simulated, {variant.outcome.passes:,} passes"
    )


def linear() -> None:
    """Prints the line through seconds of CPU by prompts, and how far off it is."""
    counts = [20_000 * 2**power for power in range(6)]
    seconds = [simulated(count, 8)[2] for count in counts]
    slope, start = np.polyfit(counts, seconds, 1)
    off = max(abs(start + slope * count - each) / each for count, each in zip(counts, seconds, strict=True))
    told_seconds = ", ".join(f"{each:.2f}" for each in seconds)
    print(f"linear: {counts[0]:,} to {counts[-1]:,} prompts in {told_seconds} s of CPU")
    print(f"linear: {start:.2f} s + {1e6 * slope:.2f} µs per prompt, at most {100 * off:.0f} % off")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("golden", "big", "linear", "all"))
    part = parser.parse_args().part
    if not IS_COMPILED:
        print("numba is not installed: plain Python, some fifty times slower")
    simulated(100, 1)
    if part in ("golden", "all"):
        told("golden", 654_676, 8)
    if part in ("linear", "all"):
        linear()
    if part in ("big", "all"):
        told("big", 10_000_000, 100)


if __name__ == "__main__":
    main()
