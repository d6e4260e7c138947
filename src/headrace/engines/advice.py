"""From a memory plan to what to do: the next changes, and which untold setting explains reported numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from headrace.engines.plan import Candidate, MemoryPlan, Planner, Solution, Untold
from headrace.errors import UsageError

REPORTED_KEYS = ("cap", "slots", "kv", "weights", "free")
# How far a reported size may lie from the computed one: free memory before load is uncertain by about half a
# percent, and what is left after weights by four times that. A cap is exact, or one when pools decide it.
_SIZE_TOLERANCE = 0.02
_MOST_PAIRS = 400  # pairs of untold settings tried at most; a plan costs a quarter of a millisecond


@dataclass(frozen=True, slots=True)
class Change:
    """A candidate with the plan it leads to."""

    candidate: Candidate
    plan: MemoryPlan
    line: str

    @property
    def cap(self) -> int:
        return int(self.plan.cap.value) if self.plan.cap else 0

    @property
    def running(self) -> int:
        """Requests that can run at the stated context: the lowest rung."""
        return int(self.plan.lowest.running.value) if self.plan.lowest else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "lever": self.candidate.lever,
            "change": self.candidate.change,
            "cost": self.candidate.cost,
            "cost_rank": self.candidate.cost_rank,
            "cap": self.cap,
            "cap_bound_by": str(self.plan.cap_bound_by),
            "running": self.running,
            "kv_tokens": self.plan.figure("kv_tokens"),
            "flags": self.line,
        }


def next_changes(planner: Planner, plan: MemoryPlan) -> list[Change]:
    """Returns the single changes that lift the cap, those that cost least first; each checked by its own
    plan.

    More is a higher lowest rung: the cap, or at a stated context the pool where that is lower. A change that
    the engine refuses, or that lifts nothing, is left out.
    """
    before = plan.lowest.running.value if plan.lowest else 0
    found = []
    for candidate in planner.candidates(plan):
        line = plan.inputs.line.changed(candidate.change, planner.table, plan.inputs.rules.version)
        after = planner.plan(plan.inputs.with_line(line))
        if after.would_start and after.lowest is not None and after.lowest.running.value > before:
            found.append(Change(candidate, after, line.text()))
    return sorted(found, key=lambda change: (change.candidate.cost_rank, -change.running))


def solutions(planner: Planner, plan: MemoryPlan, cap: int) -> list[Solution]:
    """Returns knob by knob what gives that cap, those that can and cost least first."""
    return sorted(planner.solve(plan, cap), key=lambda s: (s.change is None, s.cost_rank))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Settings nobody told under which the plan agrees with what was reported; none where the line already
    does.
    """

    untold: tuple[Untold, ...]
    plan: MemoryPlan
    error: float  # largest relative difference over the reported sizes

    @property
    def text(self) -> str:
        return " and ".join(part.text for part in self.untold) or "nothing untold is needed"

    def to_json(self) -> dict[str, Any]:
        return {
            "untold": [part.change for part in self.untold],
            "text": self.text,
            "largest_difference": round(self.error, 5),
            "cap": self.plan.cap.value if self.plan.cap else None,
            "state_slots": self.plan.figure("state_slots"),
            "kv_tokens": self.plan.figure("kv_tokens"),
        }


def parse_reported(text: str) -> dict[str, float]:
    """Returns what `cap=37,slots=188,kv=250905,weights=51.1` reports; weights and free are GiB.

    Raises:
        UsageError: an unknown key or a value that is no number; all at once.
    """
    found: dict[str, float] = {}
    problems = []
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not key:
            continue
        if key not in REPORTED_KEYS or not equals:
            problems.append(
                f"--reported has '{part.strip()}'; it takes {', '.join(REPORTED_KEYS)} as key=number."
            )
            continue
        try:
            found[key] = float(value.replace("_", ""))
        except ValueError:
            problems.append(f"--reported {key}={value}: that is no number.")
    if problems:
        raise UsageError(problems)
    return found


def explain(planner: Planner, plan: MemoryPlan, reported: Mapping[str, float]) -> list[Explanation]:
    """Returns the settings nobody told that reconcile the plan with what was reported, the likeliest first.

    An empty list says that none of the settings tried does, alone or in pairs. One entry without untold
    settings says that the line as told agrees already. Sizes agree within 2 %, the cap exactly.
    """
    known = {key: value for key, value in reported.items() if key in ("cap", "slots", "kv")}
    if not known:
        return []
    error = _difference(plan, known)
    if error is not None:
        return [Explanation((), plan, error)]
    single = list(planner.untold(plan, reported))
    found = [e for part in single if (e := _try(planner, plan, (part,), known)) is not None]
    if not found:
        found = list(_pairs(planner, plan, single, known))
    return sorted(found, key=lambda e: (len(e.untold), sum(part.rank for part in e.untold), e.error))


def _pairs(
    planner: Planner, plan: MemoryPlan, single: list[Untold], known: Mapping[str, float]
) -> Iterator[Explanation]:
    for count, pair in enumerate(combinations(single, 2)):
        if count >= _MOST_PAIRS:
            return
        if _flag(pair[0]) != _flag(pair[1]):
            explained = _try(planner, plan, pair, known)
            if explained is not None:
                yield explained


def _flag(part: Untold) -> str:
    return part.change.split()[0].split("=")[0]


def _try(
    planner: Planner, plan: MemoryPlan, parts: tuple[Untold, ...], known: Mapping[str, float]
) -> Explanation | None:
    change = " ".join(part.change for part in parts)
    line = plan.inputs.line.changed(change, planner.table, plan.inputs.rules.version)
    after = planner.plan(plan.inputs.with_line(line))
    error = _difference(after, known)
    return None if error is None else Explanation(parts, after, error)


def _difference(plan: MemoryPlan, known: Mapping[str, float]) -> float | None:
    """The largest relative difference of the sizes, None where something disagrees or the server would not
    start.
    """
    if not plan.would_start or plan.cap is None:
        return None
    worst = 0.0
    if "cap" in known and int(plan.cap.value) != int(known["cap"]):
        return None
    for key, name in (("slots", "state_slots"), ("kv", "kv_tokens")):
        if key not in known:
            continue
        computed = plan.figure(name)
        if not computed or not known[key]:
            return None
        error = abs(computed - known[key]) / known[key]
        if error > _SIZE_TOLERANCE and abs(computed - known[key]) > 1:
            return None
        worst = max(worst, error)
    return worst
