"""The file formats by suffix. A new format (or a hub's data set) is one more entry here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.drive.sources.blocks import COMPRESSIONS, read_blocks
from headrace.drive.sources.csv_rows import separated_rows
from headrace.drive.sources.file_rows import FileRow
from headrace.drive.sources.json_items import json_document_rows
from headrace.drive.sources.json_lines import json_line_rows, text_line_rows
from headrace.drive.sources.parquet_rows import parquet_rows


@dataclass(frozen=True, slots=True)
class Format:
    """How the rows of one kind of file are had.

    Attributes:
        rows: from (path, decompressed blocks) to rows, in file order, streaming.
        place_word: what `FileRow.place` counts: line, item, row.
        in_place: the rows' bytes lie in the file as JSON objects, so plain files are read again by offset.
        compressible: .gz and .zst may follow the suffix.
    """

    rows: Callable[[Path, Iterator[bytes]], Iterator[FileRow]]
    place_word: str
    in_place: bool = False
    compressible: bool = True


_JSON_LINES = Format(json_line_rows, "line", in_place=True)

FORMATS: Mapping[str, Format] = {
    ".jsonl": _JSON_LINES,
    ".ndjson": _JSON_LINES,
    ".json": Format(json_document_rows, "item"),
    ".csv": Format(separated_rows(","), "line"),
    ".tsv": Format(separated_rows("\t"), "line"),
    ".parquet": Format(parquet_rows, "row", compressible=False),
    ".txt": Format(text_line_rows, "line"),
}


def known_suffixes() -> str:
    """The suffixes in words, for messages."""
    return f"{', '.join(FORMATS)} (each but .parquet also with {' or '.join(COMPRESSIONS)})"


def format_of(path: Path) -> tuple[Format, str | None] | None:
    """The file's format and compression by its suffixes, or None when they are not known."""
    name = path.name.lower()
    compression = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), None)
    found = FORMATS.get(Path(name.removesuffix(compression or "")).suffix)
    if found is None or (compression and not found.compressible):
        return None
    return found, compression


def rows_of(path: Path) -> Iterator[FileRow]:
    """Yields the file's rows in order. The suffix must be known (`expand` sees to it)."""
    found = format_of(path)
    if found is None:
        raise ValueError(f"no format for {path}")
    format_, compression = found
    return format_.rows(path, read_blocks(path, compression))


def is_in_place(path: Path) -> bool:
    """True when rows of this file are read again from the file itself, False when they go to the spool."""
    found = format_of(path)
    return found is not None and found[0].in_place and found[1] is None
