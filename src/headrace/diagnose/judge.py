"""Step 4, diagnose: what binds, what else is at work, what was ruled out, what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.diagnose.estimate import more_running, spelled
from headrace.diagnose.finding import CONFIGURED, COUNTED, SUGGESTED, Finding, Side
from headrace.diagnose.ladder import LadderRung
from headrace.diagnose.rules.idle import BUSY
from headrace.diagnose.view import NEAR, PRESSED, ROOM, View
from headrace.engines.conduct import conduct
from headrace.words import Constraint

WORTH_SAYING = 0.25  # under this, evidence is too thin to name a constraint first
_STATED_FROM, _STATED_SLOPE = 0.25, 0.72
_OFTEN_UNKNOWN = 0.25
_MOST_ALSO = 4
_DEFAULT_GAIN = 1.5  # of a side whose gain cannot be told: neither for nor against it


@dataclass(frozen=True)
class Verdict:
    """What binds, and what else is at work, the other side first."""

    binding: Finding
    also: tuple[Finding, ...]
    ruled_out: tuple[tuple[Constraint, str], ...]
    missing: tuple[str, ...]


def judge(view: View, found: Iterable[Finding], rungs: Sequence[LadderRung] = ()) -> Verdict:
    """Returns the verdict over all findings of one server.

    A state of the fleet with solid evidence comes first. While running is under the cap, nothing is queued
    and the load is free, the client binds. Otherwise constraints are weighed by their evidence and by what
    lifting them alone would gain.
    """
    merged = [_with_gain(view, _if_busy(view, finding), rungs) for finding in _merged(found)]
    merged = _roof_of_few(view, merged)
    merged.sort(key=_weight, reverse=True)
    binding = _first(merged)
    if binding is None:
        binding = Finding(
            Constraint.UNKNOWN,
            1.0 - max((finding.confidence for finding in merged), default=0.0),
            (
                "nothing ran in the window that was seen"
                if view.is_idle
                else "nothing that was given shows what holds the fleet back",
            ),
            ("any of the readings under `missing`",),
        )
    others = [finding for finding in merged if finding.constraint is not binding.constraint]
    others = [finding for finding in others if finding.confidence >= WORTH_SAYING - 0.05]
    opposite = Side.RATE if binding.side is Side.CONCURRENCY else Side.CONCURRENCY
    across = next((finding for finding in others if finding.side is opposite), None)
    if across is not None and across.confidence >= 0.5 * max(finding.confidence for finding in others):
        others.remove(across)
        others.insert(0, across)
    binding = replace(binding, confidence=_stated(_tempered(binding, others), binding, view))
    named = {binding.constraint, *(finding.constraint for finding in others)}
    return Verdict(binding, tuple(others[:_MOST_ALSO]), tuple(_ruled_out(view, named)), missing(view))


def _merged(found: Iterable[Finding]) -> list[Finding]:
    """One finding per constraint: the strongest, with the evidence of the others behind it."""
    kept: dict[Constraint, list[Finding]] = {}
    for finding in found:
        kept.setdefault(finding.constraint, []).append(finding)
    merged = []
    for group in kept.values():
        group.sort(key=lambda finding: finding.confidence, reverse=True)
        best = group[0]
        evidence = list(dict.fromkeys(text for finding in group for text in finding.evidence))
        refutes = list(dict.fromkeys(text for finding in group for text in finding.would_refute))
        numbers = {name: value for finding in reversed(group) for name, value in finding.numbers.items()}
        gain = next((finding.gain for finding in group if finding.gain is not None), None)
        # a second, independent kind of evidence adds a little
        sure = min(0.95, best.confidence + 0.03 * (len(group) - 1))
        merged.append(Finding(best.constraint, sure, tuple(evidence), tuple(refutes), numbers, gain))
    return merged


_ON_THE_GPU = frozenset(
    {Constraint.PREFILL, Constraint.MEMORY_BANDWIDTH, Constraint.COMPUTE, Constraint.KERNEL_PATH}
)


def _if_busy(view: View, finding: Finding) -> Finding:
    """What is the GPU's work does not bind while the GPU has none for a good part of the time."""
    busy = view.server.value("gpu_utilization")
    if busy is None or busy >= BUSY or finding.constraint not in _ON_THE_GPU:
        return finding
    text = f"against it: GPUs are busy {busy:.0%} of the time"
    return replace(
        finding, confidence=min(finding.confidence, SUGGESTED - 0.1), evidence=(*finding.evidence, text)
    )


