"""`headrace export OUT`: the finished rows in the form that the next tool reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.errors import StorageError
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
            "--file",
            metavar="PATH",
            help="Or - for standard output. Default OUT/export.FORM; see docs/output.md.",
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

    if file == Path("-"):
        _to_stdout(out, to.value, reasoning.value, without or ())
        return
    path, rows = api.export(
        out, to=to.value, file=file, reasoning=reasoning.value, without=without or (), force=force
    )
    typer.echo(f"Wrote {path}: {rows:,} rows.")


def _to_stdout(out: Path, to: str, reasoning: str, without: Sequence[str]) -> None:
    """Writes the rows past the guarded stream: what is data must not be lost silently."""
    from headrace.cli.streams import is_stdout_gone
    from headrace.drive.store.export import export_to_stream

    if is_stdout_gone():
        raise StorageError("standard output is closed. Name a file with --file.")
    sys.stdout.flush()
    try:
        with open(sys.stdout.fileno(), "wb", closefd=False) as stream:
            rows = export_to_stream(out, to, stream, reasoning=reasoning, without=without)
    except BrokenPipeError:
        return  # the reader has enough
    except OSError as error:
        raise StorageError(f"standard output cannot be written: {error.strerror}. Make room.") from None
    typer.echo(f"Wrote {rows:,} rows.", err=True)
