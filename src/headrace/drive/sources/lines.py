"""Lines with their byte offsets, in bounded memory: what JSON lines, CSV and plain text are made of."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.drive.sources.file_rows import ROW_BYTES_LIMIT

UTF8_BOM = b"\xef\xbb\xbf"


def split_lines(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes | None, int]]:
    """Yields (byte offset, line without its newline, length in bytes) for every line, blank ones too.

    A line over ROW_BYTES_LIMIT comes as None: its bytes are not kept. A UTF-8 byte order mark before
    the first line is not part of it. A carriage return before the newline stays in the line.
    """
    offset = 0  # of the line being collected
    held: list[bytes] = []
    held_bytes = 0
    started = False
    for block in blocks:
        if not started:
            started = True
            if block.startswith(UTF8_BOM):
                block = block[len(UTF8_BOM) :]
                offset = len(UTF8_BOM)
        lines = block.split(b"\n")
        last = lines.pop()
        if held_bytes and lines:
            length = held_bytes + len(lines[0])
            yield offset, b"".join((*held, lines[0])) if length <= ROW_BYTES_LIMIT else None, length
            offset += length + 1
            held, held_bytes = [], 0
            del lines[0]
        for line in lines:
            length = len(line)
            yield offset, line, length
            offset += length + 1
        held_bytes += len(last)
        if held_bytes > ROW_BYTES_LIMIT:
            held = []
        elif last:
            held.append(last)
    if held_bytes:
        yield offset, b"".join(held) if held_bytes <= ROW_BYTES_LIMIT else None, held_bytes