def _roof_of_few(view: View, merged: list[Finding]) -> list[Finding]:
    """A step of few requests is at the roof of bytes by nature: more of them share the same bytes.

    So where running more would bring more than the way down to the floor, the roof is not what binds.
    """
    offered = max(view.flight or 0.0, (view.running or 0.0) + (view.queued or 0.0))
    limits = [f for f in merged if f.side is Side.CONCURRENCY and f.confidence >= SUGGESTED - 0.05]
    if view.waits is not True or not limits or view.running is None or offered <= view.running:
        return merged
    more = more_running(view, offered)[1]
    return [
        replace(f, confidence=0.5 * min(g.confidence for g in (f, *limits)))
        if f.constraint is Constraint.MEMORY_BANDWIDTH and f.gain is not None and more > f.gain[1]
        else f
        for f in merged
    ]


def _with_gain(view: View, finding: Finding, rungs: Sequence[LadderRung]) -> Finding:
    """Gains of the concurrency side come from the ladder: up to the next rung, or what is in flight."""
    if finding.gain is not None or finding.side is not Side.CONCURRENCY or view.running is None:
        return finding
    above = [
        rung.limit.value
        for rung in rungs
        if rung.limit is not None
        and rung.constraint is not finding.constraint
        and rung.limit.value > view.running * 1.02
    ]
    if not above:
        return finding
    gain = more_running(view, min(above))
    worth = f"alone it is worth {spelled(gain)}: the next cap is {min(above):,.0f}"
    return replace(finding, gain=gain, evidence=(*finding.evidence, worth))


def _weight(finding: Finding) -> float:
    """Evidence × what lifting it alone would gain, as a share of the throughput it would lead to."""
    gain = max(1.0, finding.gain[1]) if finding.gain is not None else _DEFAULT_GAIN
    return finding.confidence * (0.6 + 0.8 * (1.0 - 1.0 / gain))


def _first(merged: Sequence[Finding]) -> Finding | None:
    for finding in merged:
        if finding.side is Side.STATE and finding.confidence >= COUNTED:
            return finding
    client = next((f for f in merged if f.constraint is Constraint.CLIENT_CONCURRENCY), None)
    ended = any(f.constraint is Constraint.SERVER_DOWN and f.confidence >= CONFIGURED for f in merged)
    if client is not None and client.confidence >= CONFIGURED and not ended:
        return client
    worth = [finding for finding in merged if finding.confidence >= WORTH_SAYING]
    return worth[0] if worth else None


def _tempered(binding: Finding, others: Sequence[Finding]) -> float:
    """Confidence that this is the answer: less where another is nearly as well supported on the same side."""
    rivals = [f.confidence for f in others if f.side is binding.side or f.side is Side.STATE]
    if not rivals or binding.constraint is Constraint.UNKNOWN:
        return round(binding.confidence, 2)
    close = max(0.0, max(rivals) / max(binding.confidence, 0.01) - 0.5)
    return round(binding.confidence * (1 - 0.25 * min(close, 1.0)), 2)


def _stated(confidence: float, binding: Finding, view: View) -> float:
    """How sure the answer is said to be: by how often answers of that weight were right on unseen reports.

    Of 116 answers on public reports not seen before (docs/accuracy.md), those of weight 0.25 to 0.5 were
    right in 73 %, 0.5 to 0.7 in 79 %, 0.7 to 0.85 in 89 %, and all above. The line lies half-way there,
    since who wrote the rules also labelled the reports; `unknown` was acceptable in 11 of 45.
    """
    if binding.constraint is Constraint.UNKNOWN:
        return confidence if view.is_idle else round(_OFTEN_UNKNOWN * confidence, 2)
    return round(max(confidence, _STATED_FROM + _STATED_SLOPE * confidence), 2)


