"""`headrace watch`: servers and jobs, live, in the terminal; lines or JSON elsewhere."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer


def watch(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET…", help="Server URLs, also as HOST:PORT-PORT, and job folders."),
    ],
    once: Annotated[
        bool, typer.Option("--once", metavar="", help="Look twice, print once, and leave.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="One JSON document per line and look.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.2, max=3600, help="Between two looks.")
    ] = 2.0,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="sglang, vllm or llamacpp, where a server does not tell.")
    ] = "",
    engine_version: Annotated[str, typer.Option(metavar="VERSION", help="Its version, like 0.5.12.")] = "",
    gpu: Annotated[
        str, typer.Option(metavar="GPU", help="The GPU by any name, or a YAML file that describes one.")
    ] = "",
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="The model's id, a config.json, or a folder.")
    ] = "",
    flags: Annotated[
        str, typer.Option(metavar="FLAGS", help="The servers' flags, or their whole launch line.")
    ] = "",
    load: Annotated[
        str,
        typer.Option(
            metavar="WORD", help="free: in flight is ours to choose; given: a benchmark at a stated load."
        ),
    ] = "",
    api_key_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="Environment variable with the servers' key.")
    ] = "",
) -> None:
    """Show what servers do now: running, queued, pools, tokens per second, and what binds. q leaves.

    It only reads, and asks for cheap pages alone: no request is sent to a model.

    Example: headrace watch http://127.0.0.1:30000-30007
    """
    from headrace import api
    from headrace.cli.watch_screen import show

    told = {
        "engine": engine,
        "engine_version": engine_version,
        "gpu": gpu,
        "model": model,
        "flags": flags,
        "load": load,
    }
    with show(once=once, as_json=as_json) as screen, suppress(KeyboardInterrupt):  # Ctrl-C leaves, as q does
        api.watch(
            targets,
            on_look=screen.show,
            every_seconds=every,
            looks=2 if once else None,
            leave=screen.leaves,
            api_key_env=api_key_env,
            **told,
        )
