"""`headrace model`: what a model's shape costs."""

from __future__ import annotations

from typing import Annotated

import typer


def model(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|PATH",
            help="A built-in model's id or short name, a config.json, or a model's folder.",
        ),
    ] = None,
    tp: Annotated[
        int, typer.Option(metavar="N", help="Ranks of tensor parallelism; bytes are one rank's.", min=1)
    ] = 1,
    tokens_per_step: Annotated[
        int,
        typer.Option(
            metavar="N", help="Tokens of a step (running requests): decides the experts read.", min=1
        ),
    ] = 1,
    context_tokens: Annotated[
        int, typer.Option(metavar="TOKENS", help="Context for FLOPs per token.", min=0)
    ] = 0,
    fetch: Annotated[
        bool,
        typer.Option(
            "--fetch",
            metavar="",
            help="NAME is an id on the Hugging Face hub: read its config and headers. Needs headrace[hf].",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="As JSON, every number with its origin.")
    ] = False,
) -> None:
    """Show a model's parameters, weight, KV and state bytes and FLOPs; without a name, list the built-in.

    Example: headrace model Qwen/Qwen3-8B --tp 2

    Example of a file: headrace model ./config.json --context-tokens 4096 --json
    """
    from headrace import api

    described = api.model(
        name, tp=tp, tokens_per_step=tokens_per_step, context_tokens=context_tokens, fetch=fetch
    )
    if isinstance(described, tuple):
        _list(described, as_json)
        return
    if as_json:
        import json

        typer.echo(json.dumps(described.to_json(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from headrace.report.model_view import model_view

    Console(highlight=False).print(model_view(described))


def _list(ids: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(ids, indent=2))
        return
    from rich.console import Console

    from headrace.report.model_view import models_view

    Console(highlight=False).print(models_view(ids))
