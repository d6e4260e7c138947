"""How a row's GPUs are divided among ranks."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.forecast.reason import CannotJudge
from headrace.forecast.row import Row

# A published table (aiconfigurator's) multiplies tensor-parallel by expert-parallel ranks: its tp 16 with ep
# 4 stands for TP4/EP4, tp 64 with ep 8 for TP8/EP8 (79 of 258 such rows have the very time of a tp 4 or 8
# row).
_MULTIPLIED = {16: 4, 64: 8}


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks of one server: tensor, pipeline, expert parallel, and attention data parallel."""

    tp: int
    pp: int
    dp: int
    ep: int
    note: str = ""

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp


def layout_of(row: Row) -> Layout:
    """Returns the layout of a row; without tp, all its GPUs are one tensor-parallel group.

    Raises:
        CannotJudge: neither the number of GPUs nor tp is stated, or the layout is no possible one.
    """
    gpus, tp = row.whole("n_gpus"), row.whole("tp")
    pp, dp, ep = row.whole("pp") or 1, row.whole("dp") or 1, row.whole("ep") or 1
    note = ""
    if tp in _MULTIPLIED and "aiconfigurator" in row.text("source"):
        note = f"tp {tp} is tp × ep multiplied: read as TP{_MULTIPLIED[tp]}/EP{_MULTIPLIED[tp]}"
        tp = _MULTIPLIED[tp]
        ep = tp
    if tp is None:
        if gpus is None:
            raise CannotJudge("number of GPUs not stated")
        tp = max(1, gpus // (pp * dp))
        note = f"all {gpus} GPUs taken as one tensor-parallel group" if gpus > 1 else ""
    if tp & (tp - 1) or not 1 <= tp <= 64:
        raise CannotJudge(f"tp {tp} is no power of two up to 64: the layout is not clear")
    if pp > 64 or dp > 64 or ep > 1024:
        raise CannotJudge(f"pp {pp}, dp {dp}, ep {ep}: the layout is not clear")
    if dp > 1:
        ep = min(ep, tp * dp)
    return Layout(tp, pp, dp, ep, note)
