"""`headrace plan`: how an engine would divide a GPU, what caps running requests, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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

    from headrace import api
    from headrace.cli.ask_gpu import asker

    found = api.plan(
        model=model,
        gpu=gpu,
        engine=engine,
        engine_version=engine_version,
        flags=flags,
        server_info=server_info,
        change=change,
        free_gib=free_gib,
        weights_gib=weights_gib,
        context_tokens=context_tokens,
        tp=tp,
        dp=dp,
        target_cap=target_cap,
        reported=reported,
        ask=None if as_json else asker(),
    )
    if as_json:
        import json

        document = found.plan.to_json()
        document["changes"] = [each.to_json() for each in found.changes]
        if found.explanations is not None:
            document["explanations"] = [each.to_json() for each in found.explanations]
        if target_cap is not None:
            document["solutions"] = [
                {"knob": way.knob, "change": way.change, "text": way.text, "cost_rank": way.cost_rank}
                for way in found.solutions
            ]
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from headrace.report.plan_view import plan_view

    Console(highlight=False, markup=False, emoji=False).print(
        plan_view(found.plan, found.changes, found.explanations, found.solutions, target_cap)
    )
