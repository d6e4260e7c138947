"""Traffic: between GPUs, between servers, to the host; and prompts that take the time."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.diagnose.finding import CONFIGURED, COUNTED, SAID, SUGGESTED, Finding
from headrace.diagnose.prefill import BALANCE
from headrace.diagnose.view import View
from headrace.engines.signs import Sign
from headrace.words import Constraint

LONG_PROMPT = 2048  # tokens: the smallest default of what a step reads (facts on engines §4.1)
_REFUTES = ("a trace of one step: all-reduce under a tenth of it", "the same model on one GPU, where it fits")


def findings(view: View) -> Iterator[Finding]:
    """Yields what traffic shows."""
    yield from _from_the_host(view)
    yield from _between_gpus(view)
    yield from _prompts(view)
    yield from _before_first_token(view)
    yield from _transfers(view)


def _from_the_host(view: View) -> Iterator[Finding]:
    """Weights that lie on the host cross to the GPU in every step, at a fraction of its own bandwidth."""
    if Sign.WEIGHTS_ON_HOST not in view.signs:
        return
    words = view.signs.words(Sign.WEIGHTS_ON_HOST)
    yield Finding(
        Constraint.INTERCONNECT,
        COUNTED,
        (
            f"a part of the weights lies on the host ({words}): every step reads it at the host's speed",
            *_above_floor(view),
        ),
        ("all weights on the GPU: no faster",),
    )


def _between_gpus(view: View) -> Iterator[Finding]:
    ranks = view.ranks
    if ranks < 2:
        return
    nodes = view.signs.nodes or (2 if Sign.SEVERAL_NODES in view.signs else 1)
    share = view.decomposition.floor_share
    beside = _above_floor(view)
    if nodes > 1:
        yield Finding(
            Constraint.INTERCONNECT,
            COUNTED if nodes >= ranks or (share is not None and share.value < 0.3) else SUGGESTED,
            (
                f"{ranks} tensor-parallel ranks on {nodes} machines: every layer waits for the network",
                *beside,
            ),
            _REFUTES,
        )
        return
    if Sign.NO_PEER_ACCESS in view.signs:
        evidence = [
            f"{ranks} tensor-parallel ranks without peer access "
            f"({view.signs.words(Sign.NO_PEER_ACCESS)}): every "
            "all-reduce goes through host memory"
        ]
        spread = view.server.by_rank.get("gpu_utilization_by_rank", {})
        if len(spread) > 1 and max(spread.values()) - min(spread.values()) > 0.15:
            evidence.append(
                f"GPUs are busy {min(spread.values()):.0%} to {max(spread.values()):.0%}: they wait for "
                f"each other"
            )
        yield Finding(Constraint.INTERCONNECT, COUNTED, (*evidence, *beside), _REFUTES)
        return
    if Sign.SLOW_LINK in view.signs and (share is None or share.value < 0.5):
        yield Finding(
            Constraint.INTERCONNECT,
            0.5 if share is None else CONFIGURED,
            (
                f"{ranks} tensor-parallel ranks joined by a slow link ({view.signs.words(Sign.SLOW_LINK)})",
                *beside,
            ),
            _REFUTES,
        )
        return
    event = view.server.event("allreduce_slow_path")
    if event is not None and "PCIe-only" in event.text and (share is None or share.value < 0.5):
        yield Finding(
            Constraint.INTERCONNECT,
            0.5 if share is None else CONFIGURED,
            (f"{ranks} tensor-parallel ranks, and the engine says: “{event.text[:120]}”", *beside),
            _REFUTES,
        )
        return
    link = view.context.device.interconnect if view.context.device else ""
    if (
        "PCIe" in link
        and "NVLink" not in link.replace("no NVLink", "")
        and share is not None
        and share.value < 0.5
    ):
        yield Finding(
            Constraint.INTERCONNECT,
            SUGGESTED,
            (f"{ranks} tensor-parallel ranks over {link}", *beside),
            _REFUTES,
        )


def _above_floor(view: View) -> tuple[str, ...]:
    step, floor = view.decomposition.step, view.decomposition.floor
    if step is None or floor is None or step.value <= 1.5 * floor.value:
        return ()
    return (f"a step takes {step.value * 1e3:,.1f} ms, its floor {floor.value * 1e3:,.1f} ms",)


def _prompts(view: View) -> Iterator[Finding]:
    """Prompts take the larger share of the time."""
    share = view.decomposition.prefill_share
    if share is None:
        yield from _by_rates(view)
        return
    low, _ = share.range
    if share.value < 0.35:
        return
    sure = COUNTED if low >= 0.5 or share.value >= 0.7 else CONFIGURED if share.value >= 0.5 else SUGGESTED
    if view.running is None and low < 0.5:
        sure = min(sure, SUGGESTED + 0.05)  # the share rests on how many run, which nobody told
    evidence = [f"prompts take about {share.value:.0%} of the time ({share.source})"]
    if view.server.value("queue_growing") == 1:
        evidence.append("the queue grows")
        sure = min(SAID, sure + 0.05)
    yield Finding(
        Constraint.PREFILL,
        sure,
        tuple(evidence),
        ("time spent in prefill steps from the log: under a third",),
        {"prefill_share": share},
        (1.0, 1.0 / max(0.2, 1 - share.value / 2), 1.0 / max(0.1, 1 - share.value)),
    )


def _before_first_token(view: View) -> Iterator[Finding]:
    """Most of what is in flight has no first token yet, prompts are long, and no cap or pool explains it."""
    prompt, made = view.baseline.value("mean_input_tokens"), view.baseline.value("mean_output_tokens")
    if not view.waits_before_first_token or view.is_hybrid or view.cap is not None or not prompt or not made:
        return
    if view.running_flag is not None or prompt < max(LONG_PROMPT, 8 * made):
        return
    yield Finding(
        Constraint.PREFILL,
        SUGGESTED,
        (
            f"of {view.flight or 0:,.0f} in flight most wait for their first token: prompts of {prompt:,.0f} "
            f"tokens for {made:,.0f} that are made",
        ),
        ("a cap or a pool that stands: then they wait for a place, not for prompts",),
    )


def _by_rates(view: View) -> Iterator[Finding]:
    """Many prompt tokens are read for each that is made, while requests wait."""
    read, made = view.server.value("prefill_tokens_per_s"), view.server.value("output_tokens_per_s")
    running = view.running
    if read and made is None and view.server.window is not None and view.waits:
        yield Finding(
            Constraint.PREFILL,
            SUGGESTED + 0.1,
            (f"every step that was seen reads prompts ({read:,.0f} tokens/s), and requests wait",),
            ("decode lines between the prefill lines",),
        )
        return
    if not read or not made or not running:
        return
    fresh = read * (1.0 - min(1.0, view.baseline.value("cache_hit_rate") or 0.0))
    # reading a token costs 1/balance of making one for a batch of one: 37 to 295 FLOP per byte on data sheets
    ratio = fresh / made * running / BALANCE.value
    if ratio < 0.5:
        return
    evidence = [f"{read:,.0f} prompt tokens are read for {made:,.0f} made per second, {running:,.0f} running"]
    rate = made / running
    alone = view.server.value("per_user_tokens_per_s")
    if rate < 1.0 and alone is None:
        evidence.append(f"each running request gets {rate:,.2f} tok/s: decoding waits for prompts")
    certain = fresh / made * running > 2 * BALANCE.range[1]  # on any device
    sure = CONFIGURED + 0.1 if certain else CONFIGURED if ratio > 1 else SUGGESTED
    yield Finding(
        Constraint.PREFILL,
        sure,
        tuple(evidence),
        ("time spent in prefill steps from the log: under a third",),
    )


def _transfers(view: View) -> Iterator[Finding]:
    prealloc = view.server.value("prealloc")
    ranks = view.server.by_rank.get("prealloc_by_rank", {})
    held = prealloc if prealloc is not None else sum(ranks.values()) if ranks else None
    if held and view.running is not None and held > view.running:
        yield Finding(
            Constraint.KV_TRANSFER,
            CONFIGURED,
            (f"{held:,.0f} requests hold memory and wait for their KV, {view.running:,.0f} run",),
            ("transfer time per request: short against decode",),
        )
    if Sign.DISAGGREGATED in view.signs and any(
        claim.says(r"transfer|nixl|mooncake|RDMA|\bTCP\b|(?:load|mov|fetch)\w* (?:of )?(?:the )?KV")
        for claim in view.claims
    ):
        yield Finding(
            Constraint.KV_TRANSFER,
            SUGGESTED + 0.05,
            ("prefill and decode run apart, and moving KV is what is complained of",),
            ("transfer time per request: short against decode",),
        )
    if Sign.EXPERTS_SPREAD in view.signs and any(
        claim.says(
            r"expert (?:load|imbalance|balance)|hot experts?|EPLB|imbalanced? expert"
            r"|experts?\b[^.;]{0,40}\b(?:uneven\w*|unequal\w*|skew\w*|imbalanc\w*|overload\w*|hot)\b"
        )
        for claim in view.claims
    ):
        yield Finding(
            Constraint.EXPERT_IMBALANCE,
            SUGGESTED + 0.05,
            ("experts are spread over GPUs, and their balance is what is complained of",),
            ("tokens per rank: even",),
        )
    if Sign.HOST_CACHE in view.signs and any(
        claim.says(r"storage|container|host(?: memory)? (?:is )?slow|prefetch") for claim in view.claims
    ):
        yield Finding(
            Constraint.KV_TRANSFER,
            SUGGESTED - 0.1,
            (f"KV is fetched from the host or storage ({view.signs.words(Sign.HOST_CACHE)})",),
            ("the same load with the host cache off: no faster",),
        )
