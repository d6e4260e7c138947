"""`headrace export OUT`: the finished rows in the form that the next tool reads."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.words import Flag


class ExportForm(StrEnum):
    """What rows can be written as."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    CONVERSATIONS = "conversations"


class Reasoning(StrEnum):
    """Where the model's thinking goes in conversations."""

    INLINE = "inline"
    FIELD = "field"
    DROP = "drop"


def export(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Output folder of the job; it may still be running.")
    ],
    to: Annotated[
        ExportForm,
        typer.Option(
            "--to", metavar="FORM", help="jsonl, parquet, or conversations: id and turns, as JSON lines."
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="PATH", help="By default OUT/export.jsonl, .parquet or .conversations.jsonl."
        ),
    ] = None,
    reasoning: Annotated[
        Reasoning,
        typer.Option("--reasoning", metavar="WHERE", help="Thinking goes inline, into a field, or drop."),
    ] = Reasoning.FIELD,
    without: Annotated[
        list[Flag] | None,
        typer.Option("--without", metavar="FLAG", help="Leave out rows with this flag; repeatable."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", metavar="", help="Replace the file if it is there.")
    ] = False,
) -> None:
    """Write a job's finished rows as JSONL, Parquet or conversations.

    Example: headrace export out/infinity --to conversations --reasoning drop --without truncated
    """
    from headrace import api

    path, rows = api.export(
        out, to=to.value, file=file, reasoning=reasoning.value, without=without or (), force=force
    )
    typer.echo(f"Wrote {path}: {rows:,} rows.")
