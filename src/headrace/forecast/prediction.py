"""What is said of a row: milliseconds per output token and tokens per second, or why nothing can be."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.quantities import Estimate

OUT_COLUMNS = (
    "id",
    "predicted_tpot_ms",
    "predicted_tpot_ms_low",
    "predicted_tpot_ms_high",
    "predicted_output_tok_s",
    "predicted_output_tok_s_low",
    "predicted_output_tok_s_high",
    "predicted_total_tok_s",
    "predicted_total_tok_s_low",
    "predicted_total_tok_s_high",
    "reason",
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row's prediction, of the whole server; `reason` is "" where there is one."""

    id: str
    tpot_ms: Estimate | None = None
    output_tok_s: Estimate | None = None
    total_tok_s: Estimate | None = None
    reason: str = ""
    running: float | None = None
    assumptions: tuple[str, ...] = ()

    def cells(self) -> dict[str, str]:
        """Returns the prediction by OUT_COLUMNS, "" where there is no number."""
        cells = dict.fromkeys(OUT_COLUMNS, "")
        cells |= {"id": self.id, "reason": self.reason}
        for name, estimate in (
            ("predicted_tpot_ms", self.tpot_ms),
            ("predicted_output_tok_s", self.output_tok_s),
            ("predicted_total_tok_s", self.total_tok_s),
        ):
            if estimate is not None:
                cells[name] = f"{estimate.mid:.6g}"
                cells[f"{name}_low"] = f"{estimate.low:.6g}"
                cells[f"{name}_high"] = f"{estimate.high:.6g}"
        return cells
