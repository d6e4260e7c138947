"""What a recording is made of: `recording.json`, and segments of lines that are only ever appended.

    DIR/recording.json             what the servers told of themselves; written anew when that changes
    DIR/samples-0001.jsonl.gz      lines of JSON in gzip members, one member per flush, each fsynced

A line holds some seconds of one server as named columns. Members can be read while the next is being written;
what a crash tears is the last one. `zcat` and any JSON reader do. (Why not Parquet: docs/decisions/0007.)
"""

from __future__ import annotations

from pathlib import Path

import msgspec

ABOUT = "recording.json"
SCHEMA = "headrace.recording"
VERSION = 1
SEGMENT_BYTES = 64 * 1024 * 1024  # a segment is closed beyond it

Values = float | list[float | None]
"""A column over the line's times; one number where all are alike."""


def segment_name(number: int) -> str:
    """The file name of the segment, counted from 1."""
    return f"samples-{number:04d}.jsonl.gz"


def segments(folder: Path) -> list[Path]:
    """The segments that are there, in order."""
    return sorted(folder.glob("samples-*.jsonl.gz"))


class ServerAbout(msgspec.Struct, omit_defaults=True):
    """What a server told of itself, as in ServerObservation; capacities and names with their source."""

    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    weights_dtype: str | None = None
    kv_dtype: str | None = None
    flags: str = ""
    capacities: dict[str, tuple[float, str]] = {}
    settings: dict[str, str | float | bool] = {}
    names: dict[str, str] = {}
    ranks: int = 1
    notes: list[str] = []
    missing: list[str] = []


class About(msgspec.Struct):
    """A recording's head.

    Attributes:
        began_wall: Unix seconds; the zero of all times when the recording is read.
        every_seconds: between two samples of a server.
        servers: name (URL without user) → what it told.
        gpus: name (host/index) → the device's name.
        sources: of a job: source → max_tokens, None where nothing cuts.
    """

    schema: str
    version: int
    headrace: str = ""
    began_wall: float = 0.0
    every_seconds: float = 1.0
    servers: dict[str, ServerAbout] = {}
    gpus: dict[str, str] = {}
    sources: dict[str, int | None] | None = None


class Segment(msgspec.Struct, tag="segment"):
    """The first line of a segment: its times count from `wall` (Unix seconds)."""

    wall: float


class Samples(msgspec.Struct, tag="server", omit_defaults=True):
    """Some samples of one server. `ranks` has `word/rank` as keys."""

    name: str
    seconds: list[float]
    gauges: dict[str, Values] = {}
    counters: dict[str, Values] = {}
    ranks: dict[str, Values] = {}
    missed: int = 0


class GpuSamples(msgspec.Struct, tag="gpu"):
    """Some samples of one GPU, by words of `readings`."""

    name: str
    seconds: list[float]
    columns: dict[str, Values]


class Answers(msgspec.Struct, tag="answers"):
    """Rows of one source that one server answered: when sent, seconds, tokens, those cut at max_tokens."""

    source: str
    server: str
    sent: list[float]
    seconds: list[float]
    tokens: list[int]
    cut: list[int] = []


class InFlight(msgspec.Struct, tag="in_flight"):
    """Requests in flight at one moment: source → server → when sent."""

    at: float
    limit: int
    pending: int
    sent: dict[str, dict[str, list[float]]]


Line = Segment | Samples | GpuSamples | Answers | InFlight
