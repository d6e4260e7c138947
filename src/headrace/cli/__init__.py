"""The command line: one file per command, wiring rooms together.

Belongs here: what a person types, what they see at once, exit codes. Does not belong here: anything that
computes. Modules of this room import nothing heavy at their top: `headrace --help` must stay quick.
"""

from __future__ import annotations

from headrace.cli.interrupts import interrupts_end_at_once

with interrupts_end_at_once():
    from headrace.cli.main import main

__all__ = ["main"]
