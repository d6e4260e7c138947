"""The step: bytes, FLOPs, kernels, the host, captured graphs, drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.diagnose.claims import Topic
from headrace.diagnose.finding import CONFIGURED, COUNTED, PAIRED, SAID, SUGGESTED, Finding
from headrace.diagnose.floor import dtype_bytes
from headrace.diagnose.rules.machine import compiles
from headrace.diagnose.view import View
from headrace.engines.signs import Sign
from headrace.words import Constraint

# A graph-less step launches some 10 to 20 kernels a layer at 5 to 10 µs each: about a millisecond for ten
# layers.
LAUNCH_SECONDS_PER_LAYER = 2e-4

_USUAL_LAYERS = (
    64  # of a model whose shape is not known: more than most have, so that launches are not underrated
)

_USUAL_DRAFTS = 3  # tokens drafted a step in most recipes: EAGLE 3-1-4, MTP 3
TOO_FAST = (
    0.7  # of the data sheet's floor: parts of a checkpoint in a narrower form explain no more than that
)
ALWAYS_CAPTURED = (
    8  # the sizes that every engine captures begin with 1, 2, 4, 8 (facts on engines §2.5, §4.1)
)


def findings(view: View) -> Iterator[Finding]:
    """Yields what the step shows."""
    yield from _roofs(view)
    yield from _narrower_and_slower(view)
    yield from _other_gpu(view)
    yield from _host(view)
    yield from _graphs(view)
    yield from _drafts(view)
    yield from _unexplained(view)


def _bytes_do_not_matter(view: View) -> str:
    """A claim that fewer bytes changed nothing: the step does not wait for them."""
    for topic in (Topic.WEIGHTS_DTYPE, Topic.KV_DTYPE):
        for claim, pair in view.pairs(topic):
            rate = view.observed_rate(pair)
            close = rate is not None and pair.rate is not None and 0.9 < pair.rate / rate < 1.1
            if pair.flat or close:
                return claim.text
    return ""


def _tokens_a_step(view: View) -> float:
    """Tokens that a step makes for a request, beyond those that its time was reckoned with.

    With drafts and no acceptance told: half of the drafted, three where nobody said how many.
    """
    told = view.server.value("accept_length") is not None or view.server.value("step_ms") is not None
    if told or Sign.SPECULATION not in view.signs:
        return 1.0
    drafted = view.signs.drafts or _USUAL_DRAFTS
    rate = view.server.value("accept_rate")
    return 1.0 + drafted * (rate if rate is not None else 0.5)


def _roofs(view: View) -> Iterator[Finding]:
    """The larger part of the step is the floor: of bytes, or of FLOPs."""
    share, floor = view.decomposition.floor_share, view.floor
    step = view.decomposition.step
    if share is None or floor is None or step is None or view.decomposition.floor is None:
        return
    if compiles(view):
        return  # no steady state: a step in the window is no step of this server
    refuted = _bytes_do_not_matter(view)
    constraint = Constraint.COMPUTE if floor.bound_by_compute else Constraint.MEMORY_BANDWIDTH
    what = (
        "FLOPs at the achievable dense rate"
        if floor.bound_by_compute
        else (f"{floor.bytes.value / 1e9:,.1f} GB at achievable bandwidth")
    )
    evidence = [
        f"a step takes {step.value * 1e3:,.1f} ms; {what} take "
        f"{view.decomposition.floor.value * 1e3:,.1f} ms of it "
        f"({share.value:.0%})"
    ]
    part = share.value / _tokens_a_step(view)
    if part < 0.4 or step.range[1] < TOO_FAST * floor.datasheet.value:
        return  # most of the step is something else; or it is faster than can be, and something told is wrong
    confidence = min(SAID, 0.35 + 0.5 * part) if part >= 0.5 else SUGGESTED
    if part < share.value:
        confidence = min(confidence, SUGGESTED + 0.05)
        evidence.append("drafts are on and nobody told how many are taken: a step makes more than one token")
    if step.range[1] < 0.97 * floor.datasheet.value:
        confidence = CONFIGURED
        evidence.append("it is a little faster than those bytes allow: a part of them is narrower than told")
    if view.running is None and (view.flight or 0.0) > 1:
        confidence = min(confidence, SUGGESTED + 0.1)
        evidence.append("with as many running as are in flight: nobody told how many run")
    if refuted and constraint is Constraint.MEMORY_BANDWIDTH:
        confidence = min(confidence, 0.3)
        evidence.append(f"against it: {refuted[:160]}")
    # at this batch: down to the floor, no further
    gain = (1.0, 1.0 / share.value, 1.0 / max(share.range[0], 0.05))
    yield Finding(
        constraint,
        confidence,
        tuple(evidence),
        ("the same batch with narrower weights: no faster means bytes are not what it waits for",)
        if constraint is Constraint.MEMORY_BANDWIDTH
        else ("a smaller batch with the same step",),
        {"step": step, "floor": view.decomposition.floor, "share": share},
        gain,
    )


def _narrower_and_slower(view: View) -> Iterator[Finding]:
    """Fewer bytes and fewer tokens per second at the same load: the kernel for this form is slow."""
    for topic, told in (
        (Topic.WEIGHTS_DTYPE, view.server.weights_dtype or _dtype_in_name(view.server.model)),
        (Topic.KV_DTYPE, view.server.kv_dtype),
    ):
        here = dtype_bytes(told)
        for claim, pair in view.pairs(topic):
            there, rate = dtype_bytes(pair.alternative), view.observed_rate(pair)
            if here is None or there is None or rate is None or pair.rate is None:
                continue
            if here < there and rate < 0.95 * pair.rate:
                yield Finding(
                    Constraint.KERNEL_PATH,
                    PAIRED,
                    (
                        f"{told} moves fewer bytes than {pair.alternative} and makes {rate:,.1f} tok/s "
                        f"against "
                        f"{pair.rate:,.1f}: {pair.rate / rate:.1f} times slower",
                        f"as told: {claim.text[:160]}",
                    ),
                    ("the same comparison at another batch or context: a crossover is a matter of shapes",),
                    gain=(1.0, pair.rate / rate, 1.2 * pair.rate / rate),
                )
            elif here < there and rate <= 1.1 * pair.rate:
                yield Finding(
                    Constraint.STEP_OVERHEAD,
                    SUGGESTED - 0.05,
                    (
                        f"{told} in place of {pair.alternative} changes little: {pair.rate:,.1f} and "
                        f"{rate:,.1f} tok/s",
                    ),
                    ("a trace of one step: gaps between kernels",),
                )


def _dtype_in_name(model: str | None) -> str | None:
    words = re.split(r"[-_./ ]", (model or "").lower())
    return next((word for word in words if dtype_bytes(word) is not None), None)


def _other_gpu(view: View) -> Iterator[Finding]:
    """A GPU that is no better makes far more at the same load."""
    device = view.context.device
    if device is None or device.memory_bytes_per_second is None:
        return
    for claim, pair in view.pairs(Topic.GPU):
        other, rate = view.context.find_device(pair.alternative), view.observed_rate(pair)
        if other is None or other.memory_bytes_per_second is None or rate is None or pair.rate is None:
            continue
        if other.memory_bytes.value > 1.15 * device.memory_bytes.value:
            continue  # the other may simply hold more requests
        expected = device.memory_bytes_per_second.range[0] / other.memory_bytes_per_second.range[1]
        if rate < 0.6 * min(1.0, expected) * pair.rate:
            yield Finding(
                Constraint.KERNEL_PATH,
                CONFIGURED,
                (
                    f"{rate:,.0f} tok/s against {pair.rate:,.0f} on a {pair.alternative}, whose memory is "
                    f"{1 / expected:.1f} times as fast",
                    f"as told: {claim.text[:160]}",
                ),
                ("both runs with the same engine version, attention back end and batch",),
                gain=(1.0, expected * pair.rate / rate, pair.rate / rate * max(1.0, expected)),
            )


def _host(view: View) -> Iterator[Finding]:
    """The GPU waits for the host: as measured, or because graphs are off by choice."""
    step, host, forward = (view.server.value(word) for word in ("step_ms", "host_ms", "forward_ms"))
    if step and host is None and forward is not None:
        host = max(0.0, step - forward)
    flat = _bytes_do_not_matter(view)
    if step and host is not None and 0.1 <= host / step < 1.0:
        evidence = [f"the host takes {host:,.2f} of a step's {step:,.2f} ms ({host / step:.0%})"]
        if flat:
            evidence.append(f"fewer bytes change nothing: {flat[:140]}")
        yield Finding(
            Constraint.STEP_OVERHEAD,
            SAID if flat else COUNTED,
            tuple(evidence),
            ("a trace of one step without gaps between kernels",),
            gain=(1.0, step / (step - host / 2), step / (step - host)),
        )
    if Sign.NO_GPU in view.signs:
        return
    if Sign.EAGER in view.signs:
        yield _eager(view)
    if Sign.NO_OVERLAP in view.signs:
        yield Finding(
            Constraint.STEP_OVERHEAD,
            SUGGESTED,
            (f"every step waits for the host: {view.signs.words(Sign.NO_OVERLAP)}",),
            ("the same load with the overlap: no faster",),
        )


def _eager(view: View) -> Finding:
    """No captured graphs by choice: what launches can cost, against the remainder of the step."""
    words = view.signs.words(Sign.EAGER)
    evidence = [f"no captured graphs ({words}): every kernel is launched one by one"]
    confidence = CONFIGURED
    step, floor = view.decomposition.step, view.decomposition.floor
    model = view.context.model
    if step is not None:
        launches = LAUNCH_SECONDS_PER_LAYER * (len(model.layers) if model is not None else _USUAL_LAYERS)
        rest = step.value - (floor.value if floor is not None else 0.0)
        if rest > 5 * launches:
            confidence = SUGGESTED
            evidence.append(
                f"launches cost about {launches * 1e3:,.0f} ms a step here, and {rest * 1e3:,.0f} ms are "
                f"above the floor"
            )
        elif rest > 0.3 * step.value:
            confidence = CONFIGURED + 0.1
            evidence.append(f"{rest * 1e3:,.1f} of {step.value * 1e3:,.1f} ms are above the floor")
    cores = view.server.value("cpu_busy_cores")
    if cores is not None and cores >= 1:
        evidence.append(f"{cores:,.1f} CPU cores are busy")
    return Finding(
        Constraint.STEP_OVERHEAD, confidence, tuple(evidence), ("the same load with graphs: no faster",)
    )


def _unexplained(view: View) -> Iterator[Finding]:
    """One GPU, graphs on, no drafts, few prompts, and most of the step is neither bytes nor FLOPs.

    What the host can cost is bounded by its launches, and with graphs by less: beyond that it is kernels.
    """
    share, rest, model = view.decomposition.floor_share, view.decomposition.remainder, view.context.model
    if share is None or rest is None or share.range[1] > 0.35:
        return
    if any(sign in view.signs for sign in (Sign.EAGER, Sign.NO_GPU, Sign.SPECULATION, Sign.WEIGHTS_ON_HOST)):
        return
    prompts = view.decomposition.prefill_share
    if prompts is not None and prompts.range[1] > 0.35:
        return
    launches = LAUNCH_SECONDS_PER_LAYER * (len(model.layers) if model is not None else _USUAL_LAYERS)
    kernels = rest.value > 2 * launches
    # with several ranks the link is a third that it may be, and on a batch that is assumed all of it is vague
    vague = view.ranks > 1 or not view.running
    yield Finding(
        Constraint.KERNEL_PATH if kernels else Constraint.STEP_OVERHEAD,
        SUGGESTED - (0.13 if vague else 0.05),
        (
            f"bytes and FLOPs explain {share.value:.0%} of the step, and launching every kernel "
            f"by hand would cost "
            f"about {launches * 1e3:,.0f} of the {rest.value * 1e3:,.0f} ms that are left",
        ),
        ("a trace of one step: no kernel that takes a large part of it",),
    )


def _graphs(view: View) -> Iterator[Finding]:
    """Decode steps without a graph though graphs are on: the batch is larger than was captured."""
    if Sign.EAGER in view.signs or Sign.NO_GPU in view.signs:
        return
    running = view.running
    largest = view.server.value("cuda_graph_max_bs") or view.signs.graph_limit
    ran = view.server.value("cuda_graph")
    share = view.server.value("cuda_graph_hit_rate")
    refutes = ("the same batch with larger graphs captured: no faster",)
    if largest is not None and running is not None and running > largest:
        yield Finding(
            Constraint.CUDA_GRAPH,
            COUNTED,
            (
                f"about {running:,.0f} run and the largest captured graph holds {largest:,.0f}: those "
                f"steps are "
                "launched kernel by kernel",
            ),
            refutes,
        )
    elif ran is not None and ran < 0.5 and running is not None and running <= ALWAYS_CAPTURED:
        yield Finding(
            Constraint.STEP_OVERHEAD,
            CONFIGURED,
            (
                f"decode steps of {running:,.0f} requests run without a captured graph: graphs are off "
                f"altogether",
            ),
            ("the same load with graphs: no faster",),
        )
    elif ran is not None and ran < 0.5:
        yield Finding(
            Constraint.CUDA_GRAPH,
            SAID,
            ("the decode steps say that they ran without a captured graph, and graphs are not switched off",),
            refutes,
        )
    elif share is not None and share < 0.9:
        yield Finding(
            Constraint.CUDA_GRAPH, CONFIGURED, (f"{share:.0%} of decode steps ran as a graph",), refutes
        )


def _drafts(view: View) -> Iterator[Finding]:
    """Drafts cost more than they bring."""
    on = (
        Sign.SPECULATION in view.signs
        or view.server.value("accept_rate")
        or view.server.value("accept_length")
    )
    if not on:
        return
    rate, length = view.server.value("accept_rate"), view.server.value("accept_length")
    if rate is not None and rate < 0.4:
        yield Finding(
            Constraint.SPECULATION,
            SUGGESTED,
            (f"{rate:.0%} of drafts are accepted: most of what is verified is thrown away",),
            ("the same load without drafts: slower",),
        )
    elif length is not None and view.signs.drafts and length - 1 < 0.4 * view.signs.drafts and length > 1.0:
        taken = (length - 1) / view.signs.drafts
        disappoints = any(claim.says(r"speed-?ups?|gains?\b|faster|slower") for claim in view.claims)
        yield Finding(
            Constraint.SPECULATION,
            CONFIGURED if disappoints else SUGGESTED,
            (f"{length:.2f} tokens a step, so {taken:.0%} of the {view.signs.drafts} drafted are taken",),
            ("the same load without drafts: slower",),
        )
    elif length is not None and 1.0 < length < 1.7:
        yield Finding(
            Constraint.SPECULATION,
            SUGGESTED,
            (f"{length:.2f} tokens a step are accepted, one of them for certain",),
            ("the same load without drafts: slower",),
        )
