"""`headrace report`: a diagnosis as one page, or held against another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer


def report(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET…",
            help="As for diagnose: server URLs, logs, a facts file, a job folder; or a DIAGNOSIS.json.",
        ),
    ],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one self-contained page to this file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print the document that the page is made of.")
    ] = False,
    against: Annotated[
        str, typer.Option(metavar="TARGET", help="Another diagnosis: say what moved from it to this one.")
    ] = "",
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="sglang, vllm or llamacpp, where the evidence leaves it out.")
    ] = "",
    engine_version: Annotated[str, typer.Option(metavar="VERSION", help="Its version, like 0.5.12.")] = "",
    gpu: Annotated[
        str, typer.Option(metavar="GPU", help="The GPU by any name, or a YAML file that describes one.")
    ] = "",
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="The model's id, a config.json, or a folder.")
    ] = "",
    flags: Annotated[
        str, typer.Option(metavar="FLAGS", help="The server's flags, or its whole launch line.")
    ] = "",
    load: Annotated[
        str,
        typer.Option(
            metavar="WORD", help="free: in flight is ours to choose; given: a benchmark at a stated load."
        ),
    ] = "",
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help='What you expected, like "25% of a B200"; may be repeated.'),
    ] = None,
    window: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to watch servers: 60s, 2m; 0 is one look.")
    ] = "20s",
    strict: Annotated[
        bool, typer.Option("--strict", metavar="", help="Anything odd in a facts file is an error.")
    ] = False,
    api_key_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Environment variable with the servers' key.")
    ] = "",
) -> None:
    """Make a page of a diagnosis: offline, printable, every number as in --json. Or say what moved.

    Example: headrace report out/first --html first.html
    """
    from headrace import api
    from headrace.clock import SystemClock
    from headrace.errors import UsageError

    if html is None and not as_json and not against:
        raise UsageError(
            "report needs to know what to make: --html FILE for a page, --json for its document, or "
            "--against TARGET for what moved. In the terminal: headrace diagnose."
        )
    document = api.report(
        targets,
        html=html,
        against=against or None,
        written_at=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(SystemClock().wall())),
        engine=engine,
        engine_version=engine_version,
        gpu=gpu,
        model=model,
        flags=flags,
        load=load,
        expect=expect or (),
        window=window,
        strict=strict,
        api_key_env=api_key_env,
    )
    if as_json:
        import json

        typer.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    elif against:
        from rich.console import Console

        from headrace.report.against_view import against_view

        Console(highlight=False, markup=False, emoji=False).print(against_view(document))
    if html is not None:
        typer.echo(f"Wrote {html} ({html.stat().st_size / 1e6:.1f} MB).", err=as_json)
