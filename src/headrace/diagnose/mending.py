"""What the failure catalogue says mends the messages that speak for what binds."""

from __future__ import annotations

from headrace.diagnose.finding import Side, side_of
from headrace.diagnose.view import View
from headrace.engines.conduct import meaning_of
from headrace.words import Constraint


def mending(view: View, binds: Constraint) -> tuple[str, ...]:
    """Returns sentences, each once: first those of messages that speak for `binds` itself.

    Where a server ended or does not start, every failure's own mend comes with it.
    """
    own: dict[str, None] = {}
    others: dict[str, None] = {}
    ended = side_of(binds) is Side.STATE
    for event in view.server.events:
        entry = meaning_of(view.server.engine, event.id)
        if entry is None or entry.constraint is None or event.severity not in ("failure", "warning"):
            continue
        if entry.constraint is binds:
            own[entry.mend] = None
        elif ended and event.severity == "failure" and side_of(entry.constraint) is Side.STATE:
            others[entry.mend] = None
    return tuple({**own, **others})
