"""The table of commands."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated, Any

import typer

from headrace import __version__
from headrace.cli.checked import CheckedCommand, CheckedGroup, JobCommand

_EXIT_CODES = (
    "Exit codes: 0 done · 1 a fault in headrace · 2 usage · 3 input · 4 held by another run · "
    "5 nothing answers · 6 disk · 7 stopped before the end (go on with the same command), or no row was "
    "answered · 8 plan: would not start · 130 interrupted."
)


class _InPanels(CheckedGroup):
    """Shows the panels in the order of the work: drive, look, decide, change, tools."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda name: _PANELS.index(_PANEL_OF[name]))


app = typer.Typer(
    name="headrace",
    cls=_InPanels,
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
        bool,
        typer.Option(
            "--version", metavar="", callback=_say_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


_PANELS = ("Drive", "Look", "Decide", "Change", "Tools")
_PANEL_OF = {
    "run": "Drive",
    "status": "Drive",
    "export": "Drive",
    "record": "Look",
    "watch": "Look",
    "diagnose": "Look",
    "report": "Look",
    "plan": "Decide",
    "predict": "Decide",
    "simulate": "Decide",
    "gpus": "Decide",
    "model": "Decide",
    "fleet": "Change",
    "demo": "Tools",
    "emulate": "Tools",
}

for _name, _panel in _PANEL_OF.items():
    # Each command lives in the module of its name; one that is not built yet is not offered.
    if importlib.util.find_spec(f"headrace.cli.{_name}"):
        _found = getattr(importlib.import_module(f"headrace.cli.{_name}"), _name)
        if isinstance(_found, typer.Typer):
            app.add_typer(_found, name=_name, rich_help_panel=_panel)
        else:
            _class = JobCommand if _name == "run" else CheckedCommand
            app.command(_name, cls=_class, rich_help_panel=_panel)(_found)
