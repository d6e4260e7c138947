"""Options of `headrace plan` that ask what the server would serve, and how the answer is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.api import Planned

InputTokens = Annotated[
    float | None,
    typer.Option(metavar="TOKENS", help="Mean tokens of a prompt, for throughput.", min=0),
]
OutputTokens = Annotated[
    float | None,
    typer.Option(metavar="TOKENS", help="Mean tokens of a completion, for throughput.", min=1),
]
AcceptLength = Annotated[
    float | None,
    typer.Option(metavar="TOKENS", help="Tokens that a speculative step yields per request.", min=1),
]
Steps = Annotated[
    bool,
    typer.Option(
        "--steps", metavar="", help="Show the decode step by operator and throughput by requests in flight."
    ),
]
Search = Annotated[
    bool,
    typer.Option(
        "--search", metavar="", help="Search legal launch lines for most output tokens per second and GPU."
    ),
]
Gpus = Annotated[
    int | None,
    typer.Option(metavar="N", help="GPUs for --search to divide into ranks and replicas.", min=1, max=1024),
]
InFlight = Annotated[
    float | None,
    typer.Option(
        metavar="N", help="Requests in flight per server in --search; else as many as can run.", min=1
    ),
]
JobTokens = Annotated[
    float | None,
    typer.Option(metavar="TOKENS", help="Output tokens of a job: --search says its time and cost.", min=1),
]
GpuHourPrice = Annotated[
    float | None, typer.Option(metavar="PRICE", help="Of one GPU for an hour, for the job's cost.", min=0)
]


def step_views(found: Planned, *, steps: bool) -> Iterator[RenderableType]:
    """Yields what the plan found of steps and searches, as views; without `steps` one line of them."""
    from rich.text import Text

    if found.serving is not None:
        from headrace.report.serving_view import serving_view, summary

        yield Text()
        yield serving_view(found.serving) if steps else summary(found.serving)
    if found.search is not None:
        from headrace.report.search_view import search_view

        yield Text()
        yield search_view(found.search)


def step_documents(found: Planned) -> dict[str, Any]:
    """Returns the same as plain JSON, by name."""
    document: dict[str, Any] = {}
    if found.serving is not None:
        document["serving"] = found.serving.to_json()
    if found.search is not None:
        document["search"] = found.search.to_json()
    return document
