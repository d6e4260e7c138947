"""A headline for every constraint id: what it means for the reader, in a few words."""

from __future__ import annotations

from headrace.words import Constraint

HEADLINES: dict[Constraint, str] = {
    Constraint.CLIENT_CONCURRENCY: "too few requests in flight",
    Constraint.CLIENT_SIDE: "the client does not deliver what it wants in flight",
    Constraint.LONG_TAIL: "the last, long requests keep the rest waiting",
    Constraint.LOAD_IMBALANCE: "some servers are full while others idle",
    Constraint.SERVER_DOWN: "a server does not answer",
    Constraint.MAX_RUNNING_REQUESTS: "your own limit on running requests",
    Constraint.STATE_POOL: "the recurrent-state pool limits how many run",
    Constraint.KV_POOL: "the KV pool limits how many run",
    Constraint.ADMISSION: "the scheduler holds requests back though pools have room",
    Constraint.TOKEN_BUDGET: "the budget of tokens per step holds requests back",
    Constraint.RETRACTION: "work is thrown away and made again",
    Constraint.PREFILL: "reading prompts takes the time",
    Constraint.MEMORY_BANDWIDTH: "a step is at the memory's speed",
    Constraint.COMPUTE: "a step is at the GPU's arithmetic limit",
    Constraint.KERNEL_PATH: "a slow kernel for this data type or shape",
    Constraint.STEP_OVERHEAD: "the GPU waits for the host",
    Constraint.CUDA_GRAPH: "steps run without a captured graph",
    Constraint.INTERCONNECT: "GPUs wait for each other's traffic",
    Constraint.KV_TRANSFER: "moving KV data sets the pace",
    Constraint.EXPERT_IMBALANCE: "some experts get too much of the work",
    Constraint.FRONTEND: "the server's front end is the limit",
    Constraint.GRAMMAR: "output grammars are the limit",
    Constraint.SPECULATION: "drafts cost more than they bring",
    Constraint.PREFIX_CACHE: "the prefix cache does not find what prompts share",
    Constraint.POWER_THERMAL: "power or heat holds the clock down",
    Constraint.RUNAWAY_LENGTH: "answers that do not end",
    Constraint.COLD_START: "the servers are still warming up",
    Constraint.CONFIGURATION_ERROR: "what is set or installed does not work so",
    Constraint.NOT_LIMITED: "nothing holds it back",
    Constraint.UNKNOWN: "the evidence does not tell",
}


def sureness(confidence: float) -> tuple[str, str]:
    """A shape and a word for a confidence, so that it does not rest on colour."""
    if confidence >= 0.75:
        return "●", "sure"
    if confidence >= 0.5:
        return "◐", "likely"
    return "○", "possible"
