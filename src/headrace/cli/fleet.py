"""`headrace fleet add|drain|remove URL… --job OUT`: changes the servers of a running job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.checked import CheckedCommand, CheckedGroup

fleet = typer.Typer(
    name="fleet",
    cls=CheckedGroup,
    help="Add, drain or remove servers of a running job.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_Servers = Annotated[
    list[str], typer.Argument(metavar="URL", help="Servers; port ranges too: http://10.0.0.7:30000-30007.")
]
_JobFolder = Annotated[Path, typer.Option("--job", metavar="OUT", help="Output folder of the running job.")]
_Json = Annotated[
    bool, typer.Option("--json", metavar="", help="Print the job's answers as JSON, one per line.")
]


@fleet.command(
    cls=CheckedCommand, epilog="Example: headrace fleet add http://10.0.0.9:30000 --job out/infinity"
)
def add(servers: _Servers, job: _JobFolder, as_json: _Json = False) -> None:
    """Give a running job more servers."""
    _change("add", servers, job, as_json)


@fleet.command(
    cls=CheckedCommand, epilog="Example: headrace fleet drain http://10.0.0.9:30000 --job out/infinity"
)
def drain(servers: _Servers, job: _JobFolder, as_json: _Json = False) -> None:
    """Send a server nothing new, and let it finish what it has; then it can be restarted."""
    _change("drain", servers, job, as_json)


@fleet.command(
    cls=CheckedCommand, epilog="Example: headrace fleet remove http://10.0.0.9:30000 --job out/infinity"
)
def remove(servers: _Servers, job: _JobFolder, as_json: _Json = False) -> None:
    """Take a server out at once; what it was working on is asked of the others."""
    _change("remove", servers, job, as_json)


def _change(action: str, servers: list[str], job: Path, as_json: bool) -> None:
    """Prints every answer as it comes; what the job refuses does not keep the other servers from it."""
    import json

    from headrace import api
    from headrace.errors import InputError
    from headrace.report.figures import printable

    refusals: list[str] = []
    for url, answer in api.fleet_replies(action, servers, job):
        if "error" in answer:
            refusals.append(str(answer["error"]))
        if as_json:
            typer.echo(json.dumps({"server": url, **answer}))
        elif "error" not in answer:
            typer.echo(printable(_said(action, url, answer)))
    if refusals:
        raise InputError("; ".join(refusals))


def _said(action: str, url: str, answer: dict[str, object]) -> str:
    done = {"add": "added", "drain": "draining", "remove": "removed"}[action]
    return str(answer.get("done") or f"{url}: {done}")
