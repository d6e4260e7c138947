"""`headrace demo`: a whole job on emulated servers, in about a minute, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=10, max=1_000_000, help="Prompts.")] = 3000,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Output folder.")] = Path("demo-out"),
    speed: Annotated[
        float,
        typer.Option(
            "--speed", metavar="X", min=0.1, max=1000, help="So many times faster than real servers."
        ),
    ] = 2.0,
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", min=1, max=64, help="Emulated servers.")
    ] = 8,
) -> None:
    """Run a job of a few thousand prompts on eight emulated servers, and show what it makes.

    Needs no GPU and no network. Run it again to see that nothing is asked twice.

    Example: headrace demo --rows 3000
    """
    from headrace.cli.demo_job import run_demo

    raise typer.Exit(run_demo(rows=rows, out=out, speed=speed, replicas=replicas))
