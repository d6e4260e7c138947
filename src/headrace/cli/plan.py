"""`headrace plan`: how an engine would divide a GPU, what caps running requests, and what to change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import plan_steps
from headrace.errors import WOULD_NOT_START

if TYPE_CHECKING:
    from headrace.api import Planned


def plan(
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME|PATH", help="A built-in model's id or short name, a config.json, or a folder."
        ),
    ],
    gpu: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.yaml", help="The GPU by any name, or a YAML file that describes one."
        ),
    ],
    engine: Annotated[str, typer.Option(metavar="ENGINE", help="sglang or vllm.")] = "sglang",
    engine_version: Annotated[
        str,
        typer.Option(
            metavar="VERSION",
            help="Its version, like 0.5.12; without it the newest rules known.",
            show_default=False,
        ),
    ] = "",
    flags: Annotated[
        str,
        typer.Option(
            metavar='"FLAGS"', help="The server's flags, or its whole launch line.", show_default=False
        ),
    ] = "",
    server_info: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A saved answer of SGLang's /server_info, in place of --flags and --engine-version.",
        ),
    ] = None,
    change: Annotated[
        str,
        typer.Option(
            metavar='"FLAGS"',
            help="Edits the flags, and shows before and after: a given flag replaces its namesake, "
            "-FLAG removes it.",
            show_default=False,
        ),
    ] = "",
    free_gib: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="GiB free per GPU before the weights are loaded.", min=0.0),
    ] = None,
    weights_gib: Annotated[
        float | None, typer.Option(metavar="GIB", help="GiB that loading takes per GPU.", min=0.0)
    ] = None,
    context_tokens: Annotated[
        float | None,
        typer.Option(
            metavar="TOKENS",
            help="Mean tokens resident per running request: puts the KV pool on the ladder.",
            min=1,
        ),
    ] = None,
    tp: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tensor parallelism, where the flags do not say it.", min=1),
    ] = None,
    dp: Annotated[
        int | None, typer.Option(metavar="N", help="Data parallelism, where the flags do not say it.", min=1)
    ] = None,
    target_cap: Annotated[
        int | None, typer.Option(metavar="N", help="Show what gives this cap, one knob at a time.", min=1)
    ] = None,
    reported: Annotated[
        str,
        typer.Option(
            metavar="KEY=N,…",
            help="What a server reported, like cap=37,slots=188,kv=250905: which untold setting explains it.",
            show_default=False,
        ),
    ] = "",
    input_tokens: plan_steps.InputTokens = None,
    output_tokens: plan_steps.OutputTokens = None,
    accept_length: plan_steps.AcceptLength = None,
    steps: plan_steps.Steps = False,
    search: plan_steps.Search = False,
    gpus: plan_steps.Gpus = None,
    in_flight: plan_steps.InFlight = None,
    job_tokens: plan_steps.JobTokens = None,
    gpu_hour_price: plan_steps.GpuHourPrice = None,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="As JSON, every number with its origin.")
    ] = False,
) -> None:
    """Plan a server's memory from model, GPU and flags: pools, caps, what binds them, what changes give.

    Ends with 8 where the server would not start.

    Example: headrace plan --model Qwen/Qwen3-8B --gpu H100 --flags "--max-running-requests 256"

    Example of throughput: headrace plan --model Qwen/Qwen3-8B --gpu H100 --input-tokens 500
    --output-tokens 1000 --steps --search

    Example of vLLM: headrace plan --engine vllm --model Qwen/Qwen3-8B --gpu H100 --target-cap 200
    """
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
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        accept_length=accept_length,
        steps=steps,
        search=search,
        gpus=gpus,
        in_flight=in_flight,
        job_tokens=job_tokens,
        gpu_hour_price=gpu_hour_price,
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
        if found.before is not None:
            document["moved"] = [each.to_json() for each in found.moved]
        document.update(plan_steps.step_documents(found))
        from headrace.net.redact import redact_document

        typer.echo(json.dumps(redact_document(document), indent=2, ensure_ascii=False))
        _end(found)
    from rich.console import Console

    from headrace.report.plan_view import plan_view

    moved = found.moved if found.before is not None else None
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(
        plan_view(found.plan, found.changes, found.explanations, found.solutions, target_cap, moved)
    )
    for view in plan_steps.step_views(found, steps=steps):
        console.print(view)
    _end(found)


def _end(found: Planned) -> None:
    """Ends the command: with WOULD_NOT_START where the plan says so."""
    raise typer.Exit(0 if found.plan.would_start else WOULD_NOT_START)
