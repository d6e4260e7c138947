"""Saturation: fewer in flight made as much, so that more running is not what lacks; the step is at a roof."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.diagnose.finding import SUGGESTED, Finding
from headrace.diagnose.view import ROOM, View
from headrace.words import Constraint

_FEWER = re.compile(
    r"\b(\d+)\s+(?:in flight|streams?|users?|clients?|concurrent(?: requests?| users?)?|at once|parallel)"
    r"\b[^.;\d]{0,30}?(\d[\d,]*(?:\.\d+)?)\s*(total |output )?tok",
    re.IGNORECASE,
)
# Above the largest captured size kernels are launched by hand; little else makes a step worse at one size.
_ABOVE = re.compile(
    r"\b(?:falls?|drops?|collapses?|slower|lower|decreases?)\b[^.;]{0,60}"
    r"\b(?:above|beyond|past|(?:larger|more|bigger|greater) than|exceeds|over)\s+"
    r"(?:a )?(?:batch (?:size )?(?:of )?)?(\d{1,4})\b(?!\s*(?:k\b|tok|%|ms))",
    re.IGNORECASE,
)
_AS_MUCH = 0.93  # two runs of one set-up differ by up to this
_COLLAPSE = 1.25  # a roof holds: what falls by this with more in flight is work done twice


def findings(view: View) -> Iterator[Finding]:
    """Yields the roof of the step, where a lower load makes as much and nothing waits in the server."""
    yield from _past_the_graphs(view)
    flight = view.client.value("in_flight")
    if flight is None or view.waits is True:
        return
    for claim in view.claims:
        for found in _FEWER.finditer(claim.text):
            fewer, rate = float(found[1]), float(found[2].replace(",", ""))
            here = view.rate_near(rate, total=(found[3] or "").lower().startswith("total"))
            if here is None or not 0 < fewer <= 0.75 * flight or rate < _AS_MUCH * here:
                continue
            if rate > _COLLAPSE * here:
                yield from _collapse(view, fewer, rate, here)
                return
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


def _collapse(view: View, fewer: float, rate: float, here: float) -> Iterator[Finding]:
    """Less in all from more in flight: the pool no longer holds them, and work is thrown away."""
    usage = view.fullest_pool
    if usage is None or usage[1] >= ROOM:
        yield Finding(
            Constraint.KV_POOL,
            SUGGESTED - 0.05,
            (f"{fewer:,.0f} in flight make {rate:,.0f} tok/s, more make {here:,.0f}: a roof would hold",),
            ("a pool with room, and nothing taken back or read again, at the higher load",),
        )


def _past_the_graphs(view: View) -> Iterator[Finding]:
    """Throughput that falls above one batch size, where graphs are not known to cover it."""
    if view.server.value("cuda_graph") == 1 or view.server.value("cuda_graph_hit_rate") == 1:
        return
    for claim in view.claims:
        found = _ABOVE.search(claim.text)
        batch = "batch" in claim.text.lower() or "concurren" in claim.text.lower()
        if found is not None and batch and float(found[1]) <= (view.flight or view.running or 1e9):
            yield Finding(
                Constraint.CUDA_GRAPH,
                SUGGESTED - 0.05,
                (f"throughput falls above {found[1]}, as told: {claim.text[:160]}",),
                ("graphs captured above that size, or requests taken back there",),
            )
            return
