"""The command line's face: help, exit codes, and that it starts light."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer

from headrace import __version__
from headrace.cli import app as app_module
from headrace.cli import main
from headrace.cli.interrupts import interrupts_end_at_once
from headrace.cli.main import problem_lines
from headrace.errors import BusyError, HeadraceError, InputError, StorageError, UnreachableError, UsageError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `headrace` in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


COMMANDS = [
    ("run",),
    ("status",),
    ("export",),
    ("demo",),
    ("fleet", "add"),
    ("fleet", "drain"),
    ("fleet", "remove"),
    ("emulate",),
    ("plan",),
    ("gpus",),
    ("model",),
    ("watch",),
    ("report",),
]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_explains_itself_in_80_columns(run: Run, words: tuple[str, ...]) -> None:
    code, out, _ = run(*words, "--help")
    assert code == 0
    assert "Example" in out
    assert not re.search(r"<(bool|str|int|float|path|list)", out), "a metavar says what is meant"
    assert "…" not in re.sub(r"(HERE|N),…", "", out).replace("TARGET…", "").replace("=N,…", "")
    assert f"headrace {' '.join(words)}" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_first_help_shows_the_panels_in_order_and_the_exit_codes(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    places = [out.index(f"─ {panel} ─") for panel in ("Drive", "Change", "Tools")]
    assert places == sorted(places)
    assert "Exit codes: 0 done" in out


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"headrace {__version__}\n", "")


def test_a_mistyped_command_is_usage(run: Run) -> None:
    code, _, err = run("runn")
    assert code == 2
    assert "Did you mean 'run'" in err


def _failing(error: BaseException) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("a"), 2),
        (InputError("a"), 3),
        (BusyError("a"), 4),
        (UnreachableError("a"), 5),
        (StorageError("a"), 6),
        (KeyboardInterrupt(), 130),
    ],
)
def test_expected_failures_are_one_line_and_a_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    monkeypatch.setattr(app_module, "app", _failing(error))
    said = "headrace: a\n" if isinstance(error, HeadraceError) else ""
    assert run() == (code, "", said)


def test_all_problems_are_printed_a_line_each(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "app", _failing(UsageError(["one\nthing", "another"])))
    assert run()[2] == (
        "headrace: one thing\nheadrace: another\nheadrace: 2 problems; nothing was started.\n"
    )


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "app", _failing(InputError("a")))
    monkeypatch.setenv("HEADRACE_DEBUG", "1")
    with pytest.raises(InputError):
        main([])


def test_faults_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "app", _failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main([])


def test_nothing_heavy_is_imported_to_show_help() -> None:
    heavy = (
        "aiohttp",
        "pyarrow",
        "numpy",
        "pydantic",
        "msgspec",
        "yaml",
        "uvloop",
        "prometheus_client",
        "asyncio",
        "rich",
    )
    code = f"import sys, headrace.cli.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_functions_of_the_package_are_found_when_asked_for() -> None:
    import headrace

    assert all(callable(getattr(headrace, name)) for name in ("run", "status", "export", "fleet_add"))
    nothing: Any = headrace
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = nothing.rum


def test_ctrl_c_while_modules_are_loaded_ends_quietly() -> None:
    # a finder that is asked for the table of commands presses Ctrl-C, as a user does in the first moments
    code = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "headrace.cli.app":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from headrace.cli import main
main(["--version"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_is_as_it_was_once_modules_are_loaded() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts_end_at_once():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_end_at_once():  # `nohup`: what is ignored stays so
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_words_of_servers_do_not_steer_the_terminal() -> None:
    (line,) = problem_lines(InputError("it said \x1b]0;owned\x07\x9b31m red"))
    assert line == "headrace: it said  ]0;owned  31m red"
