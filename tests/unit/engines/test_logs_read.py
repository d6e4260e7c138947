"""Whole logs as streams: compression, cut lines, endless lines, mixed engines, New Year."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pytest

from headrace.engines.log_reader import LogReader, explained, parse_line
from headrace.engines.log_texts import Limits
from headrace.errors import InputError, UsageError

SGLANG = "[2026-03-04 05:06:07] Decode batch, #running-req: {}, #token: 400, token usage: 0.25, #queue-req: 8"
VLLM = (
    "INFO {} [loggers.py:12] Engine 000: Avg prompt throughput: 4.0 tokens/s, "
    "Avg generation throughput: 33.5 tokens/s, Running: {} reqs, Waiting: 8 reqs, GPU KV cache usage: 25.0%"
)


def reader(text: str | bytes, engine: str | None = None, limits: Limits | None = None) -> LogReader:
    data = text.encode() if isinstance(text, str) else text
    return LogReader(io.BytesIO(data), engine, limits)


def running(log: LogReader) -> list[float | None]:
    return [event.number("running") for event in log]


def lines(count: int) -> str:
    return "".join(SGLANG.format(at) + "\n" for at in range(count))


@pytest.mark.parametrize(
    "packed",
    [
        lines(5).encode(),
        lines(5).replace("\n", "\r\n").encode(),
        lines(5).rstrip("\n").encode(),
        gzip.compress(lines(5).encode()),
        gzip.compress(lines(2).encode()) + gzip.compress(lines(5)[len(lines(2)) :].encode()),
        lines(5).encode("utf-16"),
        b"\xef\xbb\xbf" + lines(5).encode(),
        lines(5).replace("\n", "\n\xff\xfe broken \xf0\n").encode("latin-1"),
    ],
    ids=["plain", "CRLF", "no last newline", "gzip", "two gzip members", "UTF-16", "BOM", "no UTF-8"],
)
def test_a_log_however_it_is_stored(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(packed)
    assert running(LogReader(path)) == [0, 1, 2, 3, 4]
    assert running(LogReader(io.BytesIO(packed))) == [0, 1, 2, 3, 4]


def test_it_counts_and_knows_the_engine() -> None:
    log = reader(lines(3) + "nonsense\n" + "[2026-03-04 05:06:07] Memory pool end. avail mem=5.25 GB\n")
    list(log)
    assert (log.lines, log.understood, dict(log.kinds), dict(log.engines)) == (
        5,
        4,
        {"decode": 3, "memory": 1},
        {"sglang": 4},
    )


def test_two_engines_in_one_log() -> None:
    log = reader(lines(1) + VLLM.format("03-04 05:06:08", 77) + "\n" + lines(1))
    assert [(event.engine, event.number("running")) for event in log] == [
        ("sglang", 0),
        ("vllm", 77),
        ("sglang", 0),
    ]


def test_two_ranks_that_wrote_into_one_line() -> None:
    text = "[2026-03-04 05:06:07 TP{0}] Decode batch, #running-req: {0}, #queue-req: 5"
    events = list(reader("".join(text.format(rank) for rank in range(3)) + "\n"))
    assert [(event.ranks["tp"], event.number("running")) for event in events] == [(0, 0), (1, 1), (2, 2)]


def test_a_told_engine_is_the_only_one() -> None:
    assert running(reader(lines(1) + VLLM.format("03-04 05:06:08", 77), "vllm")) == [77]


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UsageError, match=r"vlm.*Did you mean 'vllm'"):
        reader("", "vlm")


def test_what_any_program_might_say_tells_nothing_of_the_engine() -> None:
    found = parse_line("RuntimeError: CUDA out of memory")
    assert found is not None
    assert (found.engine, found.kind, found.failure) == ("", "failure", "gpu_out_of_memory")


def test_a_text_of_one_engine_wins_over_a_plain_exception() -> None:
    found = parse_line("ValueError: max_num_seqs (9) exceeds available Mamba cache blocks (8).")
    assert found is not None
    assert (found.engine, found.failure) == ("vllm", "state_blocks_too_few")


def test_the_engine_of_a_plain_exception_is_that_of_its_log() -> None:
    events = list(reader(VLLM.format("03-04 05:06:08", 7) + "\nRuntimeError: oh\n"))
    assert [event.engine for event in events] == ["vllm", "vllm"]


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_line_cut_by_dockers_runtime_is_joined(cut: int) -> None:
    text = SGLANG.format(6)
    pieces = [text[at : at + cut] for at in range(0, len(text), cut)]
    cri = "".join(
        f"2026-03-04T05:06:07.5Z stderr {'F' if at == len(pieces) - 1 else 'P'} {piece}\n"
        for at, piece in enumerate(pieces)
    )
    assert running(reader(cri + cri)) == [6, 6]


def test_a_long_line_in_dockers_json_is_joined() -> None:
    text = f"[2026-03-04 05:06:07] server_args=ServerArgs(model_path='m', x='{'y' * 20_000}', tp_size=4)\n"
    pieces = [text[at : at + 16_384] for at in range(0, len(text), 16_384)]
    whole = [
        json.dumps({"log": piece, "stream": "stderr", "time": "2026-03-04T05:06:07Z"}) for piece in pieces
    ]
    (event,) = reader("\n".join(whole))
    assert event.values == {"model_path": "m", "tp_size": 4}


def test_lines_in_json_without_their_end_are_lines_of_their_own() -> None:
    text = "\n".join(json.dumps({"log": SGLANG.format(at)}) for at in range(3))
    assert running(reader(text)) == [0, 1, 2]


def test_cut_lines_of_two_pods_do_not_mix() -> None:
    a, b = SGLANG.format(6), SGLANG.format(7)
    text = (
        f"[pod/a/x] 2026-03-04T05:06:07.5Z stderr P {a[:30]}\n"
        f"[pod/b/x] 2026-03-04T05:06:07.5Z stderr F {b}\n"
        f"[pod/a/x] 2026-03-04T05:06:07.5Z stderr F {a[30:]}\n"
    )
    assert [(event.host, event.number("running")) for event in reader(text)] == [
        ("pod/b/x", 7),
        ("pod/a/x", 6),
    ]


def test_a_line_that_is_never_finished_does_not_fill_memory() -> None:
    log = reader("2026-03-04T05:06:07.5Z stderr P xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n" * 8_000)
    tracemalloc.start()
    assert list(log) == []
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


class Endless(io.RawIOBase):
    """A line without end, then two lines; nothing is stored."""

    def __init__(self, length: int) -> None:
        self.left = length
        self.tail = b"\n" + lines(2).encode()

    def read(self, size: int = -1) -> bytes:
        if self.left:
            size = min(size, self.left)
            self.left -= size
            return b"A" * size
        data, self.tail = self.tail[:size], self.tail[size:]
        return data


def test_a_line_without_end_is_skipped_in_constant_memory() -> None:
    log = LogReader(Endless(64 << 20))  # type: ignore[arg-type]
    tracemalloc.start()
    assert running(log) == [0, 1]
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    assert log.overlong == 1


def test_a_compressed_log_is_read_up_to_the_limit() -> None:
    log = reader(gzip.compress(lines(5).encode()), limits=Limits(unpacked_bytes=2 * len(SGLANG)))
    assert running(log)[0] == 0
    assert log.lines < 5
    assert "the limit" in log.notes[0]


def test_a_bomb_of_one_line_ends_at_the_limit() -> None:
    log = reader(gzip.compress(b"A" * (20 << 20)), limits=Limits(unpacked_bytes=1 << 20))
    assert list(log) == []
    assert "1,048,576 bytes, the limit" in log.notes[0]


def test_a_cut_compressed_log_gives_what_it_has() -> None:
    # stored, not deflated: what lies before the cut can be read
    packed = gzip.compress(lines(2000).encode(), compresslevel=0)
    log = reader(packed[: len(packed) // 2])
    assert 400 < len(running(log)) < 1100
    assert "damaged or cut" in log.notes[0]


@pytest.mark.parametrize("begin", [b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh91AY", b"PK\x03\x04"])
def test_other_compressions_are_named(begin: bytes) -> None:
    with pytest.raises(InputError, match="Unpack it first"):
        list(reader(begin + b"...."))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(LogReader(tmp_path / "none.log"))


def test_an_events_failure_is_explained() -> None:
    found = explained("state_blocks_too_few", "vllm")
    assert found is not None
    assert found.constraint == "configuration_error"  # it does not start: the flag asks for too many
    assert explained("gpu_out_of_memory") == explained("gpu_out_of_memory", "vllm") is not None
    assert explained("exception") is explained("", "sglang") is explained("kv_pool_full", "vllm") is None


def test_an_empty_log_is_empty() -> None:
    assert list(reader("")) == []


def test_new_year_in_a_log_without_years() -> None:
    stamps = ["12-31 23:59:50", "01-01 00:00:00", "12-31 23:59:59", "01-01 00:00:10"]
    events = list(reader("\n".join(VLLM.format(stamp, 1) for stamp in stamps)))
    first = events[0].time_seconds
    assert first is not None
    assert [event.time_seconds - first for event in events if event.time_seconds] == [0, 10, 9, 20]


TRACE = """[2026-03-04 05:06:07] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/scheduler.py", line 9, in run
    return Config(max_total_num_tokens=3)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.

