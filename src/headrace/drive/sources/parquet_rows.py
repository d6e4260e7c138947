"""Parquet, a batch of rows at a time; needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headrace.drive.sources.blocks import import_pyarrow
from headrace.drive.sources.file_rows import ROW_BYTES_LIMIT, DamagedFile, FileRow, too_long
from headrace.errors import InputError

BATCH_ROWS = 256
BUFFER_BYTES = 1 << 20  # per column; without it pyarrow reads a whole row group, often hundreds of megabytes


def parquet_rows(path: Path, blocks: Iterator[bytes]) -> Iterator[FileRow]:
    """Yields one row per Parquet row; dates become text, bytes base64, NaN null. `blocks` is not used.

    Raises:
        InputError: the file is not Parquet, or pyarrow is not installed.
        DamagedFile: a page further on cannot be read.
    """
    arrow = import_pyarrow(path)
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}. Check how it was written") from error
    place = 0
    with file:
        try:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                for row in _as_rows(batch):
                    place += 1
                    yield _row(row, place)
        except (arrow.ArrowException, OSError) as error:
            raise DamagedFile(
                f"{path.name} breaks off after row {place:,}: {error}; the rest is left out. Write it again"
            ) from error


def _as_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """The batch's rows as Python objects, times that Python has no type for as text."""
    names = batch.schema.names
    columns = [_as_list(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _as_list(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, ImportError):  # nanoseconds, years beyond 9999; zones unknown here
        return [_as_value(scalar) for scalar in column]
    return values


def _as_value(scalar: Any) -> Any:
    """One value, as text or number where Python has no type for it; nested ones part by part."""
    import pyarrow as pa

    try:
        return scalar.as_py()
    except (ValueError, OverflowError, ImportError):
        pass
    if pa.types.is_struct(scalar.type):
        return {name: _as_value(part) for name, part in scalar.items()}
    if pa.types.is_map(scalar.type):
        return [[_as_value(part["key"]), _as_value(part["value"])] for part in scalar.values]
    if pa.types.is_nested(scalar.type):
        return [_as_value(part) for part in scalar.values]
    for target in (pa.string(), pa.int64(), pa.int32()):
        try:
            said = scalar.cast(target).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        if not str(said).startswith("<value out of range"):
            return said
    return str(scalar.type)


def _row(row: dict[str, Any], place: int) -> FileRow:
    try:
        raw = msgspec.json.encode(row)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return FileRow(b"", f"the row cannot be said in JSON: {error}. Change the column's type", place, 0, 0)
    if len(raw) > ROW_BYTES_LIMIT:
        return FileRow(b"", too_long(len(raw)), place, 0, 0)
    return FileRow(raw, None, place, 0, len(raw))
