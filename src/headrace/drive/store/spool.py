"""Rows of sources that cannot be read again in place (compressed, CSV, Parquet), as JSON lines."""

from __future__ import annotations

from pathlib import Path

from headrace.durable.disk import AppendFile, Disk

_BUFFER_BYTES = 1 << 20


class SpoolFile:
    """Takes rows one by one; the file is made with the first of them."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._file: AppendFile | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._length = 0

    def append(self, raw: bytes) -> int:
        """Keeps one JSON object; returns its byte offset."""
        offset = self._length
        self._waiting += (raw, b"\n")
        self._waiting_bytes += len(raw) + 1
        self._length += len(raw) + 1
        if self._waiting_bytes >= _BUFFER_BYTES:
            self._flush()
        return offset

    def _flush(self) -> None:
        if self._file is None:
            self._file = self._disk.append_open(self.path, fresh=True)
        self._file.write(b"".join(self._waiting))
        self._waiting.clear()
        self._waiting_bytes = 0

    def flush(self) -> None:
        """Hands all rows to the file, so that they can be read; not yet durable."""
        if self._waiting:
            self._flush()

    def finish(self) -> None:
        """Returns when all rows are on the disk; closes the file."""
        self.flush()
        if self._file is not None:
            self._file.fsync()
            self.close()
            self._disk.fsync_folder(self.path.parent)

    def close(self) -> None:
        """Closes the file as it is; nothing is promised of rows not yet finished."""
        if self._file is not None:
            self._file.close()
            self._file = None
