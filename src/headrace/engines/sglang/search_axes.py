"""What a search may vary on an SGLang server, in the flags of its version."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.engines.plan import MemoryPlan
from headrace.engines.search_space import AS_IS, Axis, Choice, tensor_parallel_sizes
from headrace.engines.sglang.levers import highest_fraction, strategy_flag
from headrace.engines.sglang.rules import architecture_of, supports_extra_buffer
from headrace.engines.versions import Version

_RUNNING = (32, 64, 96, 128, 192, 256, 384, 512)
_LARGEST_GRAPH = 512


def axes(plan: MemoryPlan, gpus: int) -> tuple[Axis, ...]:
    """Returns the axes: ranks × replicas, memory fraction, states, running requests, graphs, dtypes."""
    return tuple(axis for axis in _axes(plan, gpus) if len(axis.choices) > 1)


def _axes(plan: MemoryPlan, gpus: int) -> Iterator[Axis]:
    settings = plan.settings
    now = int(settings["tp_size"] or 1)
    sizes = [size for size in tensor_parallel_sizes(plan.inputs.model, gpus) if size != now]
    yield Axis("ranks", (AS_IS, *(Choice(f"--tp-size {size}") for size in sizes)))
    best, fraction = highest_fraction(plan), float(settings["mem_fraction_static"] or 0)
    higher = (Choice(f"--mem-fraction-static {best:.2f}", "memory headroom", 1),) if best > fraction else ()
    yield Axis("memory", (AS_IS, *higher))
    if plan.inputs.model.is_hybrid and plan.inputs.rules.version >= Version(0, 5, 7):
        yield Axis("states", (AS_IS, *_states(plan)))
    flag = settings["max_running_requests"]
    yield Axis(
        "running",
        (AS_IS, *(Choice(f"--max-running-requests {count}") for count in _RUNNING if count != flag)),
    )
    if int(settings["cuda_graph_max_bs_decode"] or 0) < _LARGEST_GRAPH and not settings["disable_cuda_graph"]:
        name = "--cuda-graph-max-bs" + ("-decode" if plan.inputs.rules.version >= Version(0, 5, 14) else "")
        yield Axis("graphs", (AS_IS, Choice(f"{name} {_LARGEST_GRAPH}", "graph memory", 1)))
    if str(settings["kv_cache_dtype"]) in ("auto", "bf16", "bfloat16"):
        yield Axis("KV dtype", (AS_IS, Choice("--kv-cache-dtype fp8_e4m3", "accuracy of attention", 4)))
    if plan.inputs.model.is_hybrid and str(settings["mamba_ssm_dtype"]) == "float32":
        bf16 = Choice("--mamba-ssm-dtype bfloat16", "accuracy of the recurrent state", 4)
        yield Axis("state dtype", (AS_IS, bf16))


def _states(plan: MemoryPlan) -> Iterator[Choice]:
    """Strategies of the state pool, spelled so that the version accepts them."""
    settings, version = plan.settings, plan.inputs.rules.version
    flag, radix = strategy_flag(version), not settings["disable_radix_cache"]
    given = settings.values["mamba_radix_cache_strategy"].origin.value == "configured"
    on = "" if radix else " -disable-radix-cache"
    reuse = "prefix reuse"
    if radix and version < Version(0, 5, 14):
        yield Choice(f"{flag} no_buffer --disable-radix-cache", reuse, 2)
    elif radix:
        yield Choice("--disable-radix-cache" + (f" -{flag.lstrip('-')}" if given else ""), reuse, 2)
    lossy = "the overlap scheduler"
    plain = " --disable-overlap-schedule" if version >= Version(0, 5, 14) else ""
    yield Choice(f"{flag} no_buffer{plain}{on}", lossy, 3)
    if supports_extra_buffer(architecture_of(plan.inputs.model), version):
        yield Choice(f"{flag} extra_buffer{on}")
        if version >= Version(0, 5, 13):
            yield Choice(f"{flag} extra_buffer_lazy{on}")
