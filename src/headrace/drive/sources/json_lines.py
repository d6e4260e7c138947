"""JSON lines and plain text lines. Blank lines are not rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.drive.sources.file_rows import FileRow, too_long
from headrace.drive.sources.lines import split_lines


def json_line_rows(path: Path, blocks: Iterator[bytes]) -> Iterator[FileRow]:
    """Yields one row per line that is not blank, with its place in the file; JSON is not parsed here."""
    number = 0
    for offset, line, length in split_lines(blocks):
        number += 1
        if line is None:
            yield FileRow(b"", too_long(length), number, offset, length)
            continue
        raw = line.strip()
        if raw:
            if len(raw) != length:
                offset += length - len(line.lstrip())
            yield FileRow(raw, None, number, offset, len(raw))


def text_line_rows(path: Path, blocks: Iterator[bytes]) -> Iterator[FileRow]:
    """Yields {"prompt": line} for every line that is not blank."""
    number = 0
    for offset, line, length in split_lines(blocks):
        number += 1
        if line is None:
            yield FileRow(b"", too_long(length), number, offset, length)
            continue
        if not line.strip():
            continue
        try:
            text = line.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            yield FileRow(
                b"",
                f"not UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}. Convert the file",
                number,
                offset,
                length,
            )
            continue
        yield FileRow(msgspec.json.encode({"prompt": text}), None, number, offset, length)
