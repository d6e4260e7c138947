"""Time series of every scheduler on one grid, thinned as the time grows: memory does not grow with the
job.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.simulate.kernel.compiled import compiled
from headrace.simulate.kernel.pools import pages_after, states_used
from headrace.simulate.kernel.records import C_PREFILL, DECODE, RUNNING, World
from headrace.simulate.kernel.seconds import whole_steps

COLUMNS = (
    "running", "queued", "context_tokens", "kv_pages", "state_slots",
    "generated", "completed", "prefilled", "cached", "passes", "retracted", "prefill_seconds",
)  # fmt: skip


class Series(NamedTuple):
    """Samples at 0, step, 2 × step …; `filled` rows of each scheduler are filled.

    `columns` is schedulers × rows × COLUMNS: gauges as of that moment, totals since the start.
    """

    step_seconds: NDArray[np.float64]  # one entry; doubles when the rows are full
    filled: NDArray[np.int64]
    columns: NDArray[np.float64]


def new_series(schedulers: int, rows: int, step_seconds: float) -> Series:
    """Returns empty series; `rows` is even."""
    return Series(
        np.array([step_seconds]), np.zeros(schedulers, np.int64), np.zeros((schedulers, rows, len(COLUMNS)))
    )


@compiled
def thin(out: Series) -> None:
    """Keeps every other sample and doubles the step."""
    out.step_seconds[0] *= 2.0
    for s in range(len(out.filled)):
        kept = (out.filled[s] + 1) // 2
        for row in range(1, kept):
            out.columns[s, row] = out.columns[s, 2 * row]
        out.filled[s] = kept


@compiled
def sample(w: World, s: int, until: float, out: Series) -> None:
    """Fills the grid points before `until` from the present phase."""
    sch, slots = w.schedulers[s], w.slots[s]
    while out.filled[s] * out.step_seconds[0] < until:
        row = out.filled[s]
        if row >= out.columns.shape[1]:
            thin(out)
            continue
        steps = whole_steps(sch, row * out.step_seconds[0])
        running = 0
        context = 0.0
        made = 0.0
        for i in range(sch.slots):
            slot = slots[i]
            if slot.flag == RUNNING:
                running += 1
                context += slot.input + slot.made - slot.todo
                if sch.phase == DECODE:
                    made += slot.rate * steps
        column = out.columns[s, row]
        column[0] = running
        column[1] = sch.waiting
        column[2] = context + made
        column[3] = pages_after(w, s, steps)
        column[4] = states_used(w, s)
        column[5] = sch.generated + made
        column[6] = sch.completed
        column[7] = sch.prefilled
        column[8] = sch.cached
        column[9] = sch.passes + steps
        column[10] = sch.retracted
        column[11] = w.cause_seconds[s, C_PREFILL]
        out.filled[s] = row + 1
