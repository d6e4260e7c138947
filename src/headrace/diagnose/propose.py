"""Step 5, propose: levers with the exact flags of this engine and version, each checked by the planner.

What needs no restart comes first among equals; what needs each other comes together; what touches accuracy
comes last, and never as an action unless it was allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.diagnose.estimate import more_running, narrowed_by, second_order, step_model, throughput
from headrace.diagnose.finding import Side, side_of
from headrace.diagnose.judge import Verdict
from headrace.diagnose.ladder import LadderRung
from headrace.diagnose.mending import mending
from headrace.diagnose.proposal import Proposal
from headrace.diagnose.view import View
from headrace.engines.advice import Change, next_changes
from headrace.engines.launch_line import LaunchLine
from headrace.engines.plan import MemoryPlan
from headrace.engines.remedies import remedies, without_speculation
from headrace.engines.signs import Sign
from headrace.perf.step_model import StepModel
from headrace.words import Constraint, Lever

ACCURACY = frozenset({Lever.STATE_DTYPE, Lever.KV_DTYPE})
_PREFIX_LEVERS = frozenset({Lever.RADIX_CACHE_OFF, Lever.PREFIX_CACHE_OFF})
_SHARED = 0.05  # under a few percent of hits, no prefix reuse is lost (facts on engines §2.4)
_ACCURACY_RANK = 4
_MOST_GRAPH = 1024


def propose(view: View, verdict: Verdict, rungs: Sequence[LadderRung]) -> tuple[Proposal, ...]:
    """Returns proposals for what binds and for the caps above it, the most worth their cost first."""
    named = [verdict.binding.constraint, *(finding.constraint for finding in verdict.also)]
    found = [*_client(view, named, rungs), *_caps(view, named, rungs), *_rates(view, named)]
    priced = step_model(view) is not None
    found.sort(key=lambda proposal: _worth(proposal, priced), reverse=True)
    chosen: list[Proposal] = []
    seen: set[tuple[tuple[Lever, ...], str]] = set()
    for proposal in found:
        key = (proposal.levers, proposal.flags)
        if key not in seen:
            seen.add(key)
            chosen.append(proposal)
    chosen.sort(key=lambda proposal: (proposal.accuracy, proposal.needs_restart))
    mends = tuple(
        Proposal((), text, needs_restart=True) for text in mending(view, verdict.binding.constraint)
    )
    if mends and side_of(verdict.binding.constraint) is Side.STATE:
        return mends  # more requests or other sizes are no help to a server that has ended
    return (*chosen, *mends)


def _worth(proposal: Proposal, priced: bool) -> float:
    """Gain × how sure ÷ cost: no restart is worth a little, an unknown gain counts as little."""
    middle = proposal.gain[1] if proposal.gain else 1.1
    low = proposal.gain[0] if proposal.gain else 1.0
    price = 1.0 + (0.25 if proposal.needs_restart else 0.0) + 0.1 * len(proposal.costs)
    if Lever.FEWER_BUFFERS in proposal.levers and not priced:
        price += 1.5  # every step then waits for the host: what that costs is not in the gain
    if Lever.STATE_SHARE in proposal.levers:
        price += 0.3
    return ((middle - 1.0) + (low - 1.0) + 0.02) / price


def _proposal(
    view: View,
    levers: tuple[Lever, ...],
    change: str,
    running: float | None,
    after: StepModel | None = None,
    **fields: Any,
) -> Proposal:
    """`after` is the step model under the settings that the change leads to, None where they stay."""
    gain = None
    if running is not None and view.running:
        gain = more_running(view, running, after)
        fields["effects"] = second_order(view, running, after)
    estimate = throughput(view, gain) if gain else None
    return Proposal(
        levers,
        change,
        running=int(running) if running is not None else None,
        gain=gain,
        estimate=estimate,
        narrows=narrowed_by(view) if gain else "",
        **fields,
    )


# ── the client ────────────────────────────────────────────────────────────────────────────────────────────
def _client(view: View, named: Sequence[Constraint], rungs: Sequence[LadderRung]) -> Iterator[Proposal]:
    running = view.running
    if Constraint.CLIENT_CONCURRENCY in named and running is not None and view.load_is_free:
        above = [
            rung
            for rung in rungs
            if rung.limit is not None
            and rung.limit.value > running
            and rung.constraint is not Constraint.CLIENT_CONCURRENCY
        ]
        if above:
            rung = above[0]
            assert rung.limit is not None
            cap = rung.limit.value
            change = f"{_some_more(cap):,} in flight per server, so that {cap:,.0f} run and a few wait"
        else:
            cap = 2 * running
            change = f"twice as many in flight per server ({cap:,.0f}), watching running and the KV pool"
        yield _proposal(view, (Lever.CLIENT_IN_FLIGHT,), change, cap)
    if Constraint.CLIENT_SIDE in named:
        flight = view.flight
        yield _proposal(
            view,
            (Lever.CLIENT_CONNECTIONS,),
            "lift the client's limit on open connections"
            + (f" to {flight * view.observation.replicas:,.0f}, what it wants in flight" if flight else ""),
            flight,
            checks=("connections that the client holds open, and its CPU",),
        )
    if Constraint.LONG_TAIL in named or Constraint.LOAD_IMBALANCE in named:
        yield Proposal(
            (Lever.SHARED_QUEUE,),
            "one queue for all servers, the longest requests first, in place of an even split",
        )
    if Constraint.RUNAWAY_LENGTH in named:
        yield Proposal(
            (Lever.LENGTH_LIMIT,),
            "a limit on the length of each answer, and a stop word where the model has none",
            costs=("answers that are cut",),
        )


def _some_more(cap: float) -> int:
    """In flight for a cap: an eighth more, so that a place that is left is filled at once."""
    return int(cap + max(2, cap // 8))


# ── caps ──────────────────────────────────────────────────────────────────────────────────────────────────
_CAPS = (
    Constraint.STATE_POOL,
    Constraint.MAX_RUNNING_REQUESTS,
    Constraint.KV_POOL,
    Constraint.CLIENT_CONCURRENCY,
    Constraint.RETRACTION,
)


def _caps(view: View, named: Sequence[Constraint], rungs: Sequence[LadderRung]) -> Iterator[Proposal]:
    """Memory levers, where a cap is what binds or what binds next."""
    plan, planner = view.planned.plan if view.planned else None, view.context.planner
    if not any(constraint in named for constraint in _CAPS):
        return
    if plan is None or planner is None or plan.lowest is None:
        yield from _flag_alone(view, named)
        return
    if (
        Constraint.CLIENT_CONCURRENCY in named
        and view.running is not None
        and plan.lowest.running.value > 2 * view.running
    ):
        return  # the next cap is far away
    hits = view.baseline.value("cache_hit_rate")
    for change in next_changes(planner, plan):
        proposal = _of_change(view, plan, change, hits)
        if proposal is not None:
            yield proposal


def _of_change(view: View, plan: MemoryPlan, change: Change, hits: float | None) -> Proposal | None:
    planner = view.context.planner
    assert planner is not None
    lever = Lever(change.candidate.lever)
    if lever in _PREFIX_LEVERS and hits is not None and hits >= _SHARED:
        return None
    accuracy = change.candidate.cost_rank >= _ACCURACY_RANK
    line = _written(view, change.candidate.change)
    if line is None:
        return None
    running = float(change.running)
    edit = change.candidate.change
    levers: tuple[Lever, ...] = (lever,)
    costs = [change.candidate.cost]
    graphs = _graphs(view, running)
    if graphs:
        levers = (*levers, Lever.GRAPH_SIZES)
        edit = f"{edit} {graphs[0]}"
        costs.append(graphs[1])
        line = _written(view, edit)
        if line is None:
            return None
    text = f"{edit}: up to {running:,.0f} run"
    if view.load_is_free:
        levers = (*levers, Lever.CLIENT_IN_FLIGHT)
        text += f", with {_some_more(running):,} in flight per server"
    checks: tuple[str, ...] = ()
    if lever in _PREFIX_LEVERS:
        checks = (
            "cached ÷ prompt tokens is about 0: prompts are one-shot"
            if hits is None
            else f"hit rate {hits:.1%}",
        )
    return _proposal(
        view,
        levers,
        text,
        running,
        _step_after(view, plan, edit),
        flags=edit,
        launch_line=line,
        needs_restart=True,
        costs=tuple(costs),
        checks=checks,
        accuracy=accuracy,
    )


def _step_after(view: View, plan: MemoryPlan, edit: str) -> StepModel | None:
    """The step model under the settings after an edit, of the plan that agrees with what was reported."""
    usual, planner = step_model(view), view.context.planner
    if usual is None or planner is None:
        return None
    line = plan.inputs.line.changed(edit, planner.table, plan.inputs.rules.version)
    return usual.under(planner.plan(plan.inputs.with_line(line)))


def _written(view: View, edit: str) -> str | None:
    """The flags as told with an edit applied, None where the planner says that they would not start.

    The edit is made on the line as told, not on one that was inferred: what nobody told stays untold.
    """
    told, planner = view.planned.told if view.planned else None, view.context.planner
    if told is None or planner is None:
        return None
    line = told.inputs.line.changed(edit, planner.table, told.inputs.rules.version)
    if not planner.plan(told.inputs.with_line(line)).would_start:
        return None
    return line.text()


def _graphs(view: View, running: float) -> tuple[str, str] | None:
    """The edit that captures graphs for that many, where a told limit is lower."""
    largest = view.server.value("cuda_graph_max_bs") or view.signs.graph_limit
    planner, told = view.context.planner, view.planned.told if view.planned else None
    if largest is None or planner is None or told is None or running <= largest or running > _MOST_GRAPH:
        return None
    wanted = int(-(-running // 32) * 32)
    found = next(
        remedies(Lever.GRAPH_SIZES, planner, told.inputs.rules.version, told.inputs.line, wanted), None
    )
    return (found.change, found.cost) if found else None


def _flag_alone(view: View, named: Sequence[Constraint]) -> Iterator[Proposal]:
    """Without a model no plan can be made: only the user's own limit can be named."""
    planner = view.context.planner
    if Constraint.MAX_RUNNING_REQUESTS not in named or planner is None or view.running is None:
        return
    wanted = 2 * int(view.running)
    version = planner.rules(view.server.engine_version or "").version
    nothing = LaunchLine.parse("", planner.table, version)
    for remedy in remedies(Lever.RUNNING_FLAG, planner, version, nothing, wanted):
        yield _proposal(
            view,
            (Lever.RUNNING_FLAG, Lever.CLIENT_IN_FLIGHT),
            f"{remedy.change}, with as many in flight",
            wanted,
            flags=remedy.change,
            needs_restart=True,
            checks=(
                "the pools' usage now: they must hold twice as many (--model and --gpu let that be planned)",
            ),
        )


