"""Saturation: fewer in flight made as much, so that more running is not what lacks; the step is at a roof."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.diagnose.finding import SUGGESTED, Finding
from headrace.diagnose.view import View
from headrace.words import Constraint

_FEWER = re.compile(
    r"\b(\d+)\s+(?:in flight|streams?|users?|clients?|concurrent(?: requests?| users?)?|at once|parallel)"
    r"\b[^.;\d]{0,30}?(\d[\d,]*(?:\.\d+)?)\s*(total |output )?tok",
    re.IGNORECASE,
)
_AS_MUCH = 0.93  # two runs of one set-up differ by up to this


def findings(view: View) -> Iterator[Finding]:
    """Yields the roof of the step, where a lower load makes as much and nothing waits in the server."""
    flight = view.client.value("in_flight")
    if flight is None or view.waits is True:
        return
    for claim in view.claims:
        for found in _FEWER.finditer(claim.text):
            fewer, rate = float(found[1]), float(found[2].replace(",", ""))
            here = view.rate_near(rate, total=(found[3] or "").lower().startswith("total"))
            if here is None or not 0 < fewer <= 0.75 * flight or rate < _AS_MUCH * here:
                continue
            floor = view.floor
            bytes_bind = floor is not None and floor.compute is not None and not floor.bound_by_compute
            yield Finding(
                Constraint.MEMORY_BANDWIDTH if bytes_bind else Constraint.COMPUTE,
                SUGGESTED - 0.05,
                (
                    f"{fewer:,.0f} in flight make {rate:,.0f} tok/s and {flight:,.0f} make {here:,.0f}: "
                    f"a larger batch brings nothing",
                ),
                ("requests that wait in the server at the higher load: then a cap holds it",),
            )
            return
