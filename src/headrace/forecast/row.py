"""One row of a benchmark table: text in, numbers out; a blank or odd cell is None, never a guess."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

# The columns that are read, as in a published benchmark table; all may be missing.
TEXT_COLUMNS = (
    "id",
    "gpu",
    "gpu_key",
    "model",
    "model_class",
    "weights_dtype",
    "kv_dtype",
    "engine",
    "engine_key",
    "engine_version",
    "spec_decode",
    "load_kind",
    "dataset",
    "notes",
    "source",
    "dup_of",
)
NUMBER_COLUMNS = (
    "n_gpus",
    "tp",
    "pp",
    "dp",
    "ep",
    "concurrency",
    "request_rate",
    "batch_size",
    "input_len",
    "output_len",
    "context_len",
    "output_tok_s",
    "total_tok_s",
    "req_s",
    "prefill_tok_s",
    "decode_tok_s_per_user",
    "ttft_ms",
    "tpot_ms",
    "itl_ms",
    "latency_s",
)
MAX_CELL = 4000  # characters of a cell that are looked at
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class Row:
    """A row. `text` has "" and `number` None where the table says nothing that can be read."""

    texts: Mapping[str, str]
    numbers: Mapping[str, float]

    def text(self, column: str) -> str:
        return self.texts.get(column, "")

    def number(self, column: str) -> float | None:
        """Returns the cell as a number > 0, or None."""
        return self.numbers.get(column)

    def whole(self, column: str) -> int | None:
        """Returns the cell as a whole number ≥ 1, or None."""
        value = self.numbers.get(column)
        return int(value) if value is not None and value >= 1 and value == int(value) else None

    @property
    def engine(self) -> str:
        """The engine's key in lower case: "vllm", "sglang", "tensorrt-llm", …; "" where not stated."""
        return _engine(self.text("engine_key") or self.text("engine"))

    @property
    def gpu(self) -> str:
        return self.text("gpu_key") or self.text("gpu")


def read_row(cells: Mapping[str | None, object]) -> Row:
    """Returns the row of cells by column name; unknown columns and unreadable cells are left out."""
    texts: dict[str, str] = {}
    numbers: dict[str, float] = {}
    for column in TEXT_COLUMNS:
        cell = cells.get(column)
        if isinstance(cell, str) and cell.strip():
            texts[column] = cell.strip()[:MAX_CELL]
    for column in NUMBER_COLUMNS:
        value = number(cells.get(column))
        if value is not None and value > 0:
            numbers[column] = value
        elif column == "context_len" and value == 0:
            numbers[column] = 0.0
    return Row(texts, numbers)


def number(cell: object) -> float | None:
    """Returns a finite number that fills the cell, thousands separators aside; None for anything else."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, int | float):
        value = float(cell)
    else:
        text = str(cell)[:64].strip().replace(",", "")
        if not _NUMBER.fullmatch(text):
            return None
        value = float(text)
    return value if math.isfinite(value) and abs(value) <= _LARGEST else None


def _engine(text: str) -> str:
    lower = text.lower()
    for name in ("sglang", "vllm", "tensorrt", "llama.cpp", "tgi", "lmdeploy", "deepspeed"):
        if name in lower:
            return {"tensorrt": "tensorrt-llm", "deepspeed": "deepspeed-mii"}.get(name, name)
    return lower.strip()
