"""`headrace model`: what a model's shape costs."""

from __future__ import annotations

from typing import Annotated

import typer


def model(
    name: Annotated[
        str | None,
        typer.Argument(help="A built-in model's id or short name, a config.json, or a model's folder."),
    ] = None,
    tp: Annotated[int, typer.Option(help="Ranks of tensor parallelism; bytes are one rank's.", min=1)] = 1,
    tokens_per_step: Annotated[
        int, typer.Option(help="Tokens of a step (running requests): decides the experts read.", min=1)
    ] = 1,
    context_tokens: Annotated[int, typer.Option(help="Context for FLOPs per token.", min=0)] = 0,
    fetch: Annotated[
        bool,
        typer.Option("--fetch", help="NAME is an id on the Hugging Face hub: read its config and headers."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, every number with its origin.")] = False,
) -> None:
    """Show a model's parameters, weight bytes, KV and state bytes and FLOPs; without a name, list the
    built-in."""
    from headrace import api
    from headrace.models.catalogue import model_ids
    from headrace.models.description import describe

    if name is None:
        _list(model_ids(), as_json)
        return
    geometry = api.model(name, fetch=fetch)
    described = describe(geometry, tp=tp, tokens_per_step=tokens_per_step, context_tokens=context_tokens)
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
