"""`headrace diagnose`: what binds a fleet, from a server, a log, a facts file or a job folder."""

from __future__ import annotations

from typing import Annotated

import typer


def diagnose(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET…",
            help="Server URLs, logs, saved metrics pages, - (a paste), a facts file or a job folder.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, every number with its origin.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All evidence, proposals and numbers.")] = False,
    explain: Annotated[
        str, typer.Option(help="Unfold one number of the report to its formula and inputs.")
    ] = "",
    engine: Annotated[
        str, typer.Option(help="sglang, vllm or llamacpp, where the evidence leaves it out.")
    ] = "",
    engine_version: Annotated[str, typer.Option(help="Its version, like 0.5.12.")] = "",
    gpu: Annotated[str, typer.Option(help="The GPU by any name, or a YAML file that describes one.")] = "",
    model: Annotated[str, typer.Option(help="The model's id, a config.json, or a folder.")] = "",
    flags: Annotated[str, typer.Option(help="The server's flags, or its whole launch line.")] = "",
    load: Annotated[
        str, typer.Option(help="free: in flight is ours to choose; given: a benchmark at a stated load.")
    ] = "",
    expect: Annotated[
        list[str] | None, typer.Option(help='What you expected, like "25% of a B200"; may be repeated.')
    ] = None,
    window: Annotated[
        str, typer.Option("--for", help="How long to watch servers: 60s, 2m; 0 is one look.")
    ] = "20s",
    allow_accuracy_change: Annotated[
        bool, typer.Option("--allow-accuracy-change", help="Let accuracy choices be actions.")
    ] = False,
    strict: Annotated[bool, typer.Option(help="Anything odd in a facts file is an error.")] = False,
    api_key_env: Annotated[str, typer.Option(help="Environment variable with the servers' key.")] = "",
) -> None:
    """Say what binds a fleet, why, and what to change: read-only, from whatever evidence there is."""
    from headrace import api
    from headrace.cli.ask_gpu import asker
    from headrace.errors import UsageError, nearest

    found = api.diagnose(
        targets,
        engine=engine,
        engine_version=engine_version,
        gpu=gpu,
        model=model,
        flags=flags,
        load=load,
        expect=expect or (),
        window=window,
        allow_accuracy_change=allow_accuracy_change,
        strict=strict,
        api_key_env=api_key_env,
        ask=None if as_json else asker(),
    )
    if as_json:
        import json

        from headrace.net.redact import redact_document

        typer.echo(
            json.dumps(redact_document(found.to_json()), indent=2, ensure_ascii=False, allow_nan=False)
        )
        return
    from rich.console import Console

    from headrace.report.diagnosis_view import all_numbers, diagnosis_view, explanation

    console = Console(highlight=False, markup=False, emoji=False)
    if explain:
        numbers = all_numbers(found)
        if explain not in numbers:
            known = ", ".join(sorted(numbers)) or "none"
            raise UsageError(
                f"--explain {explain[:60]}: the report has no such number.{nearest(explain, numbers)} "
                f"Known: {known}."
            )
        console.print(explanation(explain, numbers[explain]))
        return
    console.print(diagnosis_view(found, everything=everything, allow_accuracy=allow_accuracy_change))
