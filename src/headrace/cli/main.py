"""The entry: runs the command that was typed and turns expected failures into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from headrace.cli.interrupts import interrupts_end_at_once
from headrace.cli.streams import guard_streams, last_flush
from headrace.errors import HeadraceError, Interrupted, StorageError, UsageError


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `headrace` with these arguments (by default the process's own) and exits.

    Raises:
        SystemExit: always; its code is documented in `headrace.errors`.
        HeadraceError: with HEADRACE_DEBUG=1, so that the traceback is seen.
    """
    with interrupts_end_at_once():
        guard_streams()
        from headrace.cli.app import app

    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(args=words, prog_name="headrace", obj={"arguments": words})
    except HeadraceError as error:
        if os.environ.get("HEADRACE_DEBUG") == "1":
            raise
        for line in problem_lines(error):
            sys.stderr.write(line + "\n")
        sys.exit(error.exit_code)
    except ImportError as error:
        from headrace.extras import missing_in

        said_of_extra = missing_in(error)
        if said_of_extra is None or os.environ.get("HEADRACE_DEBUG") == "1":
            raise
        sys.stderr.write(f"headrace: {said_of_extra}\n")
        sys.exit(said_of_extra.exit_code)
    except SystemExit as ended:
        said = last_flush() if not ended.code and words[:1] != ["run"] else None
        if said is None:
            raise
        sys.stderr.write(f"headrace: {said}\n")
        sys.exit(StorageError.exit_code)
    except KeyboardInterrupt:
        sys.exit(Interrupted.exit_code)


def problem_lines(error: HeadraceError) -> list[str]:
    """One line per problem, and how many there are when it is more than one.

    Servers' words may stand in them: nothing in a line steers the terminal.
    """
    from headrace.report.figures import printable

    problems = error.problems if isinstance(error, UsageError) else (str(error) or type(error).__name__,)
    lines = ["headrace: " + printable(problem) for problem in problems]
    if len(lines) > 1:
        lines.append(f"headrace: {len(lines)} problems; nothing was started.")
    return lines
