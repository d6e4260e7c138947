"""The question at a terminal: which of several GPUs."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.ask_gpu import ask_which, asker
from headrace.hardware.catalogue import Ambiguous, find


def answer(typed: str) -> tuple[str, str]:
    """Returns what was chosen and what was said."""
    found = find("RTX PRO 6000")
    assert isinstance(found, Ambiguous)
    app = typer.Typer()

    @app.command()
    def choose() -> None:
        chosen = ask_which(found)
        typer.echo(f"chosen: {chosen.name if chosen else 'range'}")

    result = CliRunner().invoke(app, input=typed)
    return result.stdout.splitlines()[-1], result.stderr


def test_a_number_chooses() -> None:
    chosen, said = answer("2\n")
    assert chosen == "chosen: RTX PRO 6000 Blackwell Server"
    assert "fits 3 devices" in said
    assert "Max-Q" in said


def test_nothing_means_the_range() -> None:
    assert answer("\n")[0] == "chosen: range"


def test_nonsense_is_asked_again() -> None:
    chosen, said = answer("9\nfoo\n1\n")
    assert chosen == "chosen: RTX PRO 6000 Blackwell Workstation"
    assert "'9' is none of 1 … 3" in said


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert asker() is None
