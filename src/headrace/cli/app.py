"""The table of commands."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli.demo import demo
from headrace.cli.export import export
from headrace.cli.fleet import fleet
from headrace.cli.run import run
from headrace.cli.status import status

_EXIT_CODES = (
    "Exit codes: 0 done · 1 a fault in headrace · 2 usage · 3 input · 4 held by another run · "
    "5 nothing answers · 6 disk · 7 stopped before the end (go on with the same command) · 130 interrupted."
)

app = typer.Typer(
    name="headrace",
    help="Feeds a fleet of LLM inference servers with an offline generation job, and loses nothing.\n\n"
    "Try [bold]headrace demo[/bold] first: it needs no GPU.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _add(panel: str, name: str) -> None:
    """Registers a command that lives in a module of its own name, where that module is there."""
    module = f"headrace.cli.{name}"
    if importlib.util.find_spec(module):
        app.command(name, rich_help_panel=panel)(getattr(importlib.import_module(module), name))


app.command("run", rich_help_panel="Drive")(run)
app.command("status", rich_help_panel="Drive")(status)
app.command("export", rich_help_panel="Drive")(export)
for _name in ("plan", "gpus", "model"):
    _add("Decide", _name)
app.add_typer(fleet, name="fleet", rich_help_panel="Change")
app.command("demo", rich_help_panel="Tools")(demo)
_add("Tools", "emulate")
