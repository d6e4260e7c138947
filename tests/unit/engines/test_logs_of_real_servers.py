"""Every log that is at hand of a real server parses; what the engines print there is understood.

The lines to understand are counted by a search that knows nothing of the parsers, and the numbers of a batch
line are compared with what plain patterns find in it.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from headrace.engines.log_event import LogEvent
from headrace.engines.log_reader import LogReader
from tests.unit.engines.planning import shared

TO_UNDERSTAND = re.compile(r"batch,|batch\.|Engine 0|mem usage|max_total_num_tokens|WARNING|ERROR")
WANTED = 0.99
# word of an event ← pattern in the raw line; percent where the pattern ends in %
PLAIN = {
    ("decode", "running"): r"#running-req: (\d+)",
    ("decode", "queued"): r"#queue-req: (\d+)",
    ("decode", "kv_usage"): r"(?:(?:full|gpu) )?(?<!swa )token usage: ([\d.]+)",
    ("decode", "state_usage"): r"mamba usage: ([\d.]+)",
    ("decode", "output_tokens_per_s"): r"gen throughput \(token/s\): ([\d.]+)",
    ("prefill", "new_tokens"): r"#new-token: (\d+)",
    ("prefill", "cached_tokens"): r"#cached-token: (\d+)",
    ("stats", "running"): r"Running: (\d+) reqs",
    ("stats", "queued"): r"(?:Waiting|Pending): (\d+) reqs",
    ("stats", "output_tokens_per_s"): r"generation throughput: ([\d.]+)",
    ("stats", "kv_usage"): r"KV cache usage: ([\d.]+)%",
    ("capacity", "cap"): r"max_running_requests=(\d+)|capped to (\d+)",
}


def logs() -> list[Path]:
    folder = shared()
    if folder is None:
        return []
    return sorted([*folder.glob("cases/*/log.txt"), *folder.glob("captures/**/*.log")])


def understood(event: LogEvent | None) -> bool:
    """A warning or error is understood when the catalogue, a trace or an exception names it."""
    return event is not None and not (event.kind in ("warning", "failure") and not event.failure)


@pytest.fixture(scope="module")
def every_line() -> list[tuple[str, LogEvent | None]]:
    if not logs():
        pytest.skip("the shared folder with logs of real servers is not here (HEADRACE_SHARED names it)")
    found: list[tuple[str, LogEvent | None]] = []
    for path in logs():
        log = LogReader(path)
        texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
        found += [(text, log.parse(text)) for text in texts]
    return found


def test_the_lines_that_matter_are_understood(every_line: list[tuple[str, LogEvent | None]]) -> None:
    matter = [(text, event) for text, event in every_line if TO_UNDERSTAND.search(text)]
    missed = Counter(re.sub(r"\d+", "N", text)[:160] for text, event in matter if not understood(event))
    share = 1 - sum(missed.values()) / len(matter)
    said = "\n".join(f"{count:5d}  {text}" for text, count in missed.most_common(40))
    print(f"understood {share:.2%} of {len(matter):,} lines; not understood:\n{said}")  # noqa: T201
    assert share >= WANTED, said


def test_their_numbers_are_those_of_a_plain_search(every_line: list[tuple[str, LogEvent | None]]) -> None:
    compared = 0
    for text, event in every_line:
        if event is None:
            continue
        for (kind, word), pattern in PLAIN.items():
            if event.kind != kind or word not in event.values:
                continue
            found = re.search(pattern, text)
            assert found is not None, (word, text)
            plain = float(next(group for group in found.groups() if group))
            if pattern.endswith("%"):
                plain /= 100
            assert event.values[word] == pytest.approx(plain), (word, text)
            compared += 1
    assert compared > 2000


def test_no_batch_line_lacks_what_it_says(every_line: list[tuple[str, LogEvent | None]]) -> None:
    for text, event in every_line:
        if re.search(r"(Decode|Prefill) batch", text):
            assert event is not None, text
            assert not event.unknown, text
            assert {"running", "queued", "kv_usage"} <= set(event.values), text


def test_as_files_they_give_the_same() -> None:
    if not logs():
        pytest.skip("the shared folder with logs of real servers is not here (HEADRACE_SHARED names it)")
    path = max(logs(), key=lambda path: path.stat().st_size)
    log = LogReader(path)
    assert sum(1 for _ in log) == log.understood > 0
    assert not log.notes
