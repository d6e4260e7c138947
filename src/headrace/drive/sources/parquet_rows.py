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
                for row in batch.to_pylist():
                    place += 1
                    yield _row(row, place)
        except (arrow.ArrowException, OSError) as error:
            raise DamagedFile(
                f"{path.name} breaks off after row {place:,}: {error}; the rest is left out. Write it again"
            ) from error


def _row(row: dict[str, Any], place: int) -> FileRow:
    try:
        raw = msgspec.json.encode(row)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return FileRow(b"", f"the row cannot be said in JSON: {error}. Change the column's type", place, 0, 0)
    if len(raw) > ROW_BYTES_LIMIT:
        return FileRow(b"", too_long(len(raw)), place, 0, 0)
    return FileRow(raw, None, place, 0, len(raw))
