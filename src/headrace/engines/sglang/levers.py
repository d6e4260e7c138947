"""What can be changed on an SGLang server: which flag by version, and what it costs beside a restart.

Also the settings that nobody may have told (`untold`), and what one knob must be for a wanted cap (`solve`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from headrace.engines.plan import GIB, Candidate, MemoryPlan, PlanInputs, Solution, Untold, holds
from headrace.engines.sglang.rules import TABLE, MemoryRules, architecture_of, supports_extra_buffer
from headrace.engines.versions import Version
from headrace.words import Constraint

# SGLang's tuning page wants 5 to 8 GB free after start (facts on engines §5), and graphs take 1 to 2 GB of
# the slack.
LEAST_SLACK_BYTES = 7.0 * GIB
_STEP = 0.01
_MOST = 0.97


def strategy_flag(version: Version) -> str:
    """Returns the spelling of the state strategy that this version prefers."""
    return "--mamba-radix-cache-strategy" if version >= Version(0, 5, 14) else "--mamba-scheduler-strategy"


def candidates(plan: MemoryPlan) -> Iterator[Candidate]:
    """Yields single changes that might lift the cap, the cheapest kind first."""
    settings, version, model = plan.settings, plan.inputs.rules.version, plan.inputs.model
    cap = int(plan.cap.value) if plan.cap else 0
    if settings["max_running_requests"] is not None and _bound(plan) is Constraint.MAX_RUNNING_REQUESTS:
        higher = [rung.running.value for rung in plan.ladder if rung.running.value > cap]
        wanted = min(int(higher[0]) if higher else 2 * cap, 4 * cap)
        if wanted > cap:
            yield Candidate(
                "running_flag",
                f"--max-running-requests {wanted}",
                0,
                "the client must have as many in flight; batches over the largest captured graph run "
                "without one",
            )
    if model.is_hybrid and version >= Version(0, 5, 7):
        yield from _state_candidates(plan)
    fraction = float(settings["mem_fraction_static"] or 0)
    best = highest_fraction(plan)
    if best > fraction + 1e-9:
        slack = (1 - best) * plan.figures["free_bytes"].value / GIB
        yield Candidate(
            "memory_fraction",
            f"--mem-fraction-static {best:.2f}",
            1,
            f"{slack:.1f} GiB stay for graphs and activations: watch for running out of memory",
        )
    if str(settings["kv_cache_dtype"]) in ("auto", "bfloat16", "bf16") and _bound(plan) is Constraint.KV_POOL:
        yield Candidate("kv_dtype", "--kv-cache-dtype fp8_e4m3", 4, "accuracy of attention: check it first")


def _bound(plan: MemoryPlan) -> Constraint:
    """What bounds running requests at the stated context."""
    return plan.lowest.constraint if plan.lowest else plan.cap_bound_by


def _state_candidates(plan: MemoryPlan) -> Iterator[Candidate]:
    settings, version = plan.settings, plan.inputs.rules.version
    radix, flag = not settings["disable_radix_cache"], strategy_flag(version)
    architecture = architecture_of(plan.inputs.model)
    if radix:
        wanted = _radix_off_running(plan)
        explicit = f"{flag} no_buffer " if version < Version(0, 5, 14) else ""
        dropped = (
            " -" + flag.lstrip("-")
            if not explicit
            and plan.settings.values["mamba_radix_cache_strategy"].origin.value == "configured"
            else ""
        )
        yield Candidate(
            "radix_cache_off",
            f"{explicit}--disable-radix-cache --max-running-requests {wanted}{dropped}",
            2,
            "no prefix reuse: costs nothing where prompts are one-shot; overlap stays",
        )
    lazy = version >= Version(0, 5, 13) and supports_extra_buffer(architecture, version)
    overlap = not settings["disable_overlap_schedule"]
    if radix and lazy and overlap and str(settings["mamba_radix_cache_strategy"]) == "extra_buffer":
        yield Candidate(
            "lazy_buffers", f"{flag} extra_buffer_lazy", 0, "the second track buffer is taken when needed"
        )
    per_request = int(settings["slots_per_request"] or 1)
    if _bound(plan) is Constraint.STATE_POOL and radix:
        balanced = _balanced_slots(plan)
        if balanced and balanced > (plan.figure("state_slots") or 0):
            yield Candidate(
                "state_share",
                f"--max-mamba-cache-size {balanced}",
                2,
                f"KV tokens: both pools then hold {balanced // per_request} requests",
            )
    if radix and str(settings["mamba_radix_cache_strategy"]).startswith("extra_buffer"):
        extra = " --disable-overlap-schedule" if version >= Version(0, 5, 14) else ""
        yield Candidate(
            "fewer_buffers",
            f"{flag} no_buffer{extra}",
            3,
            "the overlap scheduler: every step waits for the host",
        )
    if str(settings["mamba_ssm_dtype"]) == "float32":
        yield Candidate(
            "state_dtype", "--mamba-ssm-dtype bfloat16", 4, "accuracy of the recurrent state: check it first"
        )


def highest_fraction(plan: MemoryPlan) -> float:
    """The highest fraction, in steps of 0.01, that leaves enough slack."""
    free = plan.figures["free_bytes"].value
    return min(_MOST, math.floor((1 - least_slack(plan) / free) / _STEP) * _STEP) if free else 0.0


def least_slack(plan: MemoryPlan) -> float:
    """Bytes that should stay outside the static part: 7 GiB, or half of what the engine's own rule keeps.

    The half makes 7 GiB of the 13.4 that the rule keeps on a 96 GB card, and 12.6 of 25 on a 180 GB one,
    whose prefill chunks are twice as large.
    """
    return max(LEAST_SLACK_BYTES, float(plan.settings["reserved_mib"] or 0) * (1 << 20) / 2)


def _context(plan: MemoryPlan) -> float:
    """Tokens per request to weigh KV against state: as told, else half the context length."""
    return plan.inputs.context_tokens or float(plan.settings["context_length"] or 4096) / 2


def _radix_off_running(plan: MemoryPlan) -> int:
    """A running flag for radix off that leaves KV for the context and a fifth of slack for longer ones."""
    state = plan.figure("state_bytes_per_request") or 1.0
    price = state + _context(plan) * (plan.figure("kv_bytes_per_token") or 1.0)
    fits = int(0.8 * (plan.figure("rest_bytes") or 0.0) / price)
    return max(16, fits // 16 * 16)


def _balanced_slots(plan: MemoryPlan) -> int | None:
    """Slots with which state and KV fill together at the context: the engine's own balance formula, §1.6."""
    state, cell = plan.figure("state_bytes_per_request"), plan.figure("kv_bytes_per_token")
    rest, per_request = plan.figure("rest_bytes"), plan.figure("slots_per_request")
    if not state or not cell or not rest or not per_request:
        return None
    drafts = float(plan.settings["draft_tokens"] or 0)
    running = int(rest / ((per_request + drafts) * state + _context(plan) * cell))
    return running * int(per_request)


