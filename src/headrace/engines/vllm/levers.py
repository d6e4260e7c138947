"""What can be changed on a vLLM server, what may be untold, and what one knob must be for a wanted cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace.engines.plan import Candidate, MemoryPlan, PlanInputs, Solution, Untold, holds
from headrace.engines.vllm.settings import TABLE

MOST_UTILIZATION = 0.95  # vLLM's optimization page advises to raise it; above this little stays for others


def candidates(plan: MemoryPlan) -> Iterator[Candidate]:
    """Yields single changes that might lift the cap, the cheapest kind first."""
    settings = plan.settings
    blocks = int(plan.figure("blocks") or 0)
    running = int(settings["max_num_seqs"] or 0)
    pools = [int(rung.running.value) for rung in plan.ladder if rung.running.value > running]
    if not plan.would_start and blocks and running > blocks:
        yield Candidate("running_flag", f"--max-num-seqs {blocks}", 0, "without it the server does not start")
    elif pools:
        yield Candidate(
            "running_flag",
            f"--max-num-seqs {min(pools)}",
            0,
            "the client must have as many in flight; graphs are captured up to 512 (1,024) requests",
        )
    if float(settings["gpu_memory_utilization"] or 0) < MOST_UTILIZATION:
        yield Candidate(
            "memory_fraction",
            f"--gpu-memory-utilization {MOST_UTILIZATION}",
            1,
            "little stays for other processes",
        )
    if plan.inputs.model.is_hybrid and settings["enable_prefix_caching"]:
        yield Candidate(
            "prefix_cache_off",
            "--no-enable-prefix-caching",
            2,
            "no prefix reuse: costs nothing where prompts are one-shot; one state block less per group",
        )
    if str(settings["kv_cache_dtype"]) == "auto":
        yield Candidate("kv_dtype", "--kv-cache-dtype fp8", 4, "accuracy of attention: check it first")
    if plan.inputs.model.is_hybrid and str(settings["mamba_ssm_cache_dtype"]) == "float32":
        yield Candidate(
            "state_dtype",
            "--mamba-ssm-cache-dtype bfloat16",
            4,
            "accuracy of the recurrent state: check it first",
        )


def untold(plan: MemoryPlan, reported: Mapping[str, float]) -> Iterator[Untold]:
    """Yields edits that a reporter may have left out, the likelier first."""
    given = {TABLE.field(flag.name) for flag in plan.inputs.line.flags}
    settings = plan.settings
    if plan.inputs.model.is_hybrid:
        if "mamba_ssm_cache_dtype" not in given:
            other = "bfloat16" if settings["mamba_ssm_cache_dtype"] == "float32" else "float32"
            yield Untold(f"--mamba-ssm-cache-dtype {other}", f"{other} recurrent state", 1)
        if "enable_prefix_caching" not in given:
            on = bool(settings["enable_prefix_caching"])
            yield Untold(
                "--no-enable-prefix-caching" if on else "--enable-prefix-caching",
                f"prefix caching {'off' if on else 'on'}",
                1,
            )
    if "kv_cache_dtype" not in given:
        yield Untold("--kv-cache-dtype fp8", "FP8 KV", 0)
    if "max_num_seqs" not in given and "cap" in reported:
        yield Untold(f"--max-num-seqs {int(reported['cap'])}", f"max_num_seqs {int(reported['cap'])}", 1)
    if "gpu_memory_utilization" not in given:
        for percent in (80, 85, 88, 90, 93, 94, 95, 97):
            yield Untold(
                f"--gpu-memory-utilization {percent / 100:.2f}", f"utilization {percent / 100:.2f}", 2
            )


def solve(plan: MemoryPlan, cap: int, again: Callable[[PlanInputs], MemoryPlan]) -> Iterator[Solution]:
    """Yields what utilization, prefix caching or dtype gives `cap` running requests of the stated context."""
    version = plan.inputs.rules.version
    running = int(plan.settings["max_num_seqs"] or 0)
    prefix = f"--max-num-seqs {cap} " if running != cap else ""

    def reaches(change: str) -> MemoryPlan | None:
        found = again(plan.inputs.with_line(plan.inputs.line.changed(prefix + change, TABLE, version)))
        return found if holds(found, cap) else None

    low, high = 1, 980
    if reaches("--gpu-memory-utilization 0.98") is None:
        yield Solution("memory utilization", None, "not even --gpu-memory-utilization 0.98 reaches it", 1)
    else:
        while low < high:
            middle = (low + high) // 2
            if reaches(f"--gpu-memory-utilization {middle / 1000:.3f}") is not None:
                high = middle
            else:
                low = middle + 1
        change = f"--gpu-memory-utilization {high / 1000:.3f}"
        yield _answer(
            "memory utilization", prefix + change, reaches(change), f"{high / 10:.1f} % of the card", 1
        )
    knobs = [("KV dtype", "--kv-cache-dtype fp8", "an accuracy choice", 4)]
    if plan.inputs.model.is_hybrid:
        knobs.append(("prefix cache off", "--no-enable-prefix-caching", "no prefix reuse", 2))
        knobs.append(("state dtype", "--mamba-ssm-cache-dtype bfloat16", "an accuracy choice", 4))
    for knob, change, cost, rank in knobs:
        yield _answer(knob, prefix + change, reaches(change), cost, rank)


def _answer(knob: str, change: str, found: MemoryPlan | None, text: str, rank: int) -> Solution:
    if found is None:
        return Solution(knob, None, f"{change.strip()} does not reach it", rank)
    return Solution(knob, change.strip(), f"{text}; {found.figure('blocks') or 0:,.0f} blocks", rank)
