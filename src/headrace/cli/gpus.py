"""`headrace gpus`: what is known of accelerators."""

from __future__ import annotations

from typing import Annotated

import typer


def gpus(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE.yaml",
            help="A GPU by any name, nvidia-smi's too, or a YAML file that describes one.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="As JSON, every figure with its source.")
    ] = False,
) -> None:
    """List the accelerators headrace knows, or show one with the source of every figure.

    Example: headrace gpus

    Example of one: headrace gpus "RTX PRO 6000 Blackwell Server"
    """
    from headrace import api

    shown = api.gpus(name)
    note = ""
    if name is not None and len(shown) > 1:
        note = f"'{name}' fits {len(shown)} devices; a plan for it uses their range until you name one."
    if as_json:
        import json

        documents = [device.to_json() for device in shown]
        single = name is not None and len(documents) == 1
        typer.echo(json.dumps(documents[0] if single else documents, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    from headrace.report.gpu_view import device_view, devices_view

    console = Console(highlight=False)
    console.print(device_view(shown[0]) if name and len(shown) == 1 else devices_view(shown, note))
