"""Where prompts come from: files of every common format and shape, read as `PromptRow`s in bounded memory.

Here belong formats, compression, shapes and the addresses of rows. What is sent for a prompt is
`headrace.drive.request`; which rows are answered already is the index's and the ledger's.
"""

from headrace.drive.sources.formats import FORMATS, Format, is_in_place, known_suffixes
from headrace.drive.sources.paths import FileFingerprint, expand, fingerprint
from headrace.drive.sources.reading import NoSpool, ScannedRow, Spool, peek, read_row, scan, shape_of
from headrace.drive.sources.shapes import Shape, ShapeKind, own_id_column

__all__ = [
    "FORMATS",
    "FileFingerprint",
    "Format",
    "NoSpool",
    "ScannedRow",
    "Shape",
    "ShapeKind",
    "Spool",
    "expand",
    "fingerprint",
    "is_in_place",
    "known_suffixes",
    "own_id_column",
    "peek",
    "read_row",
    "scan",
    "shape_of",
]
