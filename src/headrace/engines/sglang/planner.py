"""SGLang's memory plan: settings and sizes put together, with every figure's formula and the ladder of
caps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headrace.engines.flags import FlagTable
from headrace.engines.plan import (
    GIB,
    Candidate,
    MemoryPlan,
    PlanInputs,
    Pool,
    Rung,
    Solution,
    Untold,
    free_before_load,
    weights_on_gpu,
)
from headrace.engines.settings import EngineSettings, Notice, NoticeKind, Setting
from headrace.engines.sglang import levers
from headrace.engines.sglang.memory import Sizes, size
from headrace.engines.sglang.rules import NEWEST, OLDEST, TABLE, MemoryRules
from headrace.engines.sglang.settings import resolve
from headrace.engines.versions import Rules, Version, choose_rules
from headrace.quantities import Origin, Quantity, derived
from headrace.words import Constraint


class SglangPlanner:
    """Plans SGLang servers; see `headrace.engines.plan.Planner`."""

    engine = "sglang"
    table: FlagTable = TABLE
    oldest: Version = OLDEST
    newest: Version = NEWEST

    def rules(self, told: str) -> Rules:
        """Returns the rules for a version as told."""
        return choose_rules(told, OLDEST, NEWEST, "SGLang")

    def plan(self, inputs: PlanInputs) -> MemoryPlan:
        """Returns the memory plan of the line, on this GPU, for this model."""
        settings = resolve(inputs)
        free = free_before_load(inputs)
        tp, pp = int(settings["attn_tp_size"] or 1), int(settings["pp_size"] or 1)
        vision = bool(settings["multimodal"]) or not inputs.model.is_multimodal
        drafts = (
            settings["speculative_algorithm"] == "EAGLE"
            and MemoryRules(inputs.rules.version).counts_draft_layers
        )
        weights = weights_on_gpu(inputs, int(settings["tp_size"] or tp), pp, vision=vision, mtp=bool(drafts))
        sizes = size(inputs, settings, free.value, weights.value)
        refusals = tuple(Notice(NoticeKind.REFUSAL, text) for text in sizes.failures)
        settings = replace(settings, notices=settings.notices + refusals)
        figures = _figures(inputs, settings, sizes, free, weights)
        ladder = _ladder(inputs, settings, sizes, figures, free, weights)
        bound, term = _bound(settings, sizes)
        cap = derived(sizes.cap, "requests", term, **_cap_inputs(figures, settings))
        return MemoryPlan(
            inputs,
            settings,
            _pools(settings, sizes, figures, free, weights),
            None if settings.refusals else cap,
            Constraint.CONFIGURATION_ERROR if settings.refusals else bound,
            "the server would not start" if settings.refusals else term,
            ladder,
            figures,
            _assumptions(inputs, settings, free, weights),
        )

    def candidates(self, plan: MemoryPlan) -> Iterator[Candidate]:
        """Yields the changes that might lift the cap."""
        return levers.candidates(plan)

    def untold(self, plan: MemoryPlan, reported: Mapping[str, float]) -> Iterator[Untold]:
        """Yields the settings that might be set without anybody having said so."""
        return levers.untold(plan, reported)

    def solve(self, plan: MemoryPlan, cap: int) -> Iterator[Solution]:
        """Yields, knob by knob, what would give that cap."""
        return levers.solve(plan, cap, self.plan)


PLANNER = SglangPlanner()


# ── figures
# ───────────────────────────────────────────────────────────────────────────────────────────────────
def _figures(
    inputs: PlanInputs, settings: EngineSettings, sizes: Sizes, free: Quantity, weights: Quantity
) -> dict[str, Quantity]:
    fraction = settings.values["mem_fraction_static"].quantity()
    slack = derived(
        free.value * (1 - fraction.value), "bytes", "free × (1 − fraction)", free=free, fraction=fraction
    )
    rest = derived(
        sizes.rest_bytes,
        "bytes",
        "free − weights − slack" + (" − multimodal reserve" if _reserve(inputs, settings) else ""),
        free=free,
        weights=weights,
        slack=slack,
    )
    figures = {"free_bytes": free, "weight_bytes": weights, "slack_bytes": slack, "rest_bytes": rest}
    tp = int(settings["attn_tp_size"] or 1)
    per_token = _kv_price(inputs, settings, sizes, tp)
    figures["kv_bytes_per_token"] = per_token
    left = rest
    if sizes.slots is not None and sizes.slots_per_request is not None:
        state = _state_price(inputs, settings, sizes, tp)
        figures["state_bytes_per_request"] = state
        slots = _slots(inputs, settings, sizes, rest, state)
        figures["state_slots"] = slots
        figures["slots_per_request"] = settings.values["slots_per_request"].quantity("slots/request")
        figures["state_pool_bytes"] = derived(
            sizes.state_pool_bytes, "bytes", "slots × bytes per slot", slots=slots, state=state
        )
        if sizes.draft_bytes:
            figures["draft_state_bytes"] = derived(
                sizes.draft_bytes,
                "bytes",
                "bytes per slot × draft tokens × requests",
                state=state,
                draft_tokens=settings.values["draft_tokens"].quantity("tokens"),
            )
        left = derived(
            max(0.0, sizes.rest_bytes - sizes.state_pool_bytes - sizes.draft_bytes),
            "bytes",
            "rest − state pool − draft states",
            rest=rest,
            state_pool=figures["state_pool_bytes"],
        )
    figures["kv_tokens"] = derived(
        sizes.kv_tokens,
        "tokens",
        "bytes left ÷ bytes per token, whole pages",
        left=left,
        per_token=per_token,
        page=settings.values["page_size"].quantity("tokens"),
    )
    if sizes.window_tokens is not None:
        figures["window_tokens"] = derived(
            sizes.window_tokens,
            "tokens",
            "KV tokens × ratio, whole pages",
            kv_tokens=figures["kv_tokens"],
            ratio=settings.values["swa_full_tokens_ratio"].quantity(),
        )
    return figures


def _kv_price(inputs: PlanInputs, settings: EngineSettings, sizes: Sizes, tp: int) -> Quantity:
    width = 1.0 if str(settings["kv_cache_dtype"]).startswith(("fp8", "mxfp8")) else 2.0
    plain = inputs.model.kv_bytes_per_token(width, tp)
    if plain.value == sizes.cell_bytes:
        return plain
    formula = (
        "full layers + ratio × window layers"
        if sizes.window_tokens is not None
        else "rows of the layers of one stage, scales and indexer keys included"
    )
    return derived(sizes.cell_bytes, "bytes/token", formula, rows=plain)


def _state_price(inputs: PlanInputs, settings: EngineSettings, sizes: Sizes, tp: int) -> Quantity:
    widths = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
    ssm = widths.get(str(settings["mamba_ssm_dtype"]), 4.0)
    conv = widths.get(str(settings["mamba_conv_dtype"]), 2.0)
    whole = inputs.model.state_bytes_per_request(ssm, conv, tp)
    dtype = settings.values["mamba_ssm_dtype"]
    named = Quantity(ssm, "bytes/element", dtype.origin, f"state dtype {dtype.value}: {dtype.source}")
    whole = replace(whole, inputs={**whole.inputs, "ssm_bytes": named})
    if whole.value == sizes.state_bytes:
        return whole
    return derived(sizes.state_bytes, "bytes/request", "largest share of a pipeline stage", whole=whole)


def _slots(
    inputs: PlanInputs, settings: EngineSettings, sizes: Sizes, rest: Quantity, state: Quantity
) -> Quantity:
    given = settings.values["max_mamba_cache_size"]
    running = settings.values["max_running_requests"]
    if given.value is not None:
        return derived(sizes.slots or 0, "slots", "as given ÷ attention ranks", given=given.quantity("slots"))
    if settings["disable_radix_cache"] and running.value is not None:
        return derived(
            sizes.slots or 0,
            "slots",
            "the running flag: the radix cache is off",
            flag=running.quantity("requests"),
        )
    return derived(
        sizes.slots or 0,
        "slots",
        "rest × ratio ÷ (1 + ratio) ÷ bytes per slot"
        + (
            ", draft states included"
            if sizes.draft_bytes and MemoryRules(inputs.rules.version).solves_drafts_jointly
            else ""
        ),
        rest=rest,
        ratio=settings.values["mamba_full_memory_ratio"].quantity(),
        state=state,
    )


def _reserve(inputs: PlanInputs, settings: EngineSettings) -> int:
    return MemoryRules(inputs.rules.version).multimodal_reserve_bytes if settings["multimodal"] else 0


# ── caps
# ──────────────────────────────────────────────────────────────────────────────────────────────────────
_TERM_IDS = {
    "flag": Constraint.MAX_RUNNING_REQUESTS,
    "estimate": Constraint.MAX_RUNNING_REQUESTS,
    "tokens": Constraint.KV_POOL,
    "slots": Constraint.STATE_POOL,
}


def _term_text(name: str, settings: EngineSettings, sizes: Sizes) -> str:
    if name == "flag":
        return str(settings.values["max_running_requests"].source)
    if name == "estimate":
        return "the engine's own ceiling, 2,048 to 4,096"
    if name == "tokens":
        return "half the KV tokens"
    return f"{sizes.slots} state slots ÷ {sizes.slots_per_request} per request"


def _bound(settings: EngineSettings, sizes: Sizes) -> tuple[Constraint, str]:
    # of equal terms the one a user can name comes first
    name = min(sizes.terms, key=lambda term: (sizes.terms[term], list(_TERM_IDS).index(term)))
    return _TERM_IDS[name], _term_text(name, settings, sizes)


def _cap_inputs(figures: Mapping[str, Quantity], settings: EngineSettings) -> dict[str, Quantity]:
    found = {
        name: figures[name] for name in ("state_slots", "slots_per_request", "kv_tokens") if name in figures
    }
    flag = settings.values["max_running_requests"]
    if flag.value is not None:
        found["flag"] = flag.quantity("requests")
    return found


def _ladder(
    inputs: PlanInputs,
    settings: EngineSettings,
    sizes: Sizes,
    figures: Mapping[str, Quantity],
    free: Quantity,
    weights: Quantity,
) -> tuple[Rung, ...]:
    """Every cap, lowest first. With the radix cache off the flag makes the slots: there is no rung between
    them.
    """
    if settings.refusals:
        return ()
    follows = bool(
        settings["disable_radix_cache"]
        and settings["max_mamba_cache_size"] is None
        and settings["max_running_requests"] is not None
        and sizes.slots is not None
    )
    rungs = []
    for name, running in sizes.terms.items():
        if name == "slots" and follows:
            continue
        rungs.append(
            Rung(
                _TERM_IDS[name],
                derived(
                    running, "requests", _term_text(name, settings, sizes), **_cap_inputs(figures, settings)
                ),
                _term_text(name, settings, sizes),
            )
        )
    if inputs.context_tokens:
        rungs.append(_kv_rung(inputs, settings, sizes, figures, follows))
    return tuple(sorted(rungs, key=lambda rung: rung.running.value))


def _kv_rung(
    inputs: PlanInputs, settings: EngineSettings, sizes: Sizes, figures: Mapping[str, Quantity], follows: bool
) -> Rung:
    """How many requests of the stated context the KV pool holds; jointly with the slots where the flag
    makes both.
    """
    context = float(inputs.context_tokens or 1.0)
    told = Quantity(context, "tokens/request", Origin.USER, "--context-tokens")
    window = inputs.model.window_tokens
    if follows:
        padding = sizes.state_bytes if MemoryRules(inputs.rules.version).budgets_padding_slot else 0
        drafts = 1 + int(settings["draft_tokens"] or 0)
        price = sizes.state_bytes * drafts + context * sizes.cell_bytes
        running = int((sizes.rest_bytes - padding * drafts) // price)
        return Rung(
            Constraint.KV_POOL,
            derived(
                running,
                "requests",
                "rest ÷ (state + context × KV bytes per token)",
                rest=figures["rest_bytes"],
                state=figures["state_bytes_per_request"],
                context=told,
                kv_bytes_per_token=figures["kv_bytes_per_token"],
            ),
            f"state and {context:,.0f} tokens per request from one budget",
        )
    running = int(sizes.kv_tokens // context)
    term = f"{sizes.kv_tokens:,} KV tokens ÷ {context:,.0f}"
    if sizes.window_tokens is not None and window:
        held = min(context, window)
        by_window = int(sizes.window_tokens // held)
        if by_window < running:
            running, term = by_window, f"{sizes.window_tokens:,} window tokens ÷ {held:,.0f}"
    return Rung(
        Constraint.KV_POOL,
        derived(running, "requests", term, kv_tokens=figures["kv_tokens"], context=told),
        term,
    )


# ── pools and assumptions
# ─────────────────────────────────────────────────────────────────────────────────────
def _pools(
    settings: EngineSettings, sizes: Sizes, figures: Mapping[str, Quantity], free: Quantity, weights: Quantity
) -> tuple[Pool, ...]:
    pools = [Pool("weights", weights)]
    if "state_pool_bytes" in figures:
        pools.append(Pool("state pool", figures["state_pool_bytes"], figures["state_slots"]))
    if "draft_state_bytes" in figures:
        pools.append(Pool("draft states", figures["draft_state_bytes"]))
    kv = figures["kv_tokens"]
    if sizes.window_tokens is None or not sizes.window_token_bytes:
        pools.append(
            Pool(
                "KV pool",
                derived(
                    sizes.kv_tokens * sizes.cell_bytes,
                    "bytes",
                    "tokens × bytes per token",
                    tokens=kv,
                    per_token=figures["kv_bytes_per_token"],
                ),
                kv,
            )
        )
    else:
        full = derived(
            sizes.kv_tokens * sizes.full_token_bytes, "bytes", "tokens × full-layer bytes", tokens=kv
        )
        window = figures["window_tokens"]
        pools.append(Pool("KV pool", full, kv, "layers that see everything"))
        pools.append(
            Pool(
                "window pool",
                derived(
                    window.value * sizes.window_token_bytes,
                    "bytes",
                    "tokens × window-layer bytes",
                    tokens=window,
                ),
                window,
                "sliding-window layers",
            )
        )
    pools.append(
        Pool("slack", figures["slack_bytes"], note="graphs, activations, workspaces, vision encoder")
    )
    return tuple(pools)


def _assumptions(
    inputs: PlanInputs, settings: EngineSettings, free: Quantity, weights: Quantity
) -> tuple[str, ...]:
    said = [*inputs.device.assumptions, *inputs.model.caveats]
    if free.origin is Origin.ASSUMED:
        low, high = free.range
        spread = f" ({low / GIB:.1f} to {high / GIB:.1f})" if low != high else ""
        said.append(
            f"{free.value / GIB:.1f} GiB{spread} are free before the weights are loaded (--free-gib sets it)."
        )
    if weights.origin is Origin.ASSUMED:
        said.append(f"loading takes {weights.value / GIB:.1f} GiB per GPU (--weights-gib sets it).")
    dtype: Setting | None = settings.values.get("mamba_ssm_dtype")
    if inputs.model.is_hybrid and dtype is not None and dtype.origin is not Origin.CONFIGURED:
        said.append(f"the recurrent state is {dtype.value} ({dtype.source}).")
    return tuple(said)