# ── inference
# ─────────────────────────────────────────────────────────────────────────────────────────────────
def untold(plan: MemoryPlan, reported: Mapping[str, float]) -> Iterator[Untold]:
    """Yields edits that a reporter may have left out, the likelier first."""
    settings, version, model = plan.settings, plan.inputs.rules.version, plan.inputs.model
    given = {flag.name for flag in plan.inputs.line.flags}
    flag = strategy_flag(version)
    if model.is_hybrid:
        if "--mamba-ssm-dtype" not in given:
            for dtype in ("bfloat16", "float32"):
                if dtype != settings["mamba_ssm_dtype"]:
                    yield Untold(f"--mamba-ssm-dtype {dtype}", f"{dtype} recurrent state", 0)
        if version >= Version(0, 5, 7) and not given & {
            "--mamba-scheduler-strategy",
            "--mamba-radix-cache-strategy",
        }:
            for strategy in ("extra_buffer", "no_buffer", "extra_buffer_lazy"):
                if strategy != settings["mamba_radix_cache_strategy"]:
                    extra = (
                        " --disable-overlap-schedule"
                        if strategy == "no_buffer" and version >= Version(0, 5, 14)
                        else ""
                    )
                    yield Untold(f"{flag} {strategy}{extra}", f"strategy {strategy}", 1)
        if not settings["disable_radix_cache"]:
            yield Untold("--disable-radix-cache", "radix cache off", 1)
        if version >= Version(0, 5, 17):
            yield Untold("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=1", "decode lock skipped", 2)
        if "slots" in reported and "--max-mamba-cache-size" not in given:
            yield Untold(
                f"--max-mamba-cache-size {int(reported['slots'])}",
                f"{int(reported['slots'])} slots asked for",
                3,
            )
        if "--max-mamba-cache-size" not in given and "cap" in reported and "slots" not in reported:
            slots = int(reported["cap"]) * int(settings["slots_per_request"] or 1)
            yield Untold(f"--max-mamba-cache-size {slots}", f"{slots} slots asked for", 3)
    if "--kv-cache-dtype" not in given:
        yield Untold("--kv-cache-dtype fp8_e4m3", "FP8 KV", 1)
    if "--max-running-requests" not in given and "cap" in reported:
        yield Untold(
            f"--max-running-requests {int(reported['cap'])}", f"a running flag of {int(reported['cap'])}", 2
        )
    if "--max-total-tokens" not in given and "kv" in reported:
        yield Untold(f"--max-total-tokens {int(reported['kv'])}", "a limit on KV tokens", 3)
    if "--mem-fraction-static" not in given:
        for percent in (80, 82, 84, 85, 86, 88, 90, 92, 94, 95):
            yield Untold(
                f"--mem-fraction-static {percent / 100:.2f}", f"memory fraction {percent / 100:.2f}", 2
            )


