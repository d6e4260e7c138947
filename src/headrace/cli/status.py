"""`headrace status OUT`: where a job stands, from its own mouth or from its last snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def status(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Output folder of the job.")],
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="The status document as one line of JSON.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", metavar="", help="Keep showing it until the job ends or Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.2, max=3600, help="With --watch: how often.")
    ] = 2.0,
) -> None:
    """Show where a job stands: live if it runs on this machine, else from its last snapshot.

    Example: headrace status out/infinity --watch
    """
    from headrace.cli.show import show_status, watch_status

    if watch:
        watch_status(out, as_json=as_json, every_seconds=every)
    else:
        show_status(out, as_json=as_json)
