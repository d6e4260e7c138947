"""`headrace record`: keep what servers and GPUs say over time, to be read later and elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def record(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET…",
            help="Server URLs; nvml:, nvidia-smi:, dcgm:URL, prometheus:URL?match=…",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The recording's folder.")],
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="10m, 2h; until Ctrl-C if not given.")
    ] = "",
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Between two samples of a server; at least 0.1s.")
    ] = "1s",
    api_key_env: Annotated[str, typer.Option(help="Environment variable with the servers' key.")] = "",
) -> None:
    """Record servers and GPUs: numbers, allow-listed settings; never a key, a prompt or an answer.

    The folder can be given wherever a server is: headrace diagnose DIR. Ctrl-C ends it whole, and the same
    command goes on with it.
    """
    from headrace import api

    kept = api.record(targets, out=out, duration=duration or None, every=every, api_key_env=api_key_env)
    typer.echo(
        f"{kept.folder}: {kept.samples:,} samples of {kept.servers:,} servers"
        + (f", {kept.gpus:,} GPUs" if kept.gpus else "")
        + f" in {kept.seconds:,.0f} s; {kept.bytes / 1e6:,.1f} MB. Read it: headrace diagnose {kept.folder}"
    )
