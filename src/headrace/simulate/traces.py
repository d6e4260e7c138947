"""Workloads from files: a trace as CSV, JSON lines or Parquet, or a job's own finished rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headrace.errors import InputError
from headrace.simulate.workload import Workload

# Names of columns in published traces: Azure's LLM inference traces, LLMServingSim's, this project's own
# rows.
INPUT_NAMES = (
    "input_tokens",
    "prompt_tokens",
    "contexttokens",
    "input_toks",
    "input_length",
    "context_tokens",
)
OUTPUT_NAMES = (
    "output_tokens",
    "completion_tokens",
    "generatedtokens",
    "output_toks",
    "output_length",
    "generated_tokens",
)
ARRIVAL_NAMES = ("arrival", "arrival_time", "timestamp", "arrived_at")
ASKED_NAMES = ("max_tokens", "asked_tokens", "max_new_tokens")
GROUP_NAMES = ("group", "prefix_id")
SHARED_NAMES = ("shared_tokens", "prefix_tokens")
_MAX_BYTES = 4 << 30
_MAX_ROWS = 50_000_000


def read_workload(path: Path, *, max_tokens: int | None = None, arrivals: bool = True) -> Workload:
    """Returns the workload of a trace, or of a job folder (its finished rows, which have no arrivals).

    Rows without a length are left out and counted in `source`. Outputs longer than `max_tokens` end there.

    Args:
        max_tokens: what every request asks for, where the trace does not say; else the longest output.
        arrivals: False: all prompts are there from the start.

    Raises:
        InputError: the file cannot be read, is no trace, or has no usable row.
    """
    found: dict[str, list[float]] = {
        name: [] for name in ("input", "output", "arrival", "asked", "group", "shared")
    }
    skipped = 0
    for row in _rows(path):
        prompt, output = _number(row, INPUT_NAMES), _number(row, OUTPUT_NAMES)
        if prompt is None or output is None or prompt < 1 or output < 1:
            skipped += 1
            continue
        found["input"].append(prompt)
        found["output"].append(output)
        found["arrival"].append(_time(row))
        found["asked"].append(_number(row, ASKED_NAMES) or 0.0)
        group = _number(row, GROUP_NAMES)
        found["group"].append(-1.0 if group is None else group)
        found["shared"].append(_number(row, SHARED_NAMES) or 0.0)
        if len(found["input"]) > _MAX_ROWS:
            raise InputError(f"{path} has more than {_MAX_ROWS:,} rows. Simulate a part of it.")
    if not found["input"]:
        raise InputError(
            f"{path} has no row with lengths: it needs columns like {INPUT_NAMES[0]} and {OUTPUT_NAMES[0]}."
        )
    return _workload(path, found, skipped, max_tokens, arrivals)


def _workload(
    path: Path, found: Mapping[str, list[float]], skipped: int, max_tokens: int | None, arrivals: bool
) -> Workload:
    prompt, output = (np.array(found[name]).astype(np.int64) for name in ("input", "output"))
    limit = max_tokens if max_tokens is not None else int(output.max())
    asked = np.array(found["asked"]).astype(np.int64)
    asked = np.where(asked > 0, np.minimum(asked, max_tokens or asked), limit)
    times = np.array(found["arrival"])
    timed = arrivals and bool(np.all(np.isfinite(times)))
    group, lengths = _groups(found)
    source = f"{path.name}, {len(prompt):,} rows" + (
        f", {skipped:,} without lengths left out" if skipped else ""
    )
    return Workload(
        np.where(group >= 0, np.maximum(prompt, np.append(lengths, 0)[group] + 1), prompt),
        np.minimum(output, asked),
        asked,
        times - times.min() if timed else None,
        group=group,
        group_tokens=tuple(int(length) for length in lengths),
        source=source,
    ).validated()


def _groups(found: Mapping[str, list[float]]) -> tuple[Any, Any]:
    """(group of each prompt, length of each group): the shortest shared beginning that its rows tell."""
    told, shared = np.array(found["group"]), np.array(found["shared"])
    member = (told >= 0) & (shared > 0)
    if not np.any(member):
        return np.full(len(told), -1, np.int64), np.empty(0, np.int64)
    names, numbers = np.unique(told[member], return_inverse=True)
    group = np.full(len(told), -1, np.int64)
    group[member] = numbers
    lengths = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(lengths, numbers, shared[member].astype(np.int64))
    return group, lengths


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yields rows by lower-case column name."""
    if path.is_dir():
        yield from _job_rows(path)
        return
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path} is larger than {_MAX_BYTES >> 30} GiB. Simulate a part of it.")
        kind = path.suffix.lower()
        if kind == ".parquet":
            yield from _parquet_rows(path)
        elif kind in (".jsonl", ".ndjson", ".json"):
            with path.open("rb") as lines:
                yield from _json_rows(path, lines)
        elif kind == ".csv":
            with path.open(newline="", encoding="utf-8", errors="replace") as text:
                for row in csv.DictReader(text):
                    yield {str(name).strip().lower(): value for name, value in row.items()}
        else:
            raise InputError(f"{path}: a trace is a .csv, .jsonl or .parquet file, or a job folder.")
    except (OSError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}. Check the path and the file.") from error


def _json_rows(path: Path, lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise InputError(f"{path}:{number} is no JSON object: {error}. One object per line.") from error
        yield {name.lower(): value for name, value in row.items()}


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    from headrace.drive.sources.parquet_rows import parquet_rows

    for row in parquet_rows(path, iter(())):
        if row.error is None:
            yield {name.lower(): value for name, value in msgspec.json.decode(row.raw).items()}


def _job_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    from headrace.drive.store.reader import read_columns

    names = ("prompt_tokens", "completion_tokens")
    for columns in read_columns(path, names):
        for values in zip(*(columns[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))


def _number(row: Mapping[str, Any], names: Iterable[str]) -> float | None:
    for name in names:
        value = row.get(name)
        if value is None or value == "":
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            return None
        return number if abs(number) < 1e12 else None
    return None


def _time(row: Mapping[str, Any]) -> float:
    """Seconds on the trace's own clock; NaN where it has none."""
    for name in ARRIVAL_NAMES:
        value = row.get(name)
        if value is None or value == "":
            continue
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
        try:  # Azure writes seven digits of a second; Python reads six
            text = str(value)
            whole, dot, rest = text.partition(".")
            moment = datetime.fromisoformat(whole)
            return moment.timestamp() + (float(f"0.{rest}") if dot and rest.isdigit() else 0.0)
        except ValueError:
            return float("nan")
    return float("nan")
