"""Rules: from one server's evidence to findings. Each module looks at one part of the machine.

A rule fires on physics (a count that equals a limit, a time that equals work over rate), never on a threshold
alone; what a person merely says is evidence of the weakest kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.diagnose.finding import Finding
from headrace.diagnose.rules import (
    cache,
    caps,
    client,
    hints,
    idle,
    machine,
    pools,
    saturated,
    step,
    topics,
    traffic,
    trials,
    waiting,
)
from headrace.diagnose.view import View

_AT_REST = (caps, machine)
_MODULES = (caps, client, pools, waiting, step, traffic, cache, machine, idle, trials, saturated, hints)


_SILENT = 0.28  # evidence under this is hardly more than what a report is about


def findings(view: View) -> list[Finding]:
    """Returns every finding of every rule, in no order; what a report is about only where all are silent."""
    found = list(_all(view))
    if not view.is_idle and all(finding.confidence < _SILENT for finding in found):
        found += topics.findings(view)
    return found


def _all(view: View) -> Iterator[Finding]:
    for module in _AT_REST if view.is_idle else _MODULES:
        yield from module.findings(view)
