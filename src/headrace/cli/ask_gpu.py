"""Which of several GPUs a name means: asked at a terminal, nowhere else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from headrace.hardware.catalogue import Ambiguous, Ask
    from headrace.hardware.device import Device


def asker() -> Ask | None:
    """Returns the question for `resolve`, or None where nobody can answer: no terminal."""
    return ask_which if sys.stdin.isatty() and sys.stderr.isatty() else None


def ask_which(ambiguous: Ambiguous) -> Device | None:
    """Returns the candidate that the person chooses; None for an empty answer: go on with the range."""
    candidates = ambiguous.candidates
    typer.echo(f"'{ambiguous.name}' fits {len(candidates)} devices:", err=True)
    for number, device in enumerate(candidates, 1):
        typer.echo(f"  {number}  {device.name}", err=True)
    while True:
        answer = typer.prompt(
            "Which one? (number; empty: all, as a range)", default="", show_default=False, err=True
        )
        if not answer.strip():
            return None
        if answer.strip().isdigit() and 1 <= int(answer) <= len(candidates):
            return candidates[int(answer) - 1]
        typer.echo(f"'{answer[:40]}' is none of 1 … {len(candidates)}", err=True)