[2026-03-04 05:06:08] Received sigquit from a child process. It usually means the child failed.
    an indented line of nobody knows what
"""


def test_a_trace_is_one_failure_and_its_lines() -> None:
    assert [(event.kind, event.failure) for event in reader(TRACE)] == [
        ("failure", "scheduler_crashed"),
        ("traceback", ""),
        ("traceback", ""),
        ("traceback", ""),
        ("failure", "memory_fraction_too_small"),
        ("failure", "child_failed"),
    ]


def test_children_that_end_after_a_stop_was_asked_for_are_no_failure() -> None:
    text = (
        "[2026-03-04 05:06:07] SIGTERM received. signum=None frame=None. Draining requests and "
        "shutting down...\n"
        "[2026-03-04 05:06:08] Subprocess scheduler_0 (pid=2) crashed with exit code -15. Triggering "
        "SIGQUIT …\n"
    )
    assert [event.kind for event in reader(text)] == ["shutdown", "shutdown"]


def test_memory_does_not_grow_with_the_log() -> None:
    log = reader(lines(4000))
    iterator = iter(log)
    for _ in range(1000):
        next(iterator)
    tracemalloc.start()
    for _ in iterator:
        pass
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_bomb_of_many_lines_ends_at_the_largest_ratio() -> None:
    limits = Limits(unpacked_freely_bytes=1 << 20, largest_ratio=250)
    log = reader(gzip.compress(b"\n" * (20 << 20)), limits=limits)
    assert list(log) == []
    assert log.lines < 8 << 20
    assert "the limit" in log.notes[0]
