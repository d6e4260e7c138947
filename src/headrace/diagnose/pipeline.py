"""The six steps in a row: an Observation in, a Diagnosis out. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headrace.diagnose.audit import audit
from headrace.diagnose.baseline import Baseline
from headrace.diagnose.claims import read_claims
from headrace.diagnose.compare import compare
from headrace.diagnose.context import Context, Planned
from headrace.diagnose.curve import throughput_curve
from headrace.diagnose.decompose import decompose
from headrace.diagnose.document import Diagnosis, ServerVerdict, Subject
from headrace.diagnose.finding import Finding, Side
from headrace.diagnose.floor import Floor, rough_floor, step_floor
from headrace.diagnose.judge import Verdict, judge
from headrace.diagnose.ladder import LadderRung, ladder
from headrace.diagnose.measure import measure
from headrace.diagnose.planning import planned
from headrace.diagnose.prefill import prefill_share
from headrace.diagnose.propose import propose
from headrace.diagnose.roofline import roofline
from headrace.diagnose.rules import findings
from headrace.diagnose.view import View
from headrace.engines.signs import read_signs
from headrace.observe.observation import ClientFacts, Observation, ServerObservation
from headrace.words import Constraint

_NOBODY = ServerObservation("server")


def diagnose(observation: Observation, context: Context) -> Diagnosis:
    """Returns the diagnosis of a fleet, with the assumptions that would change it."""
    found = diagnose_as_told(observation, context)
    matters = audit(found, observation, context, diagnose_as_told)
    return replace(found, assumptions=(*matters, *found.assumptions))


def diagnose_as_told(observation: Observation, context: Context) -> Diagnosis:
    """Returns the diagnosis of a fleet, its assumptions not audited.

    Every server is judged by itself; the fleet's verdict is that of most servers, and the numbers are those
    of the first server with that verdict. Evidence of no server at all gives `unknown`.
    """
    servers = observation.servers or (_NOBODY,)
    views = [view_of(observation, server, context) for server in servers]
    judged = [_judge(view) for view in views]
    counted: Counter[Constraint] = Counter()
    for view, (verdict, _) in zip(views, judged, strict=True):
        counted[verdict.binding.constraint] += view.server.replicas
    known = [item for item in counted.most_common() if item[0] is not Constraint.UNKNOWN]
    winner = (known or counted.most_common())[0][0]
    at = next(i for i, (verdict, _) in enumerate(judged) if verdict.binding.constraint is winner)
    view, (verdict, rungs) = views[at], judged[at]
    comparison = compare(
        view.baseline,
        view.floor,
        view.claims,
        context,
        view.planned.contradiction if view.planned else "",
    )
    single = len(servers) == 1
    also = verdict.also
    if winner is not Constraint.SERVER_DOWN:
        down = [found.binding for found, _ in judged if found.binding.constraint is Constraint.SERVER_DOWN]
        also = (*down[:1], *also)
    return Diagnosis(
        _subject(observation, view),
        view.baseline,
        comparison,
        view.decomposition,
        verdict.binding,
        also,
        rungs,
        propose(view, verdict, rungs),
        _assumptions(view),
        verdict.ruled_out,
        (*context.missing, *verdict.missing),
        (*observation.notes, *view.server.notes, *view.baseline.notes),
        ()
        if single
        else tuple(
            ServerVerdict(each.server.name, found.binding.constraint, found.binding.confidence)
            for each, (found, _) in zip(views, judged, strict=True)
        ),
        roofline(view.floor, view.decomposition.step),
        throughput_curve(view, rungs),
    )


def view_of(observation: Observation, server: ServerObservation, context: Context) -> View:
    """Returns one server as the rules see it: the first three steps done."""
    client = observation.client or ClientFacts()
    signs = read_signs(server.flags, (*observation.notes, *server.notes), server.settings)
    plan = planned(server, context, None)
    derives = plan is not None and (plan.explained is not None or (server.flags and not plan.contradiction))
    capacity = plan.plan.figures.get("kv_tokens") if plan is not None and derives else None
    if capacity is not None and capacity.value < 1:
        capacity = None  # such a server would not start: what was told of it is not all
    baseline = measure(observation, server, capacity)
    resident = baseline.value("context_tokens")
    if resident is not None:
        plan = planned(server, context, resident)
    floor = _floor(server, baseline, context, plan)
    share = prefill_share(server, client, baseline, context)
    split = decompose(baseline, floor, share)
    claims = read_claims((*observation.claims, *context.expectations))
    return View(observation, server, context, signs, baseline, plan, floor, split, claims)


def _floor(
    server: ServerObservation, baseline: Baseline, context: Context, plan: Planned | None
) -> Floor | None:
    batch = baseline.get("batch")
    if context.device is None or batch is None:
        return None
    if context.model is None:
        return rough_floor(
            server.model,
            context.device,
            batch=batch,
            tensor_parallel=server.tensor_parallel or 1,
            weights_dtype=server.weights_dtype,
        )
    figures = plan.plan.figures if plan else {}
    return step_floor(
        context.model,
        context.device,
        batch=batch,
        context_tokens=baseline.get("context_tokens"),
        tensor_parallel=server.tensor_parallel or 1,
        weights_dtype=server.weights_dtype,
        kv_bytes_per_token=figures.get("kv_bytes_per_token"),
        state_bytes_per_request=figures.get("state_bytes_per_request"),
    )


def _judge(view: View) -> tuple[Verdict, tuple[LadderRung, ...]]:
    found = findings(view)
    rungs = ladder(view, _rate_side(found, view))
    return judge(view, found, rungs), rungs


def _rate_side(found: list[Finding], view: View) -> Constraint | None:
    """What sets the step once the caps are gone: the best rate-side finding, else the higher roof."""
    rate = [finding for finding in found if finding.side is Side.RATE]
    best = max(rate, key=lambda finding: finding.confidence, default=None)
    if best is not None and best.confidence >= 0.5:
        return best.constraint
    if view.floor is None:
        return best.constraint if best is not None else None
    return Constraint.COMPUTE if view.floor.bound_by_compute else Constraint.MEMORY_BANDWIDTH


def _subject(observation: Observation, view: View) -> Subject:
    server, client = view.server, view.client
    return Subject(
        observation.source,
        server.engine,
        server.engine_version,
        server.model,
        server.gpu,
        observation.gpus,
        observation.replicas,
        view.load_is_free,
        client.load is not None,
    )


def _assumptions(view: View) -> tuple[str, ...]:
    found = list(view.baseline.assumptions)
    if view.client.load is None:
        what = "free: in flight is ours to choose" if view.load_is_free else "given: one in flight"
        found.append(f"the load is {what} (nobody said: --load free|given)")
    if view.context.device is not None:
        found += view.context.device.assumptions
    if view.planned is not None:
        explained = view.planned.explained
        if explained is not None and explained.untold:
            found.append(f"{explained.text}: nobody told, the reported sizes say so")
            found += [
                f"instead of that it could be: {other.text}" for other in view.planned.others if other.untold
            ][:2]
        found += view.planned.plan.assumptions
    return tuple(dict.fromkeys(found))