# ── inverse
# ───────────────────────────────────────────────────────────────────────────────────────────────────
def solve(plan: MemoryPlan, cap: int, again: Callable[[PlanInputs], MemoryPlan]) -> Iterator[Solution]:
    """Yields what fraction, ratio, slots or strategy gives `cap` running requests of the stated context.

    A knob alone must reach it, the running flag raised along where that is lower; every answer is checked
    by a plan. Without a stated context only the cap is asked for, not the KV tokens behind it.
    """
    version, settings = plan.inputs.rules.version, plan.settings
    flag = settings["max_running_requests"]
    running = f"--max-running-requests {cap} " if flag is not None and int(flag) < cap else ""

    def reaches(change: str) -> MemoryPlan | None:
        line = plan.inputs.line.changed(running + change, TABLE, version)
        found = again(plan.inputs.with_line(line))
        return found if holds(found, cap) else None

    yield from _solve_fraction(plan, cap, running, reaches)
    if not plan.inputs.model.is_hybrid:
        return
    per_request = int(settings["slots_per_request"] or 1)
    if not settings["disable_radix_cache"]:
        slots = cap * per_request
        change = f"--max-mamba-cache-size {slots}"
        yield _answer(
            "slots", running + change, reaches(change), f"{slots} slots, {per_request} per request", 2
        )
        yield from _solve_ratio(plan, cap, running, reaches)
        spelled = strategy_flag(version)
        off = f"{spelled} no_buffer " if version < Version(0, 5, 14) else ""
        change = f"{off}--disable-radix-cache --max-running-requests {cap}"
        found = again(plan.inputs.with_line(plan.inputs.line.changed(change, TABLE, version)))
        yield _answer(
            "radix cache off",
            change,
            found if holds(found, cap) else None,
            "one slot per request, no prefix reuse",
            2,
        )
        for strategy, rank in (("extra_buffer_lazy", 1), ("no_buffer", 3)):
            if strategy == str(settings["mamba_radix_cache_strategy"]):
                continue
            if strategy == "extra_buffer_lazy" and version < Version(0, 5, 13):
                continue
            extra = (
                " --disable-overlap-schedule"
                if strategy == "no_buffer" and version >= Version(0, 5, 14)
                else ""
            )
            change = f"{spelled} {strategy}{extra}"
            cost = (
                "loses the overlap scheduler"
                if strategy == "no_buffer"
                else "second buffer taken when needed"
            )
            yield _answer(f"strategy {strategy}", running + change, reaches(change), cost, rank)
    if str(settings["mamba_ssm_dtype"]) == "float32":
        change = "--mamba-ssm-dtype bfloat16"
        yield _answer("state dtype", running + change, reaches(change), "an accuracy choice", 4)


def _answer(knob: str, change: str, found: MemoryPlan | None, text: str, rank: int) -> Solution:
    if found is None:
        return Solution(knob, None, f"{change.strip()} does not reach it", rank)
    tokens = found.figure("kv_tokens") or 0
    return Solution(knob, change.strip(), f"{text}; {tokens:,.0f} KV tokens", rank)


def _solve_fraction(
    plan: MemoryPlan, cap: int, running: str, reaches: Callable[[str], MemoryPlan | None]
) -> Iterator[Solution]:
    low, high = 1, int(_MOST * 1000)
    if reaches(f"--mem-fraction-static {high / 1000:.3f}") is None:
        yield Solution("memory fraction", None, f"not even --mem-fraction-static {_MOST:.2f} reaches it", 1)
        return
    while low < high:
        middle = (low + high) // 2
        if reaches(f"--mem-fraction-static {middle / 1000:.3f}") is not None:
            high = middle
        else:
            low = middle + 1
    change = f"--mem-fraction-static {high / 1000:.3f}"
    slack = (1 - high / 1000) * plan.figures["free_bytes"].value / GIB
    risk = "" if slack >= least_slack(plan) / GIB else ", likely too little"
    yield _answer(
        "memory fraction", running + change, reaches(change), f"{slack:.1f} GiB stay for graphs{risk}", 1
    )


def _solve_ratio(
    plan: MemoryPlan, cap: int, running: str, reaches: Callable[[str], MemoryPlan | None]
) -> Iterator[Solution]:
    state, rest = plan.figure("state_bytes_per_request") or 0.0, plan.figure("rest_bytes") or 0.0
    per_request = int(plan.settings["slots_per_request"] or 1)
    drafts = float(plan.settings["draft_tokens"] or 0)
    padding = 1 if MemoryRules(plan.inputs.rules.version).budgets_padding_slot else 0
    needed = (cap * (per_request + drafts) + padding * (1 + drafts)) * state
    if rest <= needed:
        yield Solution(
            "state ratio",
            None,
            "whatever --mamba-full-memory-ratio is: the states alone are more than weights and slack leave",
            2,
        )
        return
    ratio = math.ceil(needed / (rest - needed) * 100) / 100
    change = f"--mamba-full-memory-ratio {ratio:.2f}"
    yield _answer(
        "state ratio", running + change, reaches(change), f"{ratio:.2f} of KV's bytes for states", 2
    )