def _ruled_out(view: View, named: set[Constraint]) -> Iterable[tuple[Constraint, str]]:
    """A row per resource that a reading speaks against; a resource without a reading is under `missing`."""
    value = view.server.value
    rows: list[tuple[Constraint, str]] = []
    queued, running = view.queued, view.running
    cap = view.cap.value if view.cap else None
    if queued is not None and queued >= 1:
        rows.append(
            (Constraint.CLIENT_CONCURRENCY, f"{queued:,.0f} wait in the server: it is offered enough")
        )
    elif not view.load_is_free:
        rows.append((Constraint.CLIENT_CONCURRENCY, "the load is given: in flight is not ours to choose"))
    kv = value("kv_usage")
    if kv is not None and kv < PRESSED:
        rows.append((Constraint.KV_POOL, f"{kv:.0%} of the KV pool is used"))
    if running is not None and cap is not None and running < NEAR * cap and queued == 0:
        below = f"{running:,.0f} run of {cap:,.0f} that may"
        rows.append((Constraint.MAX_RUNNING_REQUESTS, below))
        if view.is_hybrid:
            rows.append((Constraint.STATE_POOL, below))
    if queued == 0:
        rows.append((Constraint.ADMISSION, "nothing waits"))
    state = value("state_usage")
    if state is not None and queued is not None and queued >= 1 and state < 0.3:
        rows.append((Constraint.STATE_POOL, f"{state:.0%} of the state pool is used"))
    share = view.decomposition.prefill_share
    if share is not None and share.range[1] < 0.2:
        low, high = share.range
        told = f"about {share.value:.0%}" if high < 0.03 else f"{low:.0%} to {high:.0%}"
        rows.append((Constraint.PREFILL, f"prompts take {told} of the time"))
    floor = view.floor
    if floor is not None and floor.compute is not None and not floor.bound_by_compute:
        rows.append(
            (
                Constraint.COMPUTE,
                f"a step's FLOPs take {floor.compute.value * 1e3:,.1f} ms, its bytes "
                f"{floor.achievable.value * 1e3:,.1f} ms",
            )
        )
    if value("cuda_graph") == 1:
        rows.append((Constraint.CUDA_GRAPH, "decode steps run as captured graphs"))
    lost = value("retractions_per_min") if value("retractions_per_min") is not None else value("preemptions")
    if lost == 0:
        rows.append((Constraint.RETRACTION, "no work was thrown away"))
    power, limit, throttled = (
        value("gpu_power_w"),
        value("gpu_power_limit_w"),
        value("throttle_power_percent"),
    )
    if throttled == 0 or (power is not None and limit is not None and power < 0.8 * limit):
        drawn = (
            f"{power:,.0f} of {limit:,.0f} W" if power is not None and limit is not None else "no throttling"
        )
        rows.append((Constraint.POWER_THERMAL, drawn))
    if view.server.gpus == 1:
        rows.append((Constraint.INTERCONNECT, "one GPU per server"))
    hits = view.baseline.value("cache_hit_rate")
    if hits is not None and hits > ROOM:
        rows.append((Constraint.PREFIX_CACHE, f"hit rate {hits:.0%}"))
    seen = set(named)
    for constraint, text in rows:
        if constraint not in seen:
            seen.add(constraint)
            yield constraint, text


def missing(view: View) -> tuple[str, ...]:
    """Returns what the evidence lacks, the most telling first, each with the way to get it."""
    server, value = view.server, view.server.value
    ways = conduct(server.engine)
    asked = ways.load_told_at
    lacking: list[str] = []
    if view.is_idle:
        lacking.append("a window in which requests run: ask again while the job is under way")
    if value("running") is None:
        lacking.append(f"running and queued requests: headrace diagnose http://HOST:PORT reads {asked}")
    elif value("queued") is None:
        lacking.append(f"queued requests: {asked}, or the engine's log lines")
    if view.cap is None:
        lacking.append(f"the cap on running requests: {ways.cap_told_at}")
    if value("output_tokens_per_s") is None and value("output_tokens_per_s_per_gpu") is None:
        lacking.append("throughput as the server counts it: one decode or stats line of its log")
    if value("kv_usage") is None:
        lacking.append("the KV pool's usage: a decode or stats line of the log, or a metrics page")
    if value("cache_hit_rate") is None:
        lacking.append(ways.hits_told_at)
    if view.context.model is None and not server.model:
        lacking.append("the model: --model ID, or the path of its config.json")
    if view.context.device is None:
        if not server.gpu and not any(text.startswith("the GPU") for text in server.missing):
            lacking.append("the GPU: --gpu NAME")
    elif view.context.device.candidates:
        lacking.append(f"the GPU's edition: --gpu, one of {', '.join(view.context.device.candidates[:3])}")
    if not server.flags:
        lacking.append('the launch flags: --flags "…"')
    if view.client.value("in_flight") is None and view.client.load is None:
        lacking.append(
            "requests in flight at the client, and whether that is ours to choose: --load free|given"
        )
    return tuple(dict.fromkeys((*lacking, *server.missing)))
