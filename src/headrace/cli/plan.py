"""`headrace plan`: how an engine would divide a GPU, what caps running requests, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headrace.engines.sglang.server_info import ServerInfo


def plan(
    model: Annotated[
        str, typer.Option(help="A built-in model's id or short name, a config.json, or a folder.")
    ],
    gpu: Annotated[str, typer.Option(help="The GPU by any name, or a YAML file that describes one.")],
    engine: Annotated[str, typer.Option(help="sglang or vllm.")] = "sglang",
    engine_version: Annotated[
        str, typer.Option(help="Its version, like 0.5.12; without it the newest rules known.")
    ] = "",
    flags: Annotated[str, typer.Option(help="The server's flags, or its whole launch line.")] = "",
    server_info: Annotated[
        Path | None,
        typer.Option(
            help="A saved answer of SGLang's /server_info, in place of --flags and --engine-version."
        ),
    ] = None,
    change: Annotated[
        str, typer.Option(help="Edits the flags: a given flag replaces its namesake, -FLAG removes it.")
    ] = "",
    free_gib: Annotated[
        float | None, typer.Option(help="GiB free per GPU before the weights are loaded.", min=0.0)
    ] = None,
    weights_gib: Annotated[
        float | None, typer.Option(help="GiB that loading takes per GPU.", min=0.0)
    ] = None,
    context_tokens: Annotated[
        float | None,
        typer.Option(help="Mean tokens resident per running request: puts the KV pool on the ladder."),
    ] = None,
    tp: Annotated[
        int | None, typer.Option(help="Tensor parallelism, where the flags do not say it.", min=1)
    ] = None,
    dp: Annotated[
        int | None, typer.Option(help="Data parallelism, where the flags do not say it.", min=1)
    ] = None,
    target_cap: Annotated[
        int | None, typer.Option(help="Show what gives this cap, one knob at a time.", min=1)
    ] = None,
    reported: Annotated[
        str,
        typer.Option(
            help="What a server reported, like cap=37,slots=188,kv=250905: which untold setting explains it."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, every number with its origin.")] = False,
) -> None:
    """Plan a server's memory from model, GPU and flags: pools, caps, what binds them, what changes give."""

    from headrace.cli.ask_gpu import asker
    from headrace.engines import planner as planner_of
    from headrace.engines.advice import explain, next_changes, parse_reported, solutions
    from headrace.engines.launch_line import LaunchLine
    from headrace.engines.plan import GIB, PlanInputs
    from headrace.hardware.catalogue import resolve
    from headrace.models.catalogue import resolve_model
    from headrace.quantities import Origin, Quantity

    planner = planner_of(engine)
    told = parse_reported(reported) if reported else {}
    if server_info is not None:
        info = _read_server_info(server_info)
        rules, line, told = (
            planner.rules(engine_version or info.version),
            info.line,
            {**info.reported, **told},
        )
    else:
        rules = planner.rules(engine_version)
        line = LaunchLine.parse(flags, planner.table, rules.version)
    wide, copies = (
        ("--tp-size", "--dp-size")
        if planner.engine == "sglang"
        else (
            "--tensor-parallel-size",
            "--data-parallel-size",
        )
    )
    for flag, value in ((wide, tp), (copies, dp)):
        if value is not None:
            line = line.changed(f"{flag} {value}", planner.table, rules.version)
    if change:
        line = line.changed(change, planner.table, rules.version)

    def given(gib: float | None, flag: str, key: str) -> Quantity | None:
        if gib is None and key not in told:
            return None
        value, source = (gib, flag) if gib is not None else (told[key], "--reported")
        return Quantity(float(value) * GIB, "bytes", Origin.USER, source)

    inputs = PlanInputs(
        resolve_model(model),
        resolve(gpu, None if as_json else asker()),
        rules,
        line,
        given(free_gib, "--free-gib", "free"),
        given(weights_gib, "--weights-gib", "weights"),
        context_tokens,
    )
    planned = planner.plan(inputs)
    changes = next_changes(planner, planned)
    explained = explain(planner, planned, told) if told else None
    ways = solutions(planner, planned, target_cap) if target_cap is not None else []
    if as_json:
        import json

        document = planned.to_json()
        document["changes"] = [found.to_json() for found in changes]
        if explained is not None:
            document["explanations"] = [found.to_json() for found in explained]
        if target_cap is not None:
            document["solutions"] = [
                {"knob": way.knob, "change": way.change, "text": way.text, "cost_rank": way.cost_rank}
                for way in ways
            ]
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from headrace.report.plan_view import plan_view

    Console(highlight=False, markup=False, emoji=False).print(
        plan_view(planned, changes, explained, ways, target_cap)
    )


def _read_server_info(path: Path) -> ServerInfo:
    """Reads a saved /server_info answer, at most 16 MB of it."""
    import json

    from headrace.engines.sglang.server_info import read_server_info
    from headrace.errors import InputError

    try:
        if path.stat().st_size > 16 * 1024 * 1024:
            raise InputError(f"{path} is larger than 16 MB: an answer of /server_info is some kilobytes.")
        return read_server_info(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
