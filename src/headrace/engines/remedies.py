"""Levers beside memory: which flag of which engine and version moves them. Memory levers: `*/levers.py`.

Every change is an edit of the launch line as `LaunchLine.changed` takes it. What a version does not know is
not offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.engines.launch_line import LaunchLine
from headrace.engines.plan import Planner
from headrace.engines.versions import Version
from headrace.words import Lever


@dataclass(frozen=True, slots=True)
class Remedy:
    """A lever's edit for an engine and version, and what it gives up."""

    lever: Lever
    change: str
    cost: str


# lever → engine → edits in order of preference; {n} is filled in by the caller. A leading "-" removes a flag.
_EDITS: dict[Lever, dict[str, tuple[tuple[str, str], ...]]] = {
    Lever.RUNNING_FLAG: {
        "sglang": (("--max-running-requests {n}", "the pools must hold that many"),),
        "vllm": (("--max-num-seqs {n}", "the pools must hold that many"),),
    },
    Lever.GRAPH_SIZES: {
        "sglang": (
            ("--cuda-graph-max-bs-decode {n}", "graph memory, about 1 to 2 GiB outside the static part"),
            ("--cuda-graph-max-bs {n}", "graph memory, about 1 to 2 GiB outside the static part"),
        ),
        "vllm": (("--max-cudagraph-capture-size {n}", "graph memory and a longer start"),),
    },
    Lever.GRAPHS_ON: {
        "sglang": (("-disable-cuda-graph", "graph memory and a longer start"),),
        "vllm": (("-enforce-eager", "graph memory and a longer start"),),
    },
    Lever.OVERLAP_ON: {
        "sglang": (("-disable-overlap-schedule", "nothing"),),
        "vllm": (("--async-scheduling", "nothing"),),
    },
    Lever.LESS_RESERVE: {
        "sglang": (("--schedule-conservativeness 0.3", "retractions, where answers run longer than before"),),
        "vllm": (
            ("--max-num-batched-tokens {n}", "memory for activations, longer steps with prompts in them"),
        ),
    },
    Lever.MORE_RESERVE: {
        "sglang": (("--schedule-conservativeness 1.3", "requests that run side by side"),),
        "vllm": (("--max-num-seqs {n}", "requests that run side by side"),),
    },
    Lever.FRONTEND_PROCESSES: {
        "sglang": (("--tokenizer-worker-num {n}", "CPU cores"),),
        "vllm": (("--api-server-count {n}", "CPU cores"),),
    },
}


def remedies(
    lever: Lever, planner: Planner, version: Version, line: LaunchLine, number: int = 0
) -> Iterator[Remedy]:
    """Yields the edits of a lever that this engine and version know, the preferred first.

    Args:
        number: what `{n}` stands for; an edit that needs it is left out at 0.
    """
    for change, cost in _EDITS.get(lever, {}).get(planner.engine, ()):
        if "{n}" in change and number <= 0:
            continue
        edit = change.format(n=number)
        name = edit.split()[0]
        if name.startswith("--"):
            if planner.table.complaint(name, version) is None:
                yield Remedy(lever, edit, cost)
        elif any(flag.name == "-" + name for flag in line.flags):
            yield Remedy(lever, edit, cost)


def without_speculation(line: LaunchLine) -> str:
    """Returns the edit that removes every speculative flag of the line, "" where it has none."""
    names = dict.fromkeys(flag.name for flag in line.flags if "speculative" in flag.name)
    return " ".join("-" + name.lstrip("-") for name in names)
