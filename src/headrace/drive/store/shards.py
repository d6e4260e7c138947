"""Shards: finished files of rows, written aside, synced and renamed. Their schema stands here alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec.structs

from headrace.drive.store.rows import Row
from headrace.drive.store.segments import line_chunks, stored_rows_of
from headrace.durable.disk import AppendFile, Disk
from headrace.errors import StorageError
from headrace.words import OutputFormat

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT_BYTES = 32 << 20
SEGMENT_ROWS = 8192
ROW_GROUP_BYTES = 4 * 1024 * 1024  # of JSON lines: bounds what a seal holds in memory
ZSTD_LEVEL = 1
SUFFIXES = {OutputFormat.PARQUET: "parquet", OutputFormat.JSONL: "jsonl.zst"}

# name, Arrow type, what it is. The order is that of `Row`.
_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("id", "string", "identity of the row: the user's own id, or the hash of what was sent"),
    ("source", "string", "name of the source in the job"),
    ("row", "int64", "1-based row of the source"),
    ("sample", "int32", "n-index, from 0"),
    ("messages", "messages", "what was asked, chat form; null for plain prompts"),
    ("prompt", "string", "what was asked, plain form; null for chats"),
    ("answer", "string", "the model's answer without its reasoning"),
    ("reasoning", "string", "the model's thinking; null when there was none"),
    ("finish_reason", "string", "as the server said it"),
    ("flags", "strings", "what is wrong with the row: empty, truncated, think_tag, repetition, refused"),
    ("prompt_tokens", "int64", "as the server counted them; null where it did not"),
    ("completion_tokens", "int64", "as the server counted them; null where it did not"),
    ("server", "string", "base URL of the server that answered"),
    ("model", "string", "the name that the server gave"),
    ("latency_seconds", "double", "of the try that succeeded"),
    ("tries", "int32", "requests sent for this row, this one included"),
    ("finished_at", "double", "Unix seconds"),
    ("tool_calls", "string", "JSON text, or null"),
    ("token_ids", "ids", "output token ids, where asked for and returned"),
    ("extra", "string", "the source row's other columns as JSON text, or null"),
)
COLUMN_NAMES = tuple(name for name, _, _ in _COLUMNS)
_REPEATING = ["source", "finish_reason", "server", "model"]  # few values, many rows: worth a dictionary


def shard_schema() -> pa.Schema:
    """The Arrow schema of a shard, with a description on every field."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int64": pa.int64(),
        "int32": pa.int32(),
        "double": pa.float64(),
        "strings": pa.list_(pa.string()),
        "ids": pa.list_(pa.int32()),
        "messages": pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
    }
    return pa.schema(
        [pa.field(name, types[kind], metadata={"description": text}) for name, kind, text in _COLUMNS],
        metadata={"headrace.rows": "1"},
    )


def as_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one Arrow batch."""
    import pyarrow as pa

    by_name = dict(
        zip(Row.__struct_fields__, zip(*map(msgspec.structs.astuple, rows), strict=True), strict=True)
    )
    arrays = [_as_array(by_name[field.name], field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, type=field.type, from_pandas=False)
    except (pa.ArrowInvalid, OverflowError):
        # a server's count that no column holds says nothing: null, so that the row itself is kept
        held = [value if _holds(field.type, value) else None for value in values]
        return pa.array(held, type=field.type, from_pandas=False)


def _holds(kind: pa.DataType, value: Any) -> bool:
    import pyarrow as pa

    try:
        pa.array([value], type=kind, from_pandas=False)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


class _ArrowSink:
    """An `AppendFile` with the methods that Arrow calls."""

    def __init__(self, file: AppendFile) -> None:
        self._file = file
        self.closed = False

    def write(self, data: Any) -> int:
        return self._file.write(memoryview(data))

    def tell(self) -> int:
        return self._file.length

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def write_parquet(chunks: Iterator[bytes], file: AppendFile, source: Path) -> int:
    """Writes the JSON lines of `chunks`, which come from `source`, as Parquet; returns the rows written."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = shard_schema()
    count = 0
    with parquet.ParquetWriter(
        pa.PythonFile(_ArrowSink(file), mode="w"),
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=_REPEATING,
        write_statistics=["row", "completion_tokens", "finished_at"],
        memory_pool=pa.system_memory_pool(),
    ) as writer:
        waiting: list[pa.RecordBatch] = []
        size = 0
        for chunk in chunks:
            rows = stored_rows_of(chunk, source)
            count += len(rows)
            waiting.append(as_batch(rows, schema))
            size += len(chunk)
            if size >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting, schema))
                waiting, size = [], 0
        if waiting or not count:
            writer.write_table(pa.Table.from_batches(waiting, schema))
    return count