# ── the step ──────────────────────────────────────────────────────────────────────────────────────────────
def _rates(view: View, named: Sequence[Constraint]) -> Iterator[Proposal]:
    running = int(view.running or 0)
    if Constraint.CUDA_GRAPH in named:
        yield from _flags(
            view, Lever.GRAPH_SIZES, -(-max(running, 1) // 32) * 32, "graphs up to {n} requests"
        )
    if Constraint.STEP_OVERHEAD in named:
        if Sign.EAGER in view.signs:
            yield from _flags(view, Lever.GRAPHS_ON, 0, "captured graphs on")
        if Sign.NO_OVERLAP in view.signs:
            yield from _flags(view, Lever.OVERLAP_ON, 0, "the overlap of host and GPU on")
    if Constraint.ADMISSION in named or Constraint.TOKEN_BUDGET in named:
        yield from _flags(view, Lever.LESS_RESERVE, 16384, "a smaller reserve for tokens to come")
    if Constraint.RETRACTION in named and view.running:
        yield from _flags(view, Lever.MORE_RESERVE, max(1, int(0.8 * running)), "fewer admitted at once")
    if Constraint.FRONTEND in named:
        yield from _flags(view, Lever.FRONTEND_PROCESSES, 4, "more front-end processes")
    if Constraint.SPECULATION in named:
        yield from _speculation(view)
    for constraint, lever, text in _BESIDE:
        if constraint in named:
            yield Proposal((lever,), text, needs_restart=lever not in (Lever.COOLING, Lever.MORE_SERVERS))


_BESIDE = (
    (
        Constraint.INTERCONNECT,
        Lever.PEER_ACCESS,
        "let the GPUs reach each other directly (driver, IOMMU, bridge), or one server per GPU where the "
        "model fits",
    ),
    (
        Constraint.KERNEL_PATH,
        Lever.WEIGHTS_FORM,
        "another form of the weights or KV, or a back end with tuned kernels for this one; the paired "
        "run shows which",
    ),
    (Constraint.POWER_THERMAL, Lever.COOLING, "cooling and power limit: read both back after setting them"),
    (
        Constraint.PREFILL,
        Lever.MORE_SERVERS,
        "prompts are the work: more servers, or prompts that share their beginning",
    ),
)


_OF_THE_STEP = frozenset({Lever.GRAPH_SIZES, Lever.GRAPHS_ON, Lever.OVERLAP_ON})


def _flags(view: View, lever: Lever, number: int, text: str) -> Iterator[Proposal]:
    planner = view.context.planner
    if planner is None:
        return
    told = view.planned.told if view.planned else None
    version = told.inputs.rules.version if told else planner.rules(view.server.engine_version or "").version
    line = told.inputs.line if told else LaunchLine.parse("", planner.table, version)
    for remedy in remedies(lever, planner, version, line, number):
        written = _written(view, remedy.change)
        if told is not None and written is None:
            continue
        plan = view.planned.plan if view.planned else None
        after = _step_after(view, plan, remedy.change) if plan is not None and lever in _OF_THE_STEP else None
        yield _proposal(
            view,
            (lever,),
            f"{remedy.change}: {text.format(n=number)}",
            view.running if after is not None else None,
            after,
            flags=remedy.change,
            launch_line=written or "",
            needs_restart=True,
            costs=(remedy.cost,),
        )
        return


def _speculation(view: View) -> Iterator[Proposal]:
    told = view.planned.told if view.planned else None
    edit = without_speculation(told.inputs.line) if told else ""
    yield Proposal(
        (Lever.SPECULATION_OFF,),
        f"{edit}: drafts off" if edit else "speculative decoding off",
        edit,
        (_written(view, edit) or "") if edit else "",
        True,
        checks=("acceptance on the job's own prompts",),
    )
