"""From what somebody asks of an emulated fleet to its options: sizes by hand, or a launch line's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.errors import UsageError
from headrace.simulate.emulate.options import EmulatorOptions
from headrace.simulate.emulate.planned import planned_server


@dataclass(frozen=True, slots=True)
class LaunchAsked:
    """An engine, its version, a GPU, flags, GiB read off a server; empty where sizes are given by hand."""

    engine: str = ""
    engine_version: str = ""
    gpu: str = ""
    flags: str = ""
    free_gib: float | None = None
    weights_gib: float | None = None


def with_line(
    options: EmulatorOptions,
    line: LaunchAsked,
    *,
    cap: int | None = None,
    kv_tokens: int | None = None,
    context_length: int | None = None,
) -> EmulatorOptions:
    """Returns the options with sizes: from the launch line where a GPU is named, else as given.

    Raises:
        UsageError: sizes by hand beside a launch line, or a line without a GPU.
        InputError: the server of the line would not start.
    """
    sizes = {"cap": cap, "kv_tokens": kv_tokens, "context_length": context_length}
    given = {name: size for name, size in sizes.items() if size is not None}
    if not line.gpu:
        if line.engine or line.engine_version or line.flags:
            raise UsageError("a launch line needs to know its GPU: add --gpu NAME and --model ID.")
        return replace(
            options,
            cap=given.get("cap", options.cap),
            kv_tokens=given.get("kv_tokens", options.kv_tokens),
            context_length=given.get("context_length", options.context_length),
        )
    if given:
        named = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"{named}: the launch line settles that; leave it out, or say it in --flags.")
    return options.of_server(
        planned_server(
            options.model,
            line.gpu,
            line.engine,
            line.engine_version,
            line.flags,
            free_gib=line.free_gib,
            weights_gib=line.weights_gib,
            mean_output_tokens=options.mean_output_tokens,
            physics_seed=options.physics_seed,
        )
    )
