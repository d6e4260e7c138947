"""Reading a table of benchmark rows, and predicting each of them."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError, InputError, StorageError
from headrace.forecast.answer import answer
from headrace.forecast.case import Case, case_of
from headrace.forecast.fairness import unfair
from headrace.forecast.gpu_name import device_of
from headrace.forecast.layout import Layout, layout_of
from headrace.forecast.prediction import OUT_COLUMNS, Prediction
from headrace.forecast.reason import CannotJudge
from headrace.forecast.row import Row, read_row
from headrace.forecast.statistics import Judged, compare
from headrace.hardware.device import Device

MAX_ROWS = 1_000_000
_MAX_BYTES = 2_000_000_000  # of a table, unpacked
_FIELD_LIMIT = 1_000_000  # characters of one cell
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PredictedTable:
    """Every row of a table with its prediction, in the table's order."""

    rows: tuple[Judged, ...]
    columns: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Writes the predictions as CSV; a name ending in .gz is compressed.

        Raises StorageError where the file cannot be written; a file of that name is replaced whole or not at
        all.
        """
        from headrace.durable.disk import RealDisk

        text = io.StringIO()
        writer = csv.DictWriter(text, OUT_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(each.prediction.cells() for each in self.rows)
        data = text.getvalue().encode()
        try:
            RealDisk().write_atomic(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def read_rows(path: Path) -> Iterator[tuple[tuple[str, ...], Row]]:
    """Yields (column names, row) for each row of a CSV file, packed or not.

    Raises:
        InputError: the file cannot be read, or is no table with a column that is known.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        opened = gzip.open if packed else open
        with opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as text:
            csv.field_size_limit(_FIELD_LIMIT)
            reader = csv.DictReader(_bounded(text, path), restkey=None)
            columns = tuple(name.strip() for name in reader.fieldnames or () if name)
            if "model" not in columns or not {"gpu", "gpu_key"} & set(columns):
                raise InputError(
                    f"{path} is no table of benchmark rows: it needs at least the columns model and gpu "
                    f"(it has {', '.join(columns[:8]) or 'none'}). docs/predict.md lists the columns"
                )
            for count, cells in enumerate(reader):
                if count >= MAX_ROWS:
                    raise InputError(f"{path} has more than {MAX_ROWS:,} rows; split it")
                yield columns, read_row({(key or "").strip(): cell for key, cell in cells.items()})
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    except csv.Error as error:
        raise InputError(f"{path} is no CSV table: {error}") from error


def _bounded(lines: Iterable[str], path: Path) -> Iterator[str]:
    size = 0
    for line in lines:
        size += len(line)
        if size > _MAX_BYTES:
            raise InputError(f"{path} holds more than {_MAX_BYTES:,} characters; split it")
        yield line.replace("\0", "")


def predict_table(path: Path, progress: Progress | None = None) -> PredictedTable:
    """Returns the predictions of every row of a table.

    Args:
        path: a CSV file, .gz or not, with the columns of `headrace.forecast.row`; those missing are blank.
        progress: called with (rows done, rows) now and then.

    Raises:
        InputError: the file is no such table.
    """
    columns: tuple[str, ...] = ()
    rows: list[Row] = []
    for names, row in read_rows(path):
        columns = names
        rows.append(row)
    judged: list[Judged] = []
    for number, row in enumerate(rows):
        if progress is not None and number % 50 == 0:
            progress(number, len(rows))
        judged.append(predict_row(row, str(number + 1)))
    if progress is not None:
        progress(len(rows), len(rows))
    return PredictedTable(tuple(judged), columns)


def predict_row(row: Row, fallback_id: str = "") -> Judged:
    """Returns one row with its prediction, or the reason why there is none; nothing a row says raises."""
    name = row.text("id") or fallback_id
    device, layout = known(row)
    excluded = unfair(row, device, layout)
    try:
        case: Case = case_of(row)
        prediction = answer(name, case)
    except CannotJudge as error:
        return Judged(row, Prediction(name, reason=str(error)), excluded)
    except HeadraceError as error:
        return Judged(row, Prediction(name, reason=f"the step model refuses: {str(error)[:200]}"), excluded)
    return compare(row, prediction, excluded)


def known(row: Row) -> tuple[Device | None, Layout | None]:
    """Returns the row's device and layout, each None where it is not known."""
    device: Device | None = None
    layout: Layout | None = None
    try:
        layout = layout_of(row)
    except CannotJudge:
        layout = None
    try:
        device = device_of(row.gpu)
    except CannotJudge:
        device = None
    return device, layout
