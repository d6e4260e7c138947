"""`headrace predict`: the step model against a table of benchmark results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def predict(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Benchmark rows as CSV, .gz or not: docs/predict.md.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every row's prediction as CSV; .gz compresses it."),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Error statistics over all rows too, not only over those that are fair."),
    ] = False,
) -> None:
    """Predict each row of a table of benchmark results, and say how far off the step model is."""
    from headrace import api
    from headrace.cli.counting import counting

    with counting("rows") as progress:
        found = api.predict(table, out=out, on_progress=progress)
    from rich.console import Console

    from headrace.report.predict_view import predict_view

    Console(highlight=False, markup=False, emoji=False).print(predict_view(found, every=every))
    if out is not None:
        typer.echo(f"{len(found.rows):,} rows written to {out}")
