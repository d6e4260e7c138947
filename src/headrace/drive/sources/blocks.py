"""Files as a stream of decompressed blocks: memory does not grow with the file or what it unpacks to."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from headrace.drive.sources.file_rows import DamagedFile
from headrace.errors import InputError
from headrace.extras import missing

BLOCK_BYTES = 1 << 20
PACKED_BYTES = 1 << 17  # read at a time of compressed files: at most so much is lost before a break
COMPRESSIONS = (".gz", ".zst")

_GZIP = 16 + zlib.MAX_WBITS


def read_blocks(path: Path, compression: str | None) -> Iterator[bytes]:
    """Yields the file's bytes, decompressed, in blocks of at most BLOCK_BYTES.

    Args:
        compression: ".gz", ".zst" or None.

    Raises:
        InputError: the file cannot be opened or read, or is UTF-16.
        DamagedFile: its compressed data are cut off or broken.
    """
    try:
        opened = path.open("rb", buffering=0)
    except OSError as error:
        raise InputError(f"{path} cannot be opened: {error.strerror}. Check path and rights") from error
    with opened as file:
        first = True
        for block in _blocks_of(file, path, compression):
            if first:
                _refuse_utf16(block, path)
                first = False
            yield block


def _blocks_of(file: IO[bytes], path: Path, compression: str | None) -> Iterator[bytes]:
    done_bytes = 0
    try:
        for block in _unpacked(file, path, compression):
            done_bytes += len(block)
            yield block
    except (EOFError, zlib.error) as error:
        raise _damaged(path, done_bytes, error) from error
    except OSError as error:
        if error.errno is None:  # pyarrow says broken data as a bare OSError
            raise _damaged(path, done_bytes, error) from error
        raise InputError(
            f"{path} cannot be read past byte {done_bytes:,}: {error.strerror}. Check the disk"
        ) from error


def _unpacked(file: IO[bytes], path: Path, compression: str | None) -> Iterator[bytes]:
    if compression == ".gz":
        yield from _gunzipped(file)
        return
    stream: Any = file
    if compression == ".zst":
        arrow = import_pyarrow(path)
        stream = arrow.CompressedInputStream(arrow.PythonFile(file, mode="r"), "zstd")
    size = BLOCK_BYTES if compression is None else PACKED_BYTES
    while block := stream.read(size):
        yield block


def _gunzipped(file: IO[bytes]) -> Iterator[bytes]:
    """As gzip.GzipFile, but gives all there is before the place where the data break off."""
    unpack = zlib.decompressobj(_GZIP)
    packed = b""
    begun = False
    while True:
        if not packed:
            packed = file.read(PACKED_BYTES)
            if not packed:
                if begun:
                    raise EOFError("the end of the compressed data is missing")
                return
        if not begun:
            packed = packed.lstrip(b"\0")  # padding between members
            begun = bool(packed)
            continue
        while block := unpack.decompress(packed, BLOCK_BYTES):
            packed = unpack.unconsumed_tail
            yield block
        packed = b""
        if unpack.eof:
            packed, begun = unpack.unused_data, False
            unpack = zlib.decompressobj(_GZIP)


def _damaged(path: Path, done_bytes: int, error: BaseException) -> DamagedFile:
    return DamagedFile(
        f"the compressed data of {path.name} break off after {done_bytes:,} unpacked bytes ({error}); "
        "the rest is not read. Fetch or compress the file again"
    )


def _refuse_utf16(block: bytes, path: Path) -> None:
    if block[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(
            f"{path} is UTF-16; headrace reads UTF-8. Convert it: iconv -f UTF-16 -t UTF-8 {path.name} > NEW"
        )


def import_pyarrow(path: Path) -> Any:
    """The pyarrow module, imported now: only files that need it pay for it.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise missing("pyarrow", f"reading {path}") from None
    return pyarrow
