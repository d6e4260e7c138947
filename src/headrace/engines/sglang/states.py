"""What SGLang does with the states of hybrid models: strategy, radix cache, overlap, slots per request.

Up to 0.5.13 `server_args.py::_handle_mamba_radix_cache`; from 0.5.14 resolution and validation are apart
(`_mamba_radix_cache_resolution`, `validate_mamba_extra_buffer`, `validate_mamba_no_buffer`).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.engines.plan import PlanInputs
from headrace.engines.settings import Resolver
from headrace.engines.sglang.rules import (
    NO_STATE_CACHE_ARCHITECTURES,
    MemoryRules,
    architecture_of,
    supports_extra_buffer,
)
from headrace.engines.versions import Version
from headrace.quantities import Origin

# Boot-time chunk of the linear-attention kernels, and how often states are tracked: server_args.py, 0.5.7 on.
FLA_CHUNK_TOKENS, TRACK_INTERVAL_TOKENS = 64, 256


def state_strategy(run: Resolver, inputs: PlanInputs, environment: Mapping[str, str]) -> None:
    """Strategy of the state pool, and what it does to radix cache, overlap and page size."""
    model, version = inputs.model, inputs.rules.version
    choices = ["auto", "no_buffer", "extra_buffer"]
    if version >= Version(0, 5, 13):
        choices.append("extra_buffer_lazy")
    strategy = run.word("mamba_radix_cache_strategy", "auto", "default auto", tuple(choices))
    if environment.get("SGLANG_MAMBA_SSM_DTYPE") and not run.is_given("mamba_ssm_dtype"):
        run.set(
            "mamba_ssm_dtype",
            environment["SGLANG_MAMBA_SSM_DTYPE"],
            Origin.CONFIGURED,
            "SGLANG_MAMBA_SSM_DTYPE",
        )
    else:
        # configs/mamba_utils.py::mamba2_state_dtype; granitemoehybrid.py passes no config: float32
        written = None if architecture_of(model) == "GraniteMoeHybridForCausalLM" else model.state_dtype
        source = "the checkpoint's mamba_ssm_dtype" if written else "default float32 (configs/mamba_utils.py)"
        run.word("mamba_ssm_dtype", written or "float32", source, ("float32", "bfloat16", "float16"))
    conv = environment.get("SGLANG_MAMBA_CONV_DTYPE", "bfloat16")
    source = "SGLANG_MAMBA_CONV_DTYPE" if "SGLANG_MAMBA_CONV_DTYPE" in environment else "default bfloat16"
    run.set("mamba_conv_dtype", conv, Origin.DEFAULT, source)
    if not model.is_hybrid:
        if strategy in ("extra_buffer", "extra_buffer_lazy") and version >= Version(0, 5, 20):
            run.refuse(
                f"--mamba-radix-cache-strategy {strategy} needs a recurrent state, which "
                f"{architecture_of(model)} has "
                "not: the server refuses to start. Leave it out."
            )
        return
    if version < Version(0, 5, 5):
        run.set("disable_radix_cache", True, Origin.DERIVED, "hybrid models have no radix cache before 0.5.5")
        return
    if version < Version(0, 5, 14):
        _strategy_as_written(run, inputs, strategy or "auto")
    else:
        _strategy_resolved(run, inputs, strategy or "auto")


def _strategy_as_written(run: Resolver, inputs: PlanInputs, strategy: str) -> None:
    """0.5.5 to 0.5.13: `server_args.py::_handle_mamba_radix_cache`."""
    model, version = inputs.model, inputs.rules.version
    buffers = strategy.startswith("extra_buffer")
    radix_off = bool(run["disable_radix_cache"])
    page = int(run.given["page_size"][1][0]) if _whole(run, "page_size") else None
    if architecture_of(model) in NO_STATE_CACHE_ARCHITECTURES:
        run.set(
            "disable_radix_cache", True, Origin.DERIVED, "this architecture has no radix cache of states yet"
        )
        if not radix_off:
            run.warn(
                f"the radix cache is switched off: {version} cannot cache states of {architecture_of(model)}."
            )
        radix_off, buffers = True, False
    if buffers and not supports_extra_buffer(architecture_of(model), version):
        run.refuse(
            f"extra_buffer is not supported for {architecture_of(model)} by {version}: the server "
            "refuses to start. "
            "Take no_buffer, or SGLang 0.5.14 or newer."
        )
    if strategy == "auto":
        run.set(
            "mamba_radix_cache_strategy", "no_buffer", Origin.DEFAULT, "auto means no_buffer up to 0.5.13"
        )
    if buffers:
        if radix_off:
            run.refuse(
                "extra_buffer with --disable-radix-cache is refused at start. With the radix cache off, "
                "no_buffer "
                "keeps the overlap scheduler: write --mamba-scheduler-strategy no_buffer."
            )
        _check_page(run, page)
    elif not radix_off:
        if page not in (None, 1):
            run.warn(f"--page-size {page} becomes 1: no_buffer with the radix cache on needs it.")
        run.set("page_size_forced", 1, Origin.DERIVED, "no_buffer with the radix cache on")
        if run["speculative_algorithm"] is None:
            if not run["disable_overlap_schedule"]:
                run.warn(
                    "the overlap scheduler is switched off: no_buffer with the radix cache on cannot "
                    "have it. "
                    "--disable-radix-cache keeps it."
                )
            run.set("disable_overlap_schedule", True, Origin.DERIVED, "no_buffer with the radix cache on")
        else:
            run.refuse(
                "speculative decoding with no_buffer and the radix cache on is refused at start. Take "
                "extra_buffer, "
                "or --disable-radix-cache."
            )


def _strategy_resolved(run: Resolver, inputs: PlanInputs, strategy: str) -> None:
    """0.5.14 on: `_mamba_radix_cache_resolution` with `validate_mamba_extra_buffer` and
    `validate_mamba_no_buffer`.
    """
    model, version = inputs.model, inputs.rules.version
    if run["disable_radix_cache"]:
        return  # the strategy is not looked at
    able = supports_extra_buffer(architecture_of(model), version) and (
        run.word("linear_attn_backend", "triton") == "triton"
    )
    page = int(run.given["page_size"][1][0]) if _whole(run, "page_size") else None
    if strategy == "auto":
        wanted = not run["disable_overlap_schedule"] or (page is not None and page > 1)
        strategy = "extra_buffer" if wanted and able else "no_buffer"
        reason = "auto: extra_buffer where overlap or pages are wanted and the architecture can"
        run.set("mamba_radix_cache_strategy", strategy, Origin.DEFAULT, reason)
        if strategy == "no_buffer":
            run.set("disable_overlap_schedule", True, Origin.DERIVED, "auto chose no_buffer")
    if strategy == "no_buffer":
        if page not in (None, 1):
            run.refuse(
                f"no_buffer with the radix cache on works with page size 1 only, got {page}: the server "
                "refuses to "
                "start. Leave --page-size out, or --disable-radix-cache."
            )
        if not run["disable_overlap_schedule"]:
            run.refuse(
                "no_buffer with the radix cache on needs --disable-overlap-schedule: the server refuses "
                "to start. "
                "Add it, or --disable-radix-cache, which keeps the overlap scheduler."
            )
        return
    if not able:
        run.refuse(
            f"{strategy} is not supported for {architecture_of(model)} by {version}: the server refuses "
            "to start. "
            "Take no_buffer."
        )
    if strategy == "extra_buffer_lazy":
        if run["disable_overlap_schedule"]:
            run.refuse(
                "extra_buffer_lazy needs the overlap scheduler: the server refuses to start with "
                "--disable-overlap-schedule. Take extra_buffer."
            )
        if run["speculative_algorithm"] is not None and version < Version(0, 5, 15):
            run.refuse("extra_buffer_lazy with speculative decoding is refused at start. Take extra_buffer.")
    _check_page(run, page)


def _check_page(run: Resolver, page: int | None) -> None:
    """Extra buffers: the track interval is a multiple of the page, and page and chunk divide each other."""
    if page is None:
        return
    long, short = max(FLA_CHUNK_TOKENS, page), min(FLA_CHUNK_TOKENS, page)
    if TRACK_INTERVAL_TOKENS % page or long % short:
        run.refuse(
            f"--page-size {page} does not fit extra_buffer: it must divide {TRACK_INTERVAL_TOKENS}, and "
            f"{page} and "
            f"{FLA_CHUNK_TOKENS} must divide each other. Take 16, 32 or 64."
        )


def slots_per_request(run: Resolver, inputs: PlanInputs, environment: Mapping[str, str]) -> None:
    """S, the slots reserved per running request, where the model has a state."""
    if not inputs.model.is_hybrid:
        return
    strategy = str(run["mamba_radix_cache_strategy"])
    skip = environment.get("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK", "0").lower() in ("1", "true", "yes", "y")
    radix = not run["disable_radix_cache"]
    slots = MemoryRules(inputs.rules.version).slots_per_request(
        radix=radix,
        extra_buffer=strategy.startswith("extra_buffer"),
        lazy=strategy == "extra_buffer_lazy",
        overlap=not run["disable_overlap_schedule"],
        drafts=run["speculative_algorithm"] is not None,
        skip_lock=skip,
    )
    if not radix:
        why = "radix cache off: one working state"
    elif not strategy.startswith("extra_buffer"):
        why = "no_buffer: working state, tree checkpoint, fork"
    else:
        buffers = slots - 3
        why = f"{strategy}: 3 + {buffers} track buffer{'s' if buffers != 1 else ''}"
    run.set("slots_per_request", slots, Origin.DERIVED, why)


def _whole(run: Resolver, name: str) -> bool:
    words = run.given.get(name, ("", ()))[1]
    return bool(words) and words[0].lstrip("-").isdigit()