def write_jsonl(chunks: Iterator[bytes], file: AppendFile, source: Path) -> int:
    """Writes the JSON lines of `chunks` as they are, zstd-compressed; returns the rows written."""
    import pyarrow as pa

    count = 0
    with pa.CompressedOutputStream(pa.PythonFile(_ArrowSink(file), mode="w"), "zstd") as stream:
        for chunk in chunks:
            stream.write(chunk)
            count += chunk.count(b"\n")
    return count


_WRITERS: dict[OutputFormat, Callable[[Iterator[bytes], AppendFile, Path], int]] = {
    OutputFormat.PARQUET: write_parquet,
    OutputFormat.JSONL: write_jsonl,
}


def seal(
    disk: Disk,
    segment: Path,
    length: int,
    target: Path,
    form: OutputFormat,
    between: Callable[[], None] = lambda: None,
) -> int:
    """Writes the first `length` bytes of the segment as a shard under its final name; returns its rows.

    Durable when it returns; the segment is left. `between` is called between two chunks of about 256 KB, so
    that what is more urgent need not wait. An OSError (a full disk, say) leaves nothing behind, nor
    does a StorageError (a line of the segment is no row).
    """
    aside = segment.with_name(target.name + ".tmp")
    file = disk.append_open(aside, fresh=True)
    try:
        try:
            rows = _WRITERS[form](_with_pauses(line_chunks(segment, 0, length), between), file, segment)
            file.fsync()
        finally:
            file.close()
        disk.replace(aside, target)
    except (OSError, StorageError):
        disk.unlink(aside)
        raise
    disk.fsync_folder(target.parent)
    disk.fsync_folder(aside.parent)
    return rows


def _with_pauses(chunks: Iterator[bytes], between: Callable[[], None]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        between()


def read_shard(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, list[Any]]]:
    """The shard's columns as Python lists, some hundred rows at a time.

    Raises:
        StorageError: the file is not a shard.
    """
    if path.name.endswith(".parquet"):
        yield from _read_parquet(path, columns)
        return
    names = columns if columns is not None else COLUMN_NAMES
    for chunk in _decompressed_lines(path):
        rows = stored_rows_of(chunk, path)
        yield {name: [getattr(row, name) for row in rows] for name in names}


def _read_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[dict[str, list[Any]]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256, columns=list(columns) if columns else None):
                names = batch.schema.names
                yield {name: column.to_pylist() for name, column in zip(names, batch, strict=True)}
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> StorageError:
    size = os.path.getsize(path) if path.exists() else 0
    return StorageError(
        f"the shard {path} ({size:,} bytes) cannot be read: {error}. "
        "Put a good copy back, or move it away: its rows count as answered either way"
    )


def _decompressed_lines(path: Path) -> Iterator[bytes]:
    import pyarrow as pa

    rest = b""
    with pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd") as stream:
        while block := _decompressed(stream, path):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield rest + block[:cut]
                rest = block[cut:]
            else:
                rest += block


def _decompressed(stream: Any, path: Path) -> bytes:
    import pyarrow as pa

    try:
        block: bytes = stream.read(1 << 20)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    return block
